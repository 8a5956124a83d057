// A text and what a model wrote after it: pointing at a written token colours what it owes to the tokens before it.

import { valueShown } from './account.js';
import { shades, tint } from './palette.js';
import { select } from './pointing.js';
import { textMap } from './text_map.js';
import { number, percent, titled, unsigned, visible } from './words.js';

const CAUSES = 5; // named of each written token

/** Whether an explanation is of a text that the model wrote, token by token, and of nothing but that text. */
export const isWritten = ({ parts, steps }) => Boolean(steps?.length) && parts?.length === 1
  && parts[0].kind === 'text' && (parts[0].written_from ?? null) !== null;

export function generationMap(explanation, signed, pointed) {
  const { method, steps, parts: [part] } = explanation;
  const given = part.units.length - steps.length;
  const sums = textMap({ ...part, method }, signed, pointed);
  const cells = [...sums.element.querySelectorAll('.unit')];
  cells.slice(given).forEach((cell) => cell.classList.add('written'));
  const names = cells.map((cell) => cell.textContent);
  const paint = (scores, row) => {
    shades(scores).forEach((shade, i) => {
      tint(cells[i], shade, signed);
      cells[i].classList.toggle('later', row !== null && i > given + row);
    });
  };
  return {
    element: sums.element,
    show(place) {
      const row = place === null || place < given || !steps[place - given] ? null : place - given;
      paint(row === null ? part.scores : part.by_step[row], row);
      if (row === null) return sums.show(place);
      select(cells, place);
      return `${told(steps[row])}: ${causes(part.by_step[row], names, signed)}`;
    },
    columns: ['written', 'of', 'score'],
    rows: () => steps.flatMap(({ target }, row) => part.by_step[row].slice(0, given + row)
      .map((score, i) => [visible(target), names[i], titled(score, signed)])),
  };
}

/** A written token, its number, how likely it was, and which other one was likeliest. */
export function told({ target, value, probability, runner_up: other, runner_up_probability: share }) {
  const next = other ? `, then ${visible(other)} ${percent(share)}` : '';
  return `${visible(target)} = ${valueShown(value)} (${percent(probability)}${next})`;
}

export function causes(scores, names, signed) {
  const order = scores.map((score, i) => [score, i]).filter(([score]) => score)
    .sort(([one], [other]) => Math.abs(other) - Math.abs(one));
  return order.slice(0, CAUSES)
    .map(([score, i]) => `${names[i]} ${signed ? number(score) : unsigned(score)}`).join(', ');
}
