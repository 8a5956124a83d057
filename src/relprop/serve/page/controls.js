// The form: what can be chosen for a model, what has been, and the same put back from a link.

import { byId, make } from './dom.js';
import { fitOptions, readOptions, writeOptions } from './option_fields.js';
import { forLink } from './picture.js';
import { visible } from './words.js';

const MOST_WRITTEN = 200; // tokens, by the service
export const EVERY = 'every'; // of several labels of one text
const BESIDE = ['gradient_x_input', 'rollout']; // chosen beside the default until the reader chooses
// By what a model reads: the names of its fields.
const FIELDS = {
  texts: { text: 'Text', pair: 'Add a second text' },
  language: { text: 'Beginning of a text, or messages as JSON' },
  questions: { text: 'Question', pair: 'Context' },
  series: { text: 'Series (CSV with a header, or JSON)' },
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
// Where a class, a label or a token is read, by what the service calls it: the field's name and a hint.
const PLACES = {
  word: { name: 'At the word', hint: 'every one; or its text, or characters 16:22' },
  mask: { name: 'At the mask', hint: 'every one; or its number, from 0' },
  object: { name: 'At the object', hint: 'every one; or its number, or a point 120:80' },
  region: { name: 'At the place', hint: 'everywhere; or a point 120:80, or a box 10:20:90:60' },
};

const needsPair = ({ kind, paired }) => paired || PAIRED.includes(kind);

export function fillModels(names) {
  byId('model').replaceChildren(...names.map((name) => make('option', { value: name }, visible(name))));
}

export function fillMethods(methods) {
  known = new Map(methods.map((method) => [method.name, method]));
  const families = [...new Set(methods.map((method) => method.family))];
  byId('methods').replaceChildren(...families.map((family) =>
    make('fieldset', {}, make('legend', {}, family),
      ...methods.filter((method) => method.family === family).map(methodBox))));
}

const methodBox = ({ name, summary, pairs_only: pairs }) =>
  make('label', {}, make('input', { type: 'checkbox', name: 'method', value: name, 'data-pairs': pairs }), name,
    make('span', { class: 'note' }, summary));

const boxes = () => [...byId('methods').querySelectorAll('input')];

let known = new Map(); // the methods by name, as the service tells them
let order = []; // of the chosen methods: as they were chosen
let preset = []; // those that the page chose itself

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

let inMotion = false; // whether the model reads videos, of which a link holds the whole file or nothing

/** The fields that fit a model. */
export function fit(about) {
  const { kind, input } = about;
  const reads = about.paired ? FIELDS.two_texts : FIELDS[kind] ?? {};
  const prompted = input === 'picture' && about.writes; // its decoder may go on from a text
  byId('text-field').hidden = ['picture', 'sound'].includes(input) && !prompted;
  inMotion = kind === 'videos';
  byId('sound-field').hidden = input !== 'sound';
  byId('picture-field').hidden = !seesPictures(about);
  byId('units-field').hidden = !readsTexts(about);
  byId('generate-field').hidden = !about.writes;
  byId('text-name').textContent = prompted ? 'Text to go on from, or nothing' : reads.text ?? '';
  byId('pair-name').textContent = reads.pair ?? '';
  byId('pair-fold').hidden = !reads.pair || (kind === 'pairs' && about.writes); // it writes of one text at a time
  byId('pair-fold').open = needsPair(about) || Boolean(byId('pair').value);
  fitTargets(about);
  fitPlaces(about);
  fitMethods(about);
}

/** The model's default, until the reader chooses. Methods of pairs are for models that compare two texts. */
function fitMethods({ kind, default_method: own }) {
  const pairs = kind === 'two_texts';
  if (`${order}` === `${preset}`) choose(preset = [own, ...BESIDE]);
  for (const box of boxes().filter((one) => 'pairs' in one.dataset)) {
    box.closest('fieldset').hidden = !pairs;
    box.checked = box.checked && pairs;
  }
  noteMethods();
}

const TYPED = { language: 'Next token', questions: 'Answer', document_questions: 'Answer', masks: 'Token',
  choices: 'Choice', two_texts: 'Similarity', sounds: 'Word', pairs: 'Text' };
const HINTS = { two_texts: 'cosine, dot, maxsim' };

/** Classes are chosen from a list; tokens, answers and the like are typed. A model of one number has no choice. */
function fitTargets({ labels, kind, several, writes, at }) {
  const typed = !labels.length;
  const forecast = typed && kind === 'series';
  const asked = writes ? 'Next token' : forecast ? 'Step ahead, or number' : TYPED[kind] ?? 'Class';
  byId('target-field').hidden = typed ? at === 'region' : labels.length < 2; // a depth is one number
  byId('target-name').textContent = typed ? asked : 'Class';
  byId('against-field').hidden = typed && !writes && ['two_texts', 'sounds'].includes(kind); // these have no difference
  byId('against-name').textContent = forecast ? 'Channel' : 'Against';
  const first = { target: (typed && HINTS[kind]) || 'predicted', against: 'nothing' };
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

/** Labels of words, objects and regions are read somewhere. */
function fitPlaces({ at }) {
  byId('place-field').hidden = !at;
  byId('place-name').textContent = PLACES[at]?.name ?? '';
  byId('place').placeholder = PLACES[at]?.hint ?? '';
  byId('place').value = '';
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
    against: byId('against-field').hidden ? '' : field('against').value,
    place: byId('place-field').hidden ? '' : byId('place').value.trim(),
    units: byId('units-field').hidden ? '' : units,
    special: byId('units-field').hidden || !byId('special').checked ? '' : 'drop',
    generate: byId('generate-field').hidden ? '' : byId('generate').value.trim(),
    methods: order,
    options: readOptions(),
    picture: pictured && picture && (!inMotion || picture.small) ? forLink(picture) : '',
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
  byId('place').value = state.place;
  differ();
}

/** What the service gets to explain, or null where there is nothing yet. */
export function instanceOf(about, state, picture, sound) {
  const { kind, input } = about;
  if (needsPair(about) && !state.pair.trim()) return null;
  const choices = state.pair.split('\n').filter((one) => one.trim());
  if (kind === 'choices' && choices.length < 2) return null;
  if (input === 'sound') return sound && { b64: sound.sent };
  if (input === 'table') return state.text.trim() ? jsonObject(state.text) ?? { csv: state.text } : null;
  if (input === 'picture') return picture && pictureOf(kind, state, picture);
  if (input === 'document') return state.text.trim() ? pageOf(kind, state, picture) : null;
  if (!state.text.trim() || (input === 'both' && !picture)) return null;
  if (input === 'both') return { image: { b64: picture.sent }, text: state.pair ? [state.text, state.pair] : state.text };
  if (kind === 'questions') return { question: state.text, context: state.pair };
  if (kind === 'choices') return { text: state.text, choices };
  const listed = jsonList(state.text);
  if (listed && kind === 'language') return { messages: listed };
  if (listed && ['texts', 'masks'].includes(kind)) return { words: listed };
  return state.pair ? { text: state.text, pair: state.pair } : state.text;
}

/** A video goes as its file, or not at all: a smaller copy would be one frame of it. */
function pictureOf(kind, { text }, picture) {
  if (kind === 'videos' && !picture.whole) {
    throw new Error('This video is too large: at most 4 MB, and frames of 4 million pixels.');
  }
  const own = { b64: kind === 'graphs' ? picture.light : picture.sent };
  return text.trim() ? { image: own, text } : own;
}

const pageOf = (kind, state, picture) => ({
  csv: state.text,
  ...(picture && { image: { b64: picture.sent } }),
  ...(kind === 'document_questions' && { question: state.pair }),
});

/** Messages of a chat or words, written as a list of JSON; null where it is a plain text. */
const jsonList = (text) => (/^\s*\[\s*["{]/u.test(text) ? parsed(text) : null);

/** A series with what stands beside it, or a row, as the service takes them; null where it is a table. */
const jsonObject = (text) => (/^\s*\{/u.test(text) ? parsed(text) : null);

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

const TEXTS = ['texts', 'language', 'questions', 'masks', 'two_texts', 'choices', 'pairs', 'documents',
  'document_questions'];

export const readsTexts = ({ kind }) => TEXTS.includes(kind);

/** The service itself draws the words of a page over its picture, and the frames of a video. */
export const paintsPictures = ({ kind, input }) => ['picture', 'both'].includes(input) && kind !== 'videos';

export const seesPictures = ({ input }) => ['picture', 'both', 'document'].includes(input);

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

export function missing(about, state) {
  const half = needsPair(about) && state.text.trim();
  if (half && about.kind === 'choices') return 'Type two choices or more, one per line.';
  return half ? `Fill the second field too: ${byId('pair-name').textContent.toLowerCase()}.`
    : MISSING[about.input] ?? 'Type something to explain.';
}
