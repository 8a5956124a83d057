// The form: what can be chosen for a model, what has been, and the same put back from a link.

import { byId, make } from './dom.js';
import { fitOptions, readOptions, writeOptions } from './option_fields.js';
import { forLink } from './picture.js';
import { visible } from './words.js';

const MOST_WRITTEN = 200; // tokens, by the service
export const EVERY = 'every'; // of several labels of one text
const FIRST = ['lrp_conservative', 'gradient_x_input', 'rollout']; // chosen until the reader chooses
// By what a model reads: the names of its fields.
const FIELDS = {
  texts: { text: 'Text', pair: 'Add a second text' },
  language: { text: 'Beginning of a text, or messages as JSON' },
  questions: { text: 'Question', pair: 'Context' },
  series: { text: 'Series (CSV with a header)' },
  rows: { text: 'Row (CSV: names, and one line of values)' },
  pairs: { text: 'Text beside the picture', pair: 'Compare with another text' },
  documents: { text: 'Words with boxes (CSV: word,left,top,right,bottom; 0 to 1000)' },
  document_questions: { text: 'Words with boxes (CSV: word,left,top,right,bottom; 0 to 1000)', pair: 'Question' },
  masks: { text: 'Text with a mask' },
  two_texts: { text: 'First text', pair: 'Second text' },
  choices: { text: 'Text', pair: 'Choices, one per line' },
  graphs: { text: 'Molecule (SMILES)' },
};

const PAIRED = ['questions', 'two_texts', 'choices', 'document_questions']; // that need their second field

export function fillModels(names) {
  byId('model').replaceChildren(...names.map((name) => make('option', { value: name }, visible(name))));
}

export function fillMethods(methods) {
  known = new Map(methods.map((method) => [method.name, method]));
  const families = [...new Set(methods.map((method) => method.family))];
  byId('methods').replaceChildren(...families.map((family) =>
    make('fieldset', {}, make('legend', {}, family),
      ...methods.filter((method) => method.family === family).map(methodBox))));
  choose(FIRST);
}

const methodBox = ({ name, summary, pairs_only: pairs }) =>
  make('label', {}, make('input', { type: 'checkbox', name: 'method', value: name, 'data-pairs': pairs }), name,
    make('span', { class: 'note' }, summary));

const boxes = () => [...byId('methods').querySelectorAll('input')];

let known = new Map(); // the methods by name, as the service tells them
let order = []; // of the chosen methods: as they were chosen

function choose(names) {
  for (const box of boxes()) box.checked = names.includes(box.value);
  order = names;
  noteMethods();
}

export function noteMethods() {
  const checked = boxes().filter((box) => box.checked).map((box) => box.value);
  order = [...new Set([...order, ...checked])].filter((name) => checked.includes(name));
  byId('methods-note').textContent = order.join(', ') || 'none chosen';
  fitOptions(order.map((name) => known.get(name)));
}

/** The fields that fit a model. */
export function fit(about) {
  const { kind, input } = about;
  const reads = FIELDS[kind] ?? {};
  byId('text-field').hidden = ['picture', 'sound'].includes(input);
  byId('sound-field').hidden = input !== 'sound';
  byId('picture-field').hidden = !seesPictures(about);
  byId('units-field').hidden = !readsTexts(about);
  byId('generate-field').hidden = !about.writes;
  byId('text-name').textContent = reads.text ?? '';
  byId('pair-name').textContent = reads.pair ?? '';
  byId('pair-fold').hidden = !reads.pair || (kind === 'pairs' && about.writes); // it writes of one text at a time
  byId('pair-fold').open = PAIRED.includes(kind) || Boolean(byId('pair').value);
  byId('target-field').hidden = false;
  fitTargets(about);
  fitMethods(kind === 'two_texts');
}

/** Methods of pairs are for models that compare two texts. */
function fitMethods(pairs) {
  for (const box of boxes().filter((one) => 'pairs' in one.dataset)) {
    box.closest('fieldset').hidden = !pairs;
    box.checked = box.checked && pairs;
  }
  noteMethods();
}

const TYPED = { language: 'Next token', questions: 'Answer', document_questions: 'Answer', masks: 'Token',
  choices: 'Choice', two_texts: 'Similarity', sounds: 'Word' };

/** Classes are chosen from a list; tokens, answers and the like are typed. */
function fitTargets({ labels, kind, several }) {
  const typed = !labels.length;
  const forecast = typed && kind === 'series';
  const what = TYPED[typed ? kind : ''] ?? 'Class';
  byId('target-name').textContent = forecast ? 'Step ahead' : what;
  byId('against-name').textContent = forecast ? 'Channel' : 'Against';
  const first = { target: 'predicted', against: 'nothing' };
  for (const [id, name] of Object.entries(first)) {
    const options = labels.map((label, i) => make('option', { value: i }, visible(label)));
    const every = several && id === 'target' ? [make('option', { value: EVERY }, 'every label')] : [];
    byId(id).replaceChildren(make('option', { value: '' }, name), ...every, ...options);
    byId(id).hidden = typed;
    byId(`${id}-text`).hidden = !typed;
    byId(`${id}-text`).placeholder = name;
    byId(`${id}-text`).value = '';
  }
}

const field = (id) => byId(byId(id).hidden ? `${id}-text` : id);

export function setTarget(value) {
  byId('generate').value = '';
  field('target').value = value;
  if (field('against').value === value) field('against').value = '';
  differ();
}

/** A class is not held against itself. */
export function differ() {
  for (const [id, other] of [['target', 'against'], ['against', 'target']]) {
    const taken = field(other).value;
    for (const option of byId(id).options) option.disabled = option.value !== '' && option.value === taken;
  }
}

export function read(picture) {
  const [pictured, wordless] = [!byId('picture-field').hidden, byId('text-field').hidden];
  const units = byId('form').elements.namedItem('units').value;
  return {
    model: byId('model').value,
    text: wordless ? '' : byId('text').value,
    pair: wordless || byId('pair-fold').hidden ? '' : byId('pair').value,
    target: field('target').value,
    against: field('against').value,
    units: byId('units-field').hidden ? '' : units,
    special: byId('units-field').hidden || !byId('special').checked ? '' : 'drop',
    generate: byId('generate-field').hidden ? '' : byId('generate').value.trim(),
    methods: order,
    options: readOptions(),
    picture: pictured && picture ? forLink(picture) : '',
    name: pictured && picture ? picture.name : '',
  };
}

/** The model and the texts of a state; the rest once the model is known. */
export function write(state) {
  const known = [...byId('model').options].some((option) => option.value === state.model);
  if (known) byId('model').value = state.model;
  byId('text').value = state.text;
  byId('pair').value = state.pair;
  byId('form').elements.namedItem('units').value = state.units === 'pieces' ? 'pieces' : '';
  byId('special').checked = state.special === 'drop';
  byId('generate').value = state.generate;
  writeOptions(state.options);
  if (state.methods.length) choose(state.methods);
  else noteMethods();
  return known || !state.model;
}

export function writeTargets(state) {
  for (const id of ['target', 'against']) {
    field(id).value = state[id];
    if (field(id).value !== state[id]) field(id).value = '';
  }
  differ();
}

/** What the service gets to explain, or null where there is nothing yet. */
export function instanceOf({ kind, input }, state, picture, sound) {
  if (input === 'sound') return sound && { b64: sound.sent };
  if (input === 'table') return state.text.trim() ? { csv: state.text } : null;
  if (input === 'picture') return picture && { b64: kind === 'images' ? picture.sent : picture.light };
  if (input === 'document') return state.text.trim() ? pageOf(kind, state, picture) : null;
  if (!state.text.trim() || (input === 'both' && !picture)) return null;
  if (input === 'both') return { image: { b64: picture.sent }, text: state.pair ? [state.text, state.pair] : state.text };
  if (kind === 'questions') return { question: state.text, context: state.pair };
  if (kind === 'choices') return { text: state.text, choices: state.pair.split('\n').filter((one) => one.trim()) };
  const listed = jsonList(state.text);
  if (listed && kind === 'language') return { messages: listed };
  if (listed && ['texts', 'masks'].includes(kind)) return { words: listed };
  return state.pair ? { text: state.text, pair: state.pair } : state.text;
}

const pageOf = (kind, state, picture) => ({
  csv: state.text,
  ...(picture && { image: { b64: picture.sent } }),
  ...(kind === 'document_questions' && { question: state.pair }),
});

/** Messages of a chat or words, written as a list of JSON; null where it is a plain text. */
function jsonList(text) {
  try {
    const found = /^\s*\[\s*["{]/u.test(text) ? JSON.parse(text) : null;
    return Array.isArray(found) ? found : null;
  } catch {
    return null;
  }
}

const TEXTS = ['texts', 'language', 'questions', 'masks', 'two_texts', 'choices', 'pairs', 'documents',
  'document_questions'];

export const readsTexts = ({ kind }) => TEXTS.includes(kind);

/** The service itself draws the words of a page over its picture. */
export const paintsPictures = ({ input }) => ['picture', 'both'].includes(input);

export const seesPictures = (about) => paintsPictures(about) || about.input === 'document';

/** How many tokens are written and explained, or null for a target; the field's message gives the reason where it cannot be used. */
export function written(state) {
  const count = state.generate === '' ? 0 : Number(state.generate);
  const fits = Number.isInteger(count) && count >= 0 && count <= MOST_WRITTEN;
  byId('generate-note').textContent = fits ? '' : `A whole number up to ${MOST_WRITTEN}, please.`;
  byId('target-field').hidden = fits && count > 0;
  return fits && count ? count : null;
}

export const inWords = (about, state) => readsTexts(about) && state.units !== 'pieces';

const MISSING = {
  picture: 'Drop or choose a picture, or click one of the samples.',
  sound: 'Choose a file of sound, or click one of the samples.',
  table: 'Paste a table: a line of names, and lines of numbers below.',
  document: 'Paste a table of words with their boxes, and drop the page\u2019s picture where the model reads it.',
  both: 'Drop or choose a picture, and type the text that goes with it.',
};

export const missing = ({ input }) => MISSING[input] ?? 'Type something to explain.';
