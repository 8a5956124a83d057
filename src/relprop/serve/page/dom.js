// Elements without markup: whatever comes from outside is text, never HTML.

const SVG = 'http://www.w3.org/2000/svg';

export const byId = (id) => document.getElementById(id);

export const make = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);

export const draw = (tag, attributes, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

/** A table with a heading for each column and one for each row, its first cell. */
export function table(caption, columns, rows) {
  const head = make('tr', {}, ...columns.map((name) => make('th', { scope: 'col' }, name)));
  const body = rows.map(([first, ...rest]) =>
    make('tr', {}, make('th', { scope: 'row' }, first), ...rest.map((cell) => make('td', {}, cell))));
  return make('table', {}, make('caption', { class: 'unseen' }, caption), make('thead', {}, head),
    make('tbody', {}, ...body));
}

/** Something that unfolds, and is made only then. */
export function unfolding(summary, content) {
  const element = make('details', {}, make('summary', {}, summary));
  element.addEventListener('toggle', () => element.append(content()), { once: true });
  return element;
}

/** A method's name as a heading, which may break after any underscore. */
export const titleOf = (name) =>
  make('h3', {}, ...name.split(/(?<=_)/u).flatMap((part, i) => (i ? [make('wbr', {}), part] : [part])));

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
