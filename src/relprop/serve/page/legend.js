// What the colours mean.

import { make } from './dom.js';
import { filmOf, painted, tint } from './palette.js';

const STEPS = 9;
const PIXELS = 128;

export function legends(kind, signs) {
  const films = [...new Set(signs)].sort().reverse();
  return films.map(kind === 'images' ? pictureLegend : unitLegend);
}

function unitLegend(signed) {
  const swatches = Array.from({ length: STEPS }, (_, i) => {
    const swatch = make('i', {});
    tint(swatch, signed ? 2 * i / (STEPS - 1) - 1 : i / (STEPS - 1), signed);
    return swatch;
  });
  return legend(signed, swatches);
}

function pictureLegend(signed) {
  const canvas = make('canvas', { width: PIXELS, height: 1 });
  const pen = canvas.getContext('2d');
  const film = filmOf(signed);
  for (let x = 0; x < PIXELS; x += 1) {
    const share = x / (PIXELS - 1);
    pen.fillStyle = `rgb(${painted(film.ground, signed ? 2 * share - 1 : share, film).join(' ')})`;
    pen.fillRect(x, 0, 1, 1);
  }
  return legend(signed, [canvas]);
}

function legend(signed, scale) {
  const ends = signed ? ['opposes', 'supports'] : ['little', 'much (neither for nor against)'];
  return make('div', { class: 'legend' }, make('span', { class: signed ? 'minus' : '' }, ends[0]),
    make('span', { class: 'scale', 'aria-hidden': 'true' }, ...scale), make('span', {}, ends[1]),
    make('span', {}, 'relative to the strongest scores of each map'));
}
