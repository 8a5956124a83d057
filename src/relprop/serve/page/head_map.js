// Which heads of a model are positional or syntactic: blocks by heads, each kind with a colour and a letter.

import { make } from './dom.js';
import { visible } from './words.js';

const LETTERS = { positional: 'P', syntactic: 'S', 'positional and syntactic': 'B', neither: '·' };
const styleOf = (kind) => (kind === 'positional and syntactic' ? 'both' : kind);

/** What is known of a model's heads, or how to find it out. */
export function headMap(known) {
  if (known) return mapped(known);
  return [make('p', { class: 'soft' }, 'Which heads of this model are positional or syntactic is not known here. '
    + 'Find them once: relprop heads FOLDER --save FOLDER/heads.json')];
}

function mapped({ kinds, corpus }) {
  const count = kinds[0].length;
  const head = make('tr', {}, make('td', {}), ...kinds[0].map((_, i) => make('th', { scope: 'col' }, `${i}`)));
  const rows = kinds.map((row, block) =>
    make('tr', {}, make('th', { scope: 'row' }, `block ${block}`), ...row.map(cell)));
  const caption = make('caption', { class: 'unseen' }, `Kinds of ${count} heads in each of ${kinds.length} blocks`);
  const map = make('table', { class: 'heads' }, caption, make('thead', {}, head), make('tbody', {}, ...rows.reverse()));
  return [
    make('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Heads by block' }, map),
    make('ul', { class: 'kinds' }, ...Object.keys(LETTERS).map((kind) => counted(kind, kinds.flat()))),
    make('p', { class: 'soft' }, `Found on ${visible(corpus)}. The method mask_lrp lets relevance flow through the `
      + 'positional and syntactic heads alone.'),
  ];
}

const cell = (kind) => make('td', { class: styleOf(kind) },
  make('span', { 'aria-hidden': 'true' }, LETTERS[kind]), make('span', { class: 'unseen' }, kind));

function counted(kind, all) {
  const swatch = make('span', { class: `swatch ${styleOf(kind)}`, 'aria-hidden': 'true' }, LETTERS[kind]);
  return make('li', {}, swatch, ` ${kind}: ${all.filter((one) => one === kind).length}`);
}
