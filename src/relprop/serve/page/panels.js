// The heat maps side by side, one panel per method. What is looked at in one is shown in all.

import { accountLine, accountOfParts } from './account.js';
import { bothMap, partsOf } from './both_map.js';
import { byId, make, table, titleOf, unfolding } from './dom.js';
import { drawnMap, total } from './drawn_map.js';
import { generationMap, isWritten } from './generation_map.js';
import { graphMap } from './graph_map.js';
import { imageMap, plainPicture } from './image_map.js';
import { pairMap } from './pair_map.js';
import { problem } from './problem.js';
import { severalMaps, singles } from './several_maps.js';
import { textMap } from './text_map.js';
import { number, visible } from './words.js';
import { isWrittenOfPicture, writtenBothMap } from './written_both_map.js';

const MAPS = { image: imageMap, graph: graphMap, text: textMap, pairs: pairMap, both: bothMap, written: generationMap,
  writtenBoth: writtenBothMap };

/** What draws an explanation: a picture with its text and a text that was written here, what else has parts the
 * service, but for those of several maps. */
function kindOf(explanation) {
  const { kind, parts, steps } = explanation;
  if (isWritten(explanation)) return 'written';
  if (isWrittenOfPicture(explanation)) return 'writtenBoth';
  if (!parts) return kind ?? 'text';
  const kinds = parts.map((part) => part.kind);
  return !steps?.length && kinds[0] === 'image' && kinds.slice(1).every((one) => one === 'text') ? 'both' : 'drawn';
}

const panels = new Map(); // by method: {element, map, readout, account}

export function clear() {
  panels.clear();
  byId('maps').replaceChildren();
}

/** A panel for each method, in this order. Those that were there keep what they show until the answer comes. */
export function begin(methods, bitmap, name) {
  for (const method of panels.keys()) if (!methods.includes(method)) panels.delete(method);
  for (const method of methods) {
    if (!panels.has(method)) panels.set(method, { element: empty(method) });
    wait(method);
  }
  const plain = bitmap ? [make('article', { class: 'panel' }, make('h3', {}, 'picture'), plainPicture(bitmap, name))]
    : [];
  byId('maps').classList.toggle('pictures', Boolean(bitmap));
  byId('maps').classList.remove('drawings');
  byId('maps').replaceChildren(...plain, ...methods.map((method) => panels.get(method).element));
}

export const wait = (method) => panels.get(method).element.setAttribute('aria-busy', 'true');

const empty = (method) => make('article', { class: 'panel', 'aria-label': method }, titleOf(method),
  make('p', { class: 'waiting' }, 'waiting…'));

/** `drawing` asks the service to draw what the page has no map for. */
export function fill(explanation, signed, bitmap, drawing) {
  const panel = panels.get(explanation.method);
  const drawn = singles(explanation);
  byId('maps').classList.toggle('drawings', kindOf(drawn[0]) === 'drawn'); // wide ones, one under the other
  const draw = (one, pointed) => (kindOf(one) === 'drawn' ? drawnMap(one, signed, drawing)
    : MAPS[kindOf(one)](one, signed, pointed, bitmap));
  panel.map = drawn.length === 1 ? draw(drawn[0], point) : severalMaps(drawn, draw, point);
  panel.account = drawn.length === 1 ? account(drawn[0], signed) : ''; // each of several has its own value
  panel.readout = make('p', { class: 'readout' }, panel.account);
  const label = `Numbers of ${explanation.method}`;
  const numbers = () => make('div', { class: 'numbers', tabindex: 0, role: 'region', 'aria-label': label },
    table(`Scores by ${explanation.method}`, panel.map.columns, panel.map.rows()));
  const warnings = (explanation.warnings ?? []).map((one) => make('p', { class: 'warning' }, `Warning: ${visible(one)}`));
  panel.element.replaceChildren(titleOf(explanation.method), panel.map.element, panel.readout, ...warnings,
    unfolding('Numbers', numbers));
  panel.element.removeAttribute('aria-busy');
}

export function fail(method, error, again) {
  const { element } = panels.get(method);
  panels.set(method, { element });
  element.replaceChildren(titleOf(method), problem(error, again));
  element.removeAttribute('aria-busy');
}

/** After a stop nothing is waited for, and what is shown belongs to the question. */
export function settle() {
  for (const [method, { element }] of panels) {
    if (!element.hasAttribute('aria-busy')) continue;
    panels.set(method, { element });
    element.replaceChildren(titleOf(method), make('p', { class: 'waiting' }, 'stopped'));
    element.removeAttribute('aria-busy');
  }
}

function point(place, spoken = false) {
  const told = [];
  for (const [method, { map, readout, account: whole }] of panels) {
    if (!map) continue;
    const sentence = map.show(place);
    readout.textContent = sentence || whole;
    readout.classList.toggle('pointed', sentence !== '');
    told.push(`${method}: ${sentence}`);
  }
  if (spoken) byId('spoken').textContent = told.join('; ');
}

/** The scores as a whole. */
function account(explanation, signed) {
  const { scores, value, quantity, account: beside = [], truncated, rest = 0, parts } = explanation;
  const shown = (score) => (signed ? number(score) : number(score).replace(/^\+/, '')); // a plus sign speaks for it
  if (['both', 'writtenBoth'].includes(kindOf(explanation))) {
    const { image, text } = partsOf(explanation);
    const [seen, said] = [image.scores.flat(), text.scores].map((all) => all.reduce((one, other) => one + other, 0));
    const named = [['picture', seen + image.rest], ['text', said]];
    return signed && beside.length ? accountOfParts(named, beside, value, quantity)
      : named.map(([name, share]) => `${name} ${shown(share)}`).join(' · ');
  }
  const each = parts ? [total(explanation)] : [...scores.flat(), rest];
  const whole = signed && explanation.account && !(parts && !beside.length)
    ? accountLine(each, beside, value, quantity) : `sum of scores ${shown(each.reduce((one, other) => one + other))}`;
  return truncated ? `${whole} · ${visible(truncated)}` : whole;
}
