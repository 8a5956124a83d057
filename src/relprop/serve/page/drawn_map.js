// Sounds, series, rows of tables, and whatever else the service draws itself: its picture, and the strongest units.

import { make } from './dom.js';
import { titled, visible } from './words.js';

const TOLD = 12; // units in the table
const DEEP = 3; // scores of a video are times of rows of columns

/** `drawing` asks the service for the picture. */
export function drawnMap(explanation, signed, drawing) {
  const image = make('img', { class: 'drawn', alt: described(explanation, signed) });
  const element = make('div', { class: 'drawing' }, make('p', { class: 'waiting' }, 'drawing…'));
  drawing().then((blob) => {
    image.src = URL.createObjectURL(blob);
    element.replaceChildren(image);
  }, (error) => {
    element.replaceChildren(make('p', { class: 'error' }, error.message));
  });
  return {
    element,
    show: () => '',
    columns: ['unit', 'score'],
    rows: () => strongest(explanation, TOLD).map(([name, score]) => [name, titled(score, signed)]),
  };
}

export const total = ({ parts }) =>
  parts.reduce((sum, { scores, rest }) => sum + scores.flat(DEEP).reduce((one, other) => one + other, rest ?? 0), 0);

function strongest({ parts }, count) {
  const all = parts.flatMap(({ name, units = [], scores }) => scores.flat(DEEP).map((score, i) => {
    const unit = parts.length > 1 ? `${name}: ${named(units[i], i)}` : named(units[i], i);
    return [visible(unit), score];
  }));
  return all.sort((one, other) => Math.abs(other[1]) - Math.abs(one[1])).slice(0, count);
}

function named(unit, place) {
  if (typeof unit === 'string') return unit;
  if (unit?.text) return unit.text;
  return unit?.start === undefined ? `unit ${place}` : `${unit.start.toFixed(2)}-${unit.end.toFixed(2)} s`;
}

/** In words, for those who cannot see it. */
function described(explanation, signed) {
  const named = strongest(explanation, 3).map(([name, score]) => `${name} ${titled(score, signed)}`);
  return `${explanation.method}, ${visible(explanation.target)}; strongest ${named.join(', ')}`;
}
