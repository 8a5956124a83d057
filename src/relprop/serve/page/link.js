// The state of the page in the address, behind the #: it is shared by link and never sent to the service.

const TEXTS = ['model', 'text', 'pair', 'target', 'against', 'place', 'units', 'special', 'generate', 'picture', 'name'];
const OPTION = 'option.';

/** The link to a state. */
export function linked(state) {
  const parts = new URLSearchParams();
  for (const name of TEXTS) if (state[name]) parts.set(name, state[name]);
  for (const method of state.methods) parts.append('method', method);
  for (const [name, value] of Object.entries(state.options)) parts.set(`${OPTION}${name}`, value);
  return `${location.origin}${location.pathname}#${parts}`;
}

/** The state that the address tells; what it leaves out is ''. */
export function restored(fragment = location.hash) {
  const parts = new URLSearchParams(fragment.slice(1));
  const texts = Object.fromEntries(TEXTS.map((name) => [name, parts.get(name) ?? '']));
  const options = [...parts].filter(([name]) => name.startsWith(OPTION))
    .map(([name, value]) => [name.slice(OPTION.length), value]);
  return { ...texts, methods: parts.getAll('method'), options: Object.fromEntries(options) };
}
