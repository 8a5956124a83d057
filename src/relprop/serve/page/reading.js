// What is seen, in words: whose number it is, what kind of number, and how to read the colours.

import { isWritten } from './generation_map.js';
import { percent, plural, unsigned, visible } from './words.js';

const UNITS = { images: 'patches', videos: 'patches', sounds: 'stretches', series: 'stretches', rows: 'columns', pairs: 'patches and words' };

const unitsOf = ({ kind, input }) => UNITS[kind] ?? (kind === 'graphs' ? (input === 'picture' ? 'regions' : 'atoms') : 'words');

/** Sentences above the maps; `signs`: whether each method's scores have a side. */
export function reading(about, first, signs) {
  const units = unitsOf(about);
  const sides = `Red ${units} raise this number and blue ones lower it, the more the stronger the colour.`;
  const amounts = `${signs.includes(true) ? 'Maps in another colour say' : 'The colour says'} only how much a method `
    + `looks at ${units}, neither for nor against.`;
  const told = [isWritten(first) ? ofWritten(about, first) : ofTarget(about, first)];
  return [...told, ...(signs.includes(true) ? [sides] : []), ...(signs.includes(false) ? [amounts] : [])].join(' ');
}

function ofTarget(about, { target, value, quantity, prediction, probability }) {
  const whose = `The model ${visible(about.name)} gives ${visible(target)} the ${quantity || 'number'} ${unsigned(value)}`;
  const sure = probability === null || probability === undefined ? '' : ` with probability ${percent(probability)}`;
  return prediction ? `${whose}; it predicts ${visible(prediction)}${sure}.` : `${whose}.`;
}

function ofWritten(about, { value, quantity, steps }) {
  return `The model ${visible(about.name)} wrote the ${plural(steps.length, 'underlined token')}; the sum of their `
    + `${quantity || 'number'}s is ${unsigned(value)}. Point at one of them to see what it owes to those before it.`;
}
