// Several numbers of one input, or one number through several texts: a map for each, one under the other.

import { valueShown } from './account.js';
import { make } from './dom.js';
import { visible } from './words.js';

const FAR = 1e6; // more than the units of any map: a place is that of a map and of a unit in it

/** Whether the page has a map of it: of texts that the model did not write itself, and of pairs. */
const hasMaps = ({ parts, steps = [] }) => !parts || (steps.length < 1 || parts.length === 1)
  && parts.every(({ kind, written_from: written = null }) => ['text', 'pairs'].includes(kind) && written === null);

/** An explanation in parts as one per map: each step, each text that explains all, or the only part; itself, where
 * the page has no map of these. */
export function singles(explanation) {
  const { parts, steps = [], ledgers = [] } = explanation;
  if (!parts || !hasMaps(explanation)) return [explanation];
  const { method } = explanation;
  if (steps.length) {
    const [part] = parts;
    return steps.map((step, i) => ({ ...part, scores: part.by_step[i], method, target: step.target, value: step.value,
      ledger: step.ledger }));
  }
  if (ledgers.length) {
    return parts.map((part, i) => ({ ...part, method, target: `${explanation.target}, by the ${part.name} text`,
      value: explanation.value, ledger: ledgers[i] }));
  }
  const account = parts.length > 1 ? undefined : explanation.account; // of all parts together, not of one
  return parts.map((part) => ({ ...explanation, ...part, parts: undefined, method, account }));
}

export function severalMaps(explanations, draw, pointed) {
  const maps = explanations.map((one, number) =>
    draw(one, (place, spoken) => pointed(place === null ? null : number * FAR + place, spoken)));
  const titles = explanations.map(({ target, value }) => `${visible(target)} = ${valueShown(value)}`);
  const shown = maps.map((map, i) => make('div', {}, make('p', { class: 'soft' }, titles[i]), map.element));
  return {
    element: make('div', { class: 'several' }, ...shown),
    show(place) {
      const at = place === null ? -1 : Math.floor(place / FAR);
      return maps.map((map, i) => map.show(i === at ? place % FAR : null)).find((told) => told) ?? '';
    },
    columns: ['of', ...maps[0].columns],
    rows: () => maps.flatMap((map, i) => map.rows().map((row) => [titles[i], ...row])),
  };
}
