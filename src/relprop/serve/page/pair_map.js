// Pairs of units of two texts as a matrix, the first text down and the second across.

import { make } from './dom.js';
import { shades, tint } from './palette.js';
import { listBox, select } from './pointing.js';
import { titled, visible } from './words.js';

export function pairMap(explanation, signed, pointed) {
  const { first, second, scores, method } = explanation;
  const flat = scores.flat();
  const strengths = shades(flat);
  const names = first.flatMap((row) => second.map((column) => `${visible(row.text)} – ${visible(column.text)}`));
  const cells = names.map((name, i) => {
    const cell = make('span', { class: 'cell', 'aria-label': `${name}, ${titled(flat[i], signed)}` });
    tint(cell, strengths[i]);
    return cell;
  });
  const grid = make('div', { class: 'pairs', 'aria-label': `Pairs of units, by ${method}` });
  grid.style.setProperty('--across', second.length);
  const heads = second.map((unit) => make('span', { class: 'across', 'aria-hidden': 'true' }, visible(unit.text)));
  grid.append(make('span', { 'aria-hidden': 'true' }), ...heads);
  first.forEach((unit, i) => grid.append(make('span', { class: 'down', 'aria-hidden': 'true' }, visible(unit.text)),
    ...cells.slice(i * second.length, (i + 1) * second.length)));
  listBox(grid, cells, pointed);
  return {
    element: make('div', { class: 'scroll' }, grid),
    show(place) {
      select(cells, place);
      return place === null || !names[place] ? '' : `${names[place]} ${titled(flat[place], signed)}`;
    },
    columns: ['first', 'second', 'score'],
    rows: () => flat.map((score, i) => [visible(first[Math.floor(i / second.length)].text),
      visible(second[i % second.length].text), titled(score, signed)]),
  };
}
