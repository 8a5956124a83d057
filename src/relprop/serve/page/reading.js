// What is seen, in words: whose number it is, what kind of number, and how to read the colours.

import { valueShown } from './account.js';
import { isWritten } from './generation_map.js';
import { percent, plural, visible } from './words.js';

const UNITS = { images: 'patches', videos: 'patches', sounds: 'stretches', series: 'stretches', rows: 'columns', pairs: 'patches and words' };

const unitsOf = ({ kind, input }) => UNITS[kind] ?? (kind === 'graphs' ? (input === 'picture' ? 'regions' : 'atoms') : 'words');

const LONGEST = 80; // characters of a written text in a heading

/** What a model wrote, or ''. */
export function writtenBy({ parts, steps }) {
  const part = steps?.length ? parts?.find((one) => one.kind === 'text' && (one.written_from ?? null) !== null) : null;
  const written = part ? [...part.text.at(-1)].slice(part.written_from).join('').trim() : ''; // offsets are of whole characters
  return [...written].length > LONGEST ? `${[...written].slice(0, LONGEST).join('')}…` : written;
}

/** The heading: the number that is explained, or what was written. */
export function heading(about, first) {
  const written = writtenBy(first);
  return written ? `${visible(about.name)} wrote: ${visible(written)}` : `${visible(first.target)} = ${valueShown(first.value)}`;
}

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
  const whose = `The model ${visible(about.name)} gives ${visible(target)} the ${quantity || 'number'} ${valueShown(value)}`;
  const sure = probability === null || probability === undefined ? '' : ` with probability ${percent(probability)}`;
  return prediction ? `${whose}; it predicts ${visible(prediction)}${sure}.` : `${whose}.`;
}

function ofWritten(about, { value, quantity, steps, parts: [part] }) {
  const what = part.merged ? 'what is underlined' : `the ${plural(steps.length, 'underlined token')}`;
  return `The model ${visible(about.name)} wrote ${what}; the sum of the ${quantity || 'number'}s of its tokens is `
    + `${valueShown(value)}. Point at an underlined ${part.merged ? 'piece' : 'token'} to see what it owes to those before it.`;
}
