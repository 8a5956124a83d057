// The options of the chosen methods, as the service describes them; an option that several methods have is given once.

import { byId, make } from './dom.js';

let given = {}; // by name, as written in the fields: what is left at its default is not there
let schemas = {}; // of the options that are on show

export const writeOptions = (options) => { given = { ...options }; };

/** What was given, of the options that are on show. */
export const readOptions = () => Object.fromEntries(Object.entries(given).filter(([name]) => name in schemas));

/** Those that a method has, in its types; values of another type are left to the service, which refuses them with the reason. */
export function optionsFor({ options }, written) {
  const own = Object.entries(written).filter(([name]) => name in options);
  return Object.fromEntries(own.map(([name, value]) => [name, typed(options[name], value)]));
}

function typed(schema, value) {
  const types = alternatives(schema).map((one) => one.type);
  if (types.includes('boolean')) return value === 'true';
  const numeric = types.includes('integer') || types.includes('number');
  return numeric && value.trim() !== '' && Number.isFinite(Number(value)) ? Number(value) : value;
}

const alternatives = (schema) => (schema.anyOf ?? [schema]).filter((one) => !['null', 'array'].includes(one.type));

export function fitOptions(methods) {
  const owners = new Map();
  for (const { name, options } of methods) {
    for (const option of Object.keys(options)) owners.set(option, [...(owners.get(option) ?? []), name]);
  }
  schemas = Object.assign({}, ...methods.map((one) => one.options));
  byId('options').replaceChildren(...[...owners].map(([name, of]) => field(name, schemas[name], of)));
  byId('options-fold').hidden = !owners.size;
  note();
}

function note() {
  const changed = Object.entries(readOptions()).map(([name, value]) => `${name} ${value}`);
  byId('options-note').textContent = changed.join(', ') || 'as the papers have them';
}

function field(name, schema, owners) {
  const choices = alternatives(schema).flatMap((one) => one.enum ?? (one.const === undefined ? [] : [one.const]));
  const plain = schema.default === null ? 'none' : `${schema.default}`;
  const value = given[name] ?? '';
  const listed = alternatives(schema)[0].type === 'boolean' ? ['false', 'true'] : choices;
  const control = listed.length ? select(listed.map(String).filter((one) => one !== plain), plain, value)
    : make('input', { value, placeholder: plain, autocomplete: 'off', spellcheck: 'false' });
  control.addEventListener('change', () => {
    if (control.value.trim() === '') delete given[name];
    else given[name] = control.value.trim();
    note();
  });
  return make('label', {}, name, control, make('span', { class: 'note' }, owners.join(', ')));
}

function select(others, plain, value) {
  const element = make('select', {}, make('option', { value: '' }, `${plain} (default)`),
    ...others.map((one) => make('option', { value: one }, one)));
  element.value = value;
  return element;
}
