// The ledger as a waterfall: what inputs, biases and constants gave, what stays unexplained, and the value they make.

import { addingUp } from './account.js';
import { draw, make, table, titleOf, unfolding } from './dom.js';
import { number, visible } from './words.js';

const KINDS = { input: 'inputs', bias: 'biases', constant: 'constants', unexplained: 'unexplained' };
const WIDTH = 264;
const LEFT = 86; // where bars begin and end; names stand before, numbers behind
const RIGHT = 202;
const ROW = 26;
const LARGEST = 10;
const ROUNDING = 1e-5; // of the value: less is the rounding of a sum

/** Figures on one scale, so that methods can be compared. */
export function waterfalls(explanations) {
  const booked = explanations.filter((one) => one.ledger);
  const ends = booked.flatMap((one) => steps(one.ledger).flatMap((step) => [step.from, step.to]));
  const [low, high] = [Math.min(0, ...ends), Math.max(0, ...ends)];
  const scale = (value) => LEFT + (value - low) / (high - low || 1) * (RIGHT - LEFT);
  const several = new Set(booked.map((one) => one.method)).size < booked.length; // of one method, by steps or texts
  return booked.map((one) => figure(one, scale, several));
}

/** Every kind's sum from where the one before ended; at last the value, from 0. The numbers that are shown add up. */
function steps(ledger) {
  const sums = Object.keys(KINDS).map((kind) =>
    ledger.entries.filter((entry) => entry.kind === kind).reduce((sum, entry) => sum + entry.value, 0));
  const { shares, whole } = addingUp(sums, ledger.value);
  let at = 0;
  const found = Object.values(KINDS).map((name, i) => {
    const step = { name, value: sums[i], shown: shares[i].replace('-', '−'), from: at, to: at + sums[i] };
    at += sums[i];
    return step;
  });
  return [...found, { name: '= value', value: ledger.value, shown: whole.replace('-', '−'), from: 0, to: ledger.value }];
}

function figure({ method, target, ledger }, scale, several) {
  const all = steps(ledger);
  const told = all.map((step) => `${step.name} ${step.shown}`).join(', ');
  const height = ROW * all.length;
  const least = ROUNDING * Math.abs(ledger.value);
  const bars = all.flatMap((step, i) => bar(step, i, i === all.length - 1, scale, least));
  const svg = draw('svg', { class: 'waterfall', viewBox: `0 0 ${WIDTH} ${height}`, role: 'img',
    'aria-label': `${visible(target)} by ${method}: ${told}` },
  draw('line', { class: 'zero', x1: scale(0), x2: scale(0), y1: 0, y2: height }), ...bars);
  const note = ledger.itemised ? '' : make('p', { class: 'soft' }, 'Only the inputs are listed one by one; the rest is one sum.');
  const whose = several ? [make('p', { class: 'soft' }, visible(target))] : [];
  return make('figure', { class: 'panel' }, make('figcaption', {}, titleOf(method), ...whose), svg, note,
    unfolding('Ledger as a table', () => books(method, all, ledger)));
}

function bar({ name, value, shown, from, to }, row, last, scale, least) {
  const [start, end] = [scale(from), scale(to)].sort((a, b) => a - b);
  const middle = ROW * (row + 0.5);
  const amount = Math.abs(value) < least ? '≈ 0' : shown;
  const kind = last ? 'whole' : value < 0 ? 'less' : 'more';
  return [
    draw('text', { x: LEFT - 8, y: middle, dy: '0.35em', class: 'name' }, name),
    draw('rect', { class: kind, x: start, y: middle - 8, width: Math.max(1, end - start), height: 16, rx: 2 }),
    ...(last ? [] : [draw('line', { class: 'step', x1: scale(to), x2: scale(to), y1: middle, y2: middle + ROW })]),
    draw('text', { x: WIDTH, y: middle, dy: '0.35em', class: 'amount' }, amount),
  ];
}

function books(method, all, ledger) {
  const largest = ledger.entries.filter((entry) => entry.kind !== 'input')
    .sort((one, other) => Math.abs(other.value) - Math.abs(one.value)).slice(0, LARGEST);
  return make('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': `Ledger of ${method}` },
    table(`Sums of the ledger of ${method}`, ['part', 'amount'], all.map((step) => [step.name, step.shown])),
    table(`Largest entries of the ledger of ${method}`, ['operation', 'amount', 'kind', 'module'],
      largest.map((entry) => [visible(entry.op), number(entry.value), entry.kind, visible(entry.module)])));
}
