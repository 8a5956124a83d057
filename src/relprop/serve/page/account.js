// The shares of a value as they are shown: numbers of as many decimals, which sum to it (render/caption.py).

import { titled, visible } from './words.js';

/** Shares in units of the value's last decimal: the largest remainders are rounded up, so that they sum to the value. */
function rounded(shares, value) {
  const digits = decimals(value);
  const unit = 10 ** digits;
  const low = shares.map((share) => Math.floor(share * unit));
  const order = shares.map((_, i) => i).sort((a, b) => (low[a] - shares[a] * unit) - (low[b] - shares[b] * unit));
  const missing = Math.round(value * unit) - total(low);
  for (const i of order.slice(0, Math.max(0, missing))) low[i] += 1;
  return { low, shown: (number) => `${number < 0 ? '-' : '+'}${(Math.abs(number) / unit).toFixed(digits)}`,
    whole: (Math.round(value * unit) / unit).toFixed(digits) };
}

/** Three, more where the value would have fewer than three digits, and none beyond a million. */
function decimals(value) {
  if (!value) return 3;
  return Math.abs(value) >= 1e6 ? 0 : Math.min(12, Math.max(3, 2 - Math.floor(Math.log10(Math.abs(value)))));
}

/** An explained number, wherever it is shown. */
export const valueShown = (value) => (Number.isFinite(value) ? rounded([], value).whole.replace('-', '−') : String(value));

const total = (numbers) => numbers.reduce((one, other) => one + other, 0);

/** Numbers for the shares and for the value that they sum to. */
export function addingUp(shares, value) {
  const { low, shown, whole } = rounded(shares, value);
  return { shares: low.map(shown), whole };
}

/** The scores of units and what the value is made of beside them; shares that are shown as nothing are left out. */
export function accounted(scores, beside, value) {
  const { low, shown, whole } = rounded([...scores, ...beside.map(([, share]) => share)], value);
  const others = beside.map(([name, share], i) => ({ name: visible(name), share, units: low[scores.length + i] }));
  return {
    scores: low.slice(0, scores.length).map(shown),
    total: shown(total(low.slice(0, scores.length))),
    beside: others.filter(({ units }) => units).map((one) => ({ ...one, shown: shown(one.units) })),
    whole,
  };
}

/** Each unit's score in words, with numbers that sum to the value where they are shares of it, and what is beside them;
 * `rest`: what the input has beside its units. */
export function inWords({ scores, value, account, rest }, signed, restName = '') {
  const own = rest ? [[restName, rest]] : [];
  if (!signed || !account || !Number.isFinite(value)) {
    const beside = own.map(([name, share]) => ({ name, share, said: titled(share, signed) }));
    return { told: scores.map((one) => titled(one, signed)), beside };
  }
  const all = accounted(scores, [...own, ...account], value);
  return {
    told: scores.map((one, i) => titled(one, signed, all.scores[i])),
    beside: all.beside.map((one) => ({ ...one, said: titled(one.share, signed, one.shown) })),
  };
}

/** "sum of scores +0.907, biases +0.621 = 1.528 (logit)" */
export function accountLine(scores, beside, value, quantity) {
  const all = accounted(scores, beside, value);
  const others = all.beside.map(({ name, shown }) => `, ${name} ${shown}`).join('');
  return `sum of scores ${all.total}${others}${equals(all.whole, quantity)}`;
}

/** The same for several inputs, each with its name. */
export function accountOfParts(named, beside, value, quantity) {
  const all = accounted([], [...named, ...beside], value);
  return all.beside.map(({ name, shown }) => `${name} ${shown}`).join(', ') + equals(all.whole, quantity);
}

const equals = (whole, quantity) => ` = ${whole}${quantity ? ` (${quantity})` : ''}`;
