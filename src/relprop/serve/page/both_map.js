// A picture and a text of one explanation: the map over the picture, and the words below it.

import { make } from './dom.js';
import { imageMap } from './image_map.js';
import { textMap } from './text_map.js';

/** The parts of an explanation: its picture, and its texts as one row, each a segment of its own. */
export function partsOf({ method, parts }) {
  const image = parts.find((part) => part.kind === 'image');
  const texts = parts.filter((part) => part.kind === 'text');
  const units = texts.flatMap((part, i) => part.units.map((unit) => ({ ...unit, segment: unit.segment + i })));
  return { image, text: { method, units, scores: texts.flatMap((part) => part.scores) } };
}

export function bothMap(explanation, signed, pointed, bitmap) {
  const { image, text } = partsOf(explanation);
  const [over, words] = [imageMap({ ...explanation, ...image }, signed, pointed, bitmap), textMap(text, signed, pointed)];
  return {
    element: make('div', {}, over.element, words.element),
    show(place) { // a unit of the text by its number, a place on the picture by its coordinates
      const ofText = typeof place === 'number';
      const told = [over.show(ofText ? null : place), words.show(ofText ? place : null)];
      return told.join('');
    },
    columns: ['unit', 'score'],
    rows: () => [...over.rows().map(([where, score]) => [`patch ${where}`, score]), ...words.rows()],
  };
}
