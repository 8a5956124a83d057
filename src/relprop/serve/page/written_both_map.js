// A picture, a text and what a model wrote of both: pointing at a written token colours the patches and words that it is
// made of, pointing at a patch or a word the written tokens that it makes.

import { make } from './dom.js';
import { causes, told } from './generation_map.js';
import { imageMap } from './image_map.js';
import { shades, tint } from './palette.js';
import { textMap } from './text_map.js';
import { titled, visible } from './words.js';

/** Whether an explanation is of a text that the model wrote of a picture, token by token. */
export const isWrittenOfPicture = ({ parts, steps }) => Boolean(steps?.length) && parts?.length === 2
  && parts[0].kind === 'image' && parts[1].kind === 'text' && (parts[1].written_from ?? null) !== null;

export function writtenBothMap(explanation, signed, pointed, bitmap) {
  const { method, steps, parts: [image, part] } = explanation;
  const given = part.units.length - steps.length;
  /** A token that was clicked stays chosen when the pointer leaves the picture. */
  const chosen = () => {
    const at = cells.indexOf(document.activeElement);
    return at < 0 ? null : at;
  };
  const over = imageMap({ ...explanation, ...image, steps: [] }, signed,
    (place, spoken) => pointed(place ?? chosen(), spoken), bitmap);
  const words = textMap({ ...part, method }, signed, pointed);
  const cells = [...words.element.querySelectorAll('.unit')];
  cells.slice(given).forEach((cell) => cell.classList.add('written'));
  const names = [...image.scores.flatMap((row, y) => row.map((_, x) => `patch ${y + 1}, ${x + 1}`)),
    ...cells.map((cell) => cell.textContent)];

  /** Patches and words by the strongest of both: they are shares of the same number. */
  const paint = (grid, scores, row = null) => {
    const bound = Math.max(0, ...[...grid.flat(), ...scores].map(Math.abs)) || 1;
    over.repaint(grid, bound);
    scores.forEach((score, i) => {
      tint(cells[i], score / bound, signed);
      cells[i].classList.toggle('later', row !== null && i > given + row);
    });
  };
  /** What one patch or word gives to each written token. */
  const paintWritten = (shares) => shades(shares).forEach((shade, row) => tint(cells[given + row], shade, signed));
  const sums = () => paint(image.scores, part.scores);
  sums();

  return {
    element: make('div', { class: 'written-both' }, over.element, words.element),
    show(place) {
      const row = typeof place === 'number' && place >= given && steps[place - given] ? place - given : null;
      const patch = place !== null && typeof place !== 'number' ? over.cellAt(place) : null;
      const sentences = [over.show(typeof place === 'number' ? null : place),
        words.show(typeof place === 'number' ? place : null)];
      if (row !== null) {
        const [grid] = image.by_step[row];
        paint(grid, part.by_step[row], row);
        return `${told(steps[row])}: ${causes([...grid.flat(), ...part.by_step[row]], names, signed)}`;
      }
      sums();
      if (patch) paintWritten(image.by_step.map(([grid]) => grid[patch.row][patch.column]));
      else if (typeof place === 'number' && place < given) paintWritten(part.by_step.map((scores) => scores[place]));
      return sentences.join('');
    },
    columns: ['written', 'of', 'score'],
    rows: () => steps.flatMap(({ target }, row) =>
      [...image.by_step[row][0].flat(), ...part.by_step[row].slice(0, given + row)]
        .map((score, i) => [visible(target), names[i], titled(score, signed)])),
  };
}
