// The page: reads the form, asks the service for one heat map per method, and shows what comes.

import { showClasses, targetOf } from './classes.js';
import * as controls from './controls.js';
import { byId } from './dom.js';
import { headMap } from './head_map.js';
import { download, share } from './keep.js';
import { legends } from './legend.js';
import { linked, restored } from './link.js';
import { optionsFor } from './option_fields.js';
import * as panels from './panels.js';
import { fromLink, readPicture } from './picture.js';
import { listenToPictures, preview } from './picture_field.js';
import { problem } from './problem.js';
import { heading, reading, writtenBy } from './reading.js';
import { firstText, showSamples } from './samples.js';
import { addressOf, file, get, post } from './service.js';
import { singles } from './several_maps.js';
import { listenToSounds, readSound } from './sound_field.js';
import { waterfalls } from './waterfall.js';
import { plural, visible } from './words.js';

const LOADING = 'is being loaded';
const PATIENCE = 1000; // milliseconds until a model that is being loaded is asked for again

let methods = new Map(); // by name, as the service tells them
let about = null; // the model in use
let picture = null;
let sound = null;
let running = new AbortController(); // what is being asked; a newer question ends it
let answers = { question: '', found: new Map() }; // of the last question, by method, target and units
let explained = null; // what is on show, as the service takes it

const say = (text) => { byId('status').textContent = text; };

function complain(error, again) {
  if (error instanceof TypeError) console.error(error); // the page's own mistake
  say('');
  byId('errors').replaceChildren(problem(error, again));
}

/** Ends what is being asked and begins anew. */
function anew() {
  running.abort();
  running = new AbortController();
  byId('errors').replaceChildren();
  byId('progress').hidden = byId('stop').hidden = true;
  return running.signal;
}

/** Does some work, of which a newer question makes both result and error stale. */
async function attempt(work, again) {
  const signal = anew();
  try {
    await work(signal);
  } catch (error) {
    if (!signal.aborted) {
      byId('found').hidden = true;
      complain(error, again);
    }
  }
  if (!signal.aborted) byId('progress').hidden = byId('stop').hidden = true;
}

const start = () => attempt(async (signal) => {
  const [{ models }, told] = await Promise.all([get('/v1/models', signal), get('/v1/methods', signal)]);
  methods = new Map(told.methods.map((method) => [method.name, method]));
  controls.fillModels(models);
  controls.fillMethods(told.methods);
  await restore();
}, start);

/** As the address says. */
async function restore() {
  const state = restored();
  let trouble = controls.write(state) ? null : new Error(`This service has no model "${visible(state.model)}".`);
  try {
    picture = state.picture ? await fromLink(state.picture, state.name) : null;
  } catch (error) {
    [picture, trouble] = [null, error];
  }
  preview(picture);
  await useModel(state);
  if (trouble) complain(trouble);
}

const useModel = (state = null) => attempt(async (signal) => {
  about = null;
  panels.clear();
  byId('found').hidden = true;
  const told = await loaded(byId('model').value, signal);
  controls.fit(told);
  if (!state?.text) firstText(told);
  showSamples(told, { text: useText, picture: usePicture, sound: useSound });
  if (state) controls.writeTargets(state);
  about = told;
  byId('heads').hidden = !controls.readsTexts(about) || about.kind === 'pairs';
  byId('head-map').replaceChildren(...headMap(about.heads));
  await explain();
}, () => useModel(state));

async function loaded(name, signal) {
  for (;;) {
    const told = await get(addressOf(name), signal);
    if (told.ready) return told;
    if (told.reason !== LOADING) throw new Error(`The model "${visible(name)}" ${visible(told.reason)}.`);
    say(`The model "${visible(name)}" is being loaded…`);
    await new Promise((resolve) => { setTimeout(resolve, PATIENCE); });
    signal.throwIfAborted();
  }
}

/** Nothing until the model is known: a choice made meanwhile does not end its loading, and is read then. */
const explain = () => (about ? explainNow() : undefined);

const explainNow = () => attempt(async (signal) => {
  const state = controls.read(picture);
  const instance = controls.instanceOf(about, state, picture, sound);
  history.replaceState(null, '', linked(state));
  byId('link-field').hidden = true; // it held the link to what was shown before
  byId('found').hidden = !instance || !state.methods.length;
  if (byId('found').hidden) {
    say(instance ? 'Choose at least one method.' : controls.missing(about, state));
    return;
  }
  say('Explaining…');
  byId('stop').hidden = false;
  await show(state, instance, signal);
}, explain);

async function show(state, instance, signal) {
  const question = JSON.stringify([about.name, instance]);
  if (answers.question !== question) answers = { question, found: new Map() };
  const bitmap = controls.paintsPictures(about) ? picture.bitmap : null;
  panels.begin(state.methods, bitmap, picture?.name);
  const ask = (verb, parameters) => kept(JSON.stringify([verb, parameters]), () =>
    post(addressOf(about.name, verb), { instances: [instance], parameters }, signal));
  const [prediction] = (await ask(':predict', {})).predictions;
  const generate = about.writes ? controls.written(state) : null;
  showClasses(generate ? {} : prediction, about, state, (value) => { controls.setTarget(value); explain(); });
  const parameters = { words: controls.inWords(about, state), ...(state.special && { special: state.special }),
    ...(generate ? { generate } : targetOf(state, prediction, about)) };
  const ledger = state.methods.some((method) => methods.get(method).ledger);
  const chosen = Object.assign({}, ...state.methods.map((method) => optionsFor(methods.get(method), state.options)));
  explained = { instances: [instance], parameters: { ...parameters, methods: state.methods, ledger, options: chosen } };
  const by = (method) => ({ ...parameters, method, options: optionsFor(methods.get(method), state.options) });
  const explanation = (method) => ask(':explain', { ...by(method), ledger: methods.get(method).ledger });
  const drawing = (method) => file(addressOf(about.name, ':render'),
    { instances: [instance], parameters: by(method), format: 'png' }, signal);
  await compare(state.methods, { explanation, drawing }, bitmap, signal);
}

/** One answer per method, the fastest methods asked first and each shown when it comes; one that fails spoils no
 * other. */
async function compare(names, asked, bitmap, signal) {
  const done = [];
  const began = performance.now();
  Object.assign(byId('progress'), { value: 0, max: names.length, hidden: false });
  const one = async (method) => {
    panels.wait(method);
    try {
      const [explanation] = (await asked.explanation(method)).explanations;
      panels.fill(explanation, methods.get(method).signed, bitmap, () => asked.drawing(method));
      done.push(explanation);
      summarise(done, names);
    } catch (error) {
      if (signal.aborted) throw error;
      panels.fail(method, error, () => one(method));
    }
    byId('progress').value += 1;
  };
  const fastest = [...names].sort((a, b) => methods.get(a).passes - methods.get(b).passes);
  await Promise.all(fastest.map(one));
  const seconds = (performance.now() - began) / 1000;
  const when = seconds < 0.1 ? '' : ` in ${seconds.toFixed(1)} s`;
  if (!done.length) forget();
  const what = done.length && (writtenBy(done[0]) ? 'what the model wrote' : visible(done[0].target));
  say(done.length ? `${plural(done.length, 'heat map')} of ${what}${when}.` : 'No heat map came.');
}

/** What is told of an earlier question does not stand above the errors of this one. */
function forget() {
  byId('subject').textContent = 'Results';
  byId('reading').textContent = '';
  byId('legend').replaceChildren();
  byId('ledger').hidden = true;
}

/** An answer that was given before is not asked for again. */
async function kept(key, ask) {
  const { found } = answers;
  if (!found.has(key)) found.set(key, await ask());
  return found.get(key);
}

/** What the explanations that have come have in common. */
function summarise(done, order) {
  const [first] = done;
  byId('subject').textContent = heading(about, first);
  byId('reading').textContent = reading(about, first, done.map((one) => methods.get(one.method).signed));
  byId('legend').replaceChildren(...legends(about.kind, done.map((one) => methods.get(one.method).signed)));
  const sorted = [...done].sort((one, other) => order.indexOf(one.method) - order.indexOf(other.method));
  const figures = waterfalls(sorted.flatMap(singles));
  byId('waterfalls').replaceChildren(...figures);
  byId('ledger').hidden = !figures.length;
}

function useText(text, pair) {
  [byId('text').value, byId('pair').value] = [text, pair];
  return explain();
}

const usePicture = (file) => attempt(async () => {
  picture = await readPicture(file);
  preview(picture);
  await (about ? explain() : useModel()); // whose loading this has ended
});

const useSound = (file) => attempt(async () => {
  sound = await readSound(file);
  await (about ? explain() : useModel()); // whose loading this has ended
});

async function keep(format) {
  say(`Drawing ${format.toUpperCase()}…`);
  try {
    await download(about.name, explained, format);
    say(`Saved as relprop.${format}.`);
  } catch (error) {
    complain(error, () => keep(format));
  }
}

function listen() {
  byId('form').addEventListener('submit', (event) => { event.preventDefault(); explain(); });
  byId('form').addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) explain();
  });
  byId('model').addEventListener('change', () => useModel());
  for (const id of ['target', 'against', 'target-text', 'against-text', 'place']) {
    byId(id).addEventListener('change', () => { controls.differ(); explain(); });
  }
  for (const id of ['units-field', 'options', 'generate']) byId(id).addEventListener('change', explain);
  byId('methods').addEventListener('change', () => { controls.noteMethods(); explain(); });
  byId('stop').addEventListener('click', () => { anew(); panels.settle(); say('Stopped.'); });
  byId('share').addEventListener('click', async () => say(await share(linked(controls.read(picture)))));
  for (const button of document.querySelectorAll('[data-format]')) {
    button.addEventListener('click', () => keep(button.dataset.format));
  }
  byId('skip').addEventListener('click', (event) => { event.preventDefault(); byId('results').focus(); });
  listenToSounds(useSound);
  listenToPictures(() => about !== null && controls.seesPictures(about), usePicture);
  addEventListener('hashchange', restore);
}

listen();
start();
