// Scores over a picture: its grey under their colours, on a canvas.

import { make } from './dom.js';
import { boundOf, filmOf, painted } from './palette.js';
import { plane } from './pointing.js';
import { number, titled } from './words.js';

const LONGEST = 448; // pixels of the canvas's longer side
const PIXELATED = 4; // a small picture enlarged as often shows its pixels
const TOLD = 20; // strongest places in the table

export function imageMap(explanation, signed, pointed, bitmap) {
  const { scores, frame, size } = explanation;
  const [rows, columns] = [scores.length, scores[0].length];
  const canvas = make('canvas', {});
  const spot = make('span', { class: 'spot', hidden: true });
  const element = make('div', {
    class: 'picture', tabindex: 0, role: 'application', 'aria-roledescription': 'heat map',
    'aria-label': `${described(explanation, signed)}. Arrow keys tell the scores.`,
  }, canvas, spot);
  paint(canvas, bitmap, explanation, signed);
  // A step of an arrow key is one patch; the picture may reach beyond what the model sees.
  const [left, top, right, bottom] = frame.map((edge, i) => edge / size[i % 2]);
  plane(element, { x: columns / (right - left), y: rows / (bottom - top) }, pointed);
  /** The patch at a place of the picture; null where the model does not see. */
  const cellAt = (place) => {
    const [column, row] = [(place.x - left) / (right - left) * columns, (place.y - top) / (bottom - top) * rows]
      .map(Math.floor);
    return column < 0 || row < 0 || column >= columns || row >= rows ? null : { row, column };
  };
  return {
    element,
    cellAt,
    /** Other scores of the same patches; full colour is `bound`. */
    repaint: (others, bound) => paint(canvas, bitmap, { ...explanation, scores: others }, signed, bound),
    show(place) {
      const cell = place && cellAt(place);
      spot.hidden = !cell;
      if (!place) return '';
      if (!cell) return 'not seen by the model';
      const { row, column } = cell;
      const edges = { left: left + (right - left) * column / columns, width: (right - left) / columns,
        top: top + (bottom - top) * row / rows, height: (bottom - top) / rows };
      for (const [name, share] of Object.entries(edges)) spot.style.setProperty(name, `${100 * share}%`);
      return `row ${row + 1}, column ${column + 1}: ${titled(scores[row][column], signed)}`;
    },
    columns: ['row, column', 'score'],
    rows: () => strongest(scores).map(([row, column, score]) => [`${row + 1}, ${column + 1}`, titled(score, signed)])
      .concat(explanation.rest ? [['class token and the like', number(explanation.rest)]] : []),
  };
}

/** The picture alone, for comparison. */
export function plainPicture(bitmap, name) {
  const canvas = make('canvas', { role: 'img', 'aria-label': `The picture ${name}` });
  pictured(canvas, bitmap);
  return make('div', { class: 'picture' }, canvas);
}

function pictured(canvas, bitmap) {
  const scale = LONGEST / Math.max(bitmap.width, bitmap.height);
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  const pen = canvas.getContext('2d', { willReadFrequently: true });
  pen.imageSmoothingEnabled = scale < PIXELATED;
  pen.imageSmoothingQuality = 'high';
  pen.fillStyle = 'black'; // what is transparent is black, as the library reads it
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return pen;
}

function paint(canvas, bitmap, explanation, signed, bound = boundOf(explanation.scores.flat())) {
  const { scores, frame, size } = explanation;
  const pen = pictured(canvas, bitmap);
  const image = pen.getImageData(0, 0, canvas.width, canvas.height);
  const film = filmOf(signed);
  const across = weights(canvas.width, scores[0].length, frame[0] / size[0], frame[2] / size[0]);
  const down = weights(canvas.height, scores.length, frame[1] / size[1], frame[3] / size[1]);
  for (let y = 0, at = 0; y < canvas.height; y += 1) {
    for (let x = 0; x < canvas.width; x += 1, at += 4) {
      const [red, green, blue] = image.data.subarray(at, at + 3);
      const grey = 0.299 * red + 0.587 * green + 0.114 * blue;
      image.data.set(painted(grey, between(scores, down[y], across[x]) / bound, film), at);
    }
  }
  pen.putImageData(image, 0, 0);
  for (const { box } of [explanation, ...(explanation.steps ?? [])]) if (box) outline(pen, box, size);
}

/** Where the explained number is read, white within black. */
function outline(pen, box, [width, height]) {
  const [left, top, right, bottom] = box.map((edge, i) => edge / (i % 2 ? height : width)
    * (i % 2 ? pen.canvas.height : pen.canvas.width));
  for (const [style, line] of [['black', 5], ['white', 2]]) {
    Object.assign(pen, { strokeStyle: style, lineWidth: line });
    pen.strokeRect(left, top, right - left, bottom - top);
  }
}

/** For each pixel the two scores it lies between and how far; null where the model does not see. */
function weights(pixels, count, low, high) {
  return Array.from({ length: pixels }, (_, pixel) => {
    const place = ((pixel + 0.5) / pixels - low) / (high - low) * count;
    if (place < 0 || place > count) return null;
    const centre = Math.min(count - 1, Math.max(0, place - 0.5));
    const first = Math.floor(centre);
    return [first, Math.min(first + 1, count - 1), centre - first];
  });
}

function between(scores, down, across) {
  if (!down || !across) return 0;
  const [top, bottom, low] = down;
  const [left, right, far] = across;
  const upper = scores[top][left] + (scores[top][right] - scores[top][left]) * far;
  const lower = scores[bottom][left] + (scores[bottom][right] - scores[bottom][left]) * far;
  return upper + (lower - upper) * low;
}

function strongest(scores) {
  const all = scores.flatMap((row, i) => row.map((score, j) => [i, j, score]));
  return all.sort((one, other) => Math.abs(other[2]) - Math.abs(one[2])).slice(0, TOLD);
}

/** Where the map is strongest, for those who cannot see it. */
function described({ method, target, scores }, signed) {
  const ends = scores.map((row) => [Math.max(...row), Math.min(...row)]);
  const [most, least] = [Math.max(...ends.map(([high]) => high)), Math.min(...ends.map(([, low]) => low))];
  const parts = [`${method}, ${target}`];
  if (most > 0) parts.push(`${signed ? 'supported most' : 'strongest'} ${where(scores, most)}`);
  if (signed && least < 0) parts.push(`opposed most ${where(scores, least)}`);
  return parts.length > 1 ? parts.join('; ') : `${parts[0]}; all scores are 0`;
}

function where(scores, score) {
  const row = scores.findIndex((line) => line.includes(score));
  const column = scores[row].indexOf(score);
  const down = ['top', 'middle', 'bottom'][Math.floor((row + 0.5) / scores.length * 3)];
  const across = ['left', 'centre', 'right'][Math.floor((column + 0.5) / scores[0].length * 3)];
  return `at the ${down} ${across}`;
}
