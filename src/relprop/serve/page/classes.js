// The likeliest classes, tokens or answer; one is chosen by pressing it.

import { EVERY } from './controls.js';
import { byId, make } from './dom.js';
import { percent, visible } from './words.js';

/** `choose` hears a class's number, or a token's text. */
export function showClasses(prediction, about, state, choose) {
  const found = prediction.probabilities ?? single(prediction);
  const values = found.map(({ label }) => valueOf(label, about));
  const explained = state.target === '' ? values[0] : state.target;
  byId('classes').replaceChildren(...found.map(({ label, probability }, i) => {
    const sure = probability === null ? [] : [make('span', { class: 'soft' }, percent(probability))];
    const pressed = `${values[i] === explained}`;
    const button = make('button', { type: 'button', 'aria-pressed': pressed, click: () => choose(values[i]) },
      make('bdi', {}, visible(label)), ...sure);
    button.style.setProperty('--share', `${100 * (probability ?? 0)}%`);
    return make('li', {}, button);
  }));
}

/** An answer stands alone; several entities or masks are no class to choose, and a number has none. */
const single = ({ prediction, probability }) =>
  (prediction && probability !== null ? [{ label: prediction, probability }] : []);

/** As the form has it: a class by its number, a token or an answer as it is written. */
export function valueOf(label, { labels, kind }) {
  if (labels.includes(label)) return `${labels.indexOf(label)}`;
  return ['language', 'masks', 'pairs'].includes(kind) ? unquoted(label) : label;
}

const ESCAPES = { n: '\n', r: '\r', t: '\t' };

/** A token as Python quotes it, without the quotes. */
function unquoted(label) {
  const inner = /^(['"])([^]*)\1$/u.exec(label)?.[2] ?? label;
  return inner.replace(/\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|([^]))/gu,
    (_, two, four, eight, one) => (one ? ESCAPES[one] ?? one : character(two ?? four ?? eight)));
}

const character = (code) => String.fromCodePoint(parseInt(code, 16));

/** The target as the service takes it: nothing for the predicted class, a pair for a difference, or all labels. */
export function targetOf(state, prediction, about) {
  if (state.target === EVERY) return { labels: about.labels.map((_, i) => i) };
  const target = about.at && (state.place || about.at !== 'mask') ? placedTarget(state, about)
    : singleTarget(state, prediction, about);
  return target === null ? {} : { target };
}

/** A label, class or token at a word, object, region or mask; the word alone for its likeliest label. */
function placedTarget({ target, against, place }, { at, labels }) {
  const typed = (value) => (value === '' ? null : labels.length ? Number(value) : value);
  if (!place && against !== '') throw new Error(`Two classes differ at one ${at}: say at which.`);
  if (!place) return typed(target);
  const where = placeOf(place, at);
  if (at === 'region' && target === '' && against === '') return where;
  return [where, against === '' ? typed(target) : [typed(target), typed(against)]];
}

const NUMBERED = { mask: [1], object: [1, 2], region: [2, 4], word: [2] }; // how many numbers may name each

/** Numbers with colons between them, or a word of the text. */
function placeOf(text, at) {
  const numbers = /^[\d.]+(?::[\d.]+)*$/u.test(text) ? text.split(':').map(Number) : [];
  if (NUMBERED[at].includes(numbers.length) && !numbers.some(Number.isNaN)) return numbers.length > 1 ? numbers : numbers[0];
  if (at === 'word') return text;
  throw new Error(`"${visible(text)}" names no ${at}: ${byId('place').placeholder.split('; or ')[1]}.`);
}

/** Classes without names are typed by their number; a token or an answer may be a number itself. */
const isNumber = (value, { kind, writes }) =>
  !writes && ['texts', 'images', 'videos', 'rows', 'graphs'].includes(kind) && /^\d+$/u.test(value);

function singleTarget(state, prediction, about) {
  const typed = (value) => (about.labels.length || isNumber(value, about) ? Number(value) : value);
  if (state.against === '') return state.target === '' ? null : typed(state.target);
  const target = state.target === '' ? valueOf(prediction.prediction, about) : state.target;
  if (target === state.against) throw new Error('A class is not held against itself: choose another.');
  return [typed(target), typed(state.against)];
}
