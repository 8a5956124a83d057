// A text as coloured units, sub-words or words.

import { inWords } from './account.js';
import { make } from './dom.js';
import { shades, strength, tint } from './palette.js';
import { listBox, select } from './pointing.js';
import { visible } from './words.js';

export function textMap(explanation, signed, pointed) {
  const { units, scores } = explanation;
  const { told, beside } = inWords(explanation, signed);
  const faint = strength(explanation, signed);
  const strengths = shades(scores).map((shade) => shade * faint);
  const names = units.map(piece);
  const answers = units.map((unit) => ofAnswer(unit, explanation.answer));
  const cells = units.map((unit, i) => {
    const label = `${names[i]}, ${told[i]}${answers[i] ? ', of the answer' : ''}`;
    const cell = make('span', { class: 'unit', 'aria-label': label }, names[i]);
    cell.classList.toggle('special', unit.special);
    if (unit.special) cell.dir = 'ltr'; // not moved by its neighbours' direction
    cell.classList.toggle('answer', answers[i]);
    tint(cell, strengths[i], signed);
    return cell;
  });
  const label = `The text's relevance, by ${explanation.method}`;
  const box = make('div', { class: 'text', dir: 'auto', 'aria-label': label });
  const texts = (explanation.text ?? []).map((text) => [...text]); // places count code points, as in the library
  let segment = null; // of the last unit of the text itself
  let before = null; // the last unit that has a place in the text
  units.forEach((unit, i) => {
    const crossed = !unit.special && segment !== null && segment !== unit.segment;
    if (crossed) box.append(' ', make('span', { class: 'bar', 'aria-hidden': 'true' }, '|'));
    const joined = i > 0 && !crossed && !spaced(units[i - 1], unit);
    const broken = beginsLine(before, unit, texts[unit.segment]);
    cells[i].classList.toggle('join', joined && !broken);
    box.append(...(broken ? [make('br', {})] : i && !joined ? [' '] : []), cells[i]);
    segment = unit.special ? segment : unit.segment;
    before = unit.start === null ? before : unit;
  });
  const full = Math.max(0, ...scores.map(Math.abs)) / faint; // the score of full colour
  const chips = beside.map(({ name, share, shown }) => chip(`(${name} ${shown})`, share, full));
  if (chips.length) box.append(' ', make('span', { class: 'bar', 'aria-hidden': 'true' }, '|'));
  box.append(...chips.flatMap((one) => [' ', one]));
  listBox(box, cells, pointed);
  return {
    element: box,
    show(place) {
      select(cells, place);
      return place === null || !names[place] ? '' : `${names[place]} ${told[place]}`;
    },
    columns: ['unit', 'score'],
    rows: () => [...names.map((name, i) => [name, told[i]]), ...beside.map(({ name, said }) => [`(${name})`, said])],
  };
}

/** What the value is made of beside the units, on their scale; the line below says it to those who hear the page. */
function chip(text, share, full) {
  const element = make('span', { class: 'chip', dir: 'ltr', 'aria-hidden': 'true' }, text);
  tint(element, full ? Math.max(-1, Math.min(1, share / full)) : Math.sign(share));
  return element;
}

/** Whether the text has a line break between two units that have their places in it. */
function beginsLine(before, unit, text = []) {
  if (unit.start === null || !before || before.segment !== unit.segment) return false;
  const gap = text.slice(before.start + [...before.text.trimEnd()].length, unit.start).join('');
  const led = unit.text.trim() ? /^\s*/u.exec(unit.text)[0] : '';
  return `${gap}${led}`.includes('\n');
}

/** Whether the text has a gap between two units; where offsets are missing, whether a new word begins. */
function spaced(before, unit) {
  if (/^\s/u.test(unit.text) || unit.special || before.special) return true;
  if (unit.start !== null && before.end !== null) return unit.start > before.end;
  return !((unit.word !== null && unit.word === before.word) || continues(unit));
}

/** A continuation shown as the vocabulary spells it, for want of offsets: "##ing". */
const continues = (unit) => unit.start === null && !unit.special && /^##./u.test(unit.text);

function piece(unit) {
  const text = continues(unit) ? unit.text.slice(2) : unit.text;
  return visible(text.replace(/^ +| +$/g, '') || text);
}

function ofAnswer(unit, answer) {
  return Boolean(answer) && unit.segment === 1 && unit.start !== null && unit.start < answer[1] && unit.end > answer[0];
}
