// A graph with coloured nodes: a molecule as a chemist would draw it, a picture as its superpixels.

import { inWords } from './account.js';
import { draw, make } from './dom.js';
import { shades, tint } from './palette.js';
import { listBox, select } from './pointing.js';
import { visible } from './words.js';

const SIDE = 360;
const MARGIN = 28;
const BETWEEN = 4; // the lines of a double bond
// Where the lines of a bond lie, by its type: single, double, triple, aromatic; then whether the last is dashed.
const BONDS = [[[0], false], [[-0.5, 0.5], false], [[-1, 0, 1], false], [[0, 1], true]];

export function graphMap(explanation, signed, pointed) {
  const { scores, graph } = explanation;
  const { told, beside } = inWords(explanation, signed, 'the virtual node');
  const names = graph.names.map(visible);
  const strengths = shades(scores);
  const { box, links, marks } = Array.isArray(graph.source) ? mosaic(graph) : nodeLink(graph, names);
  const nodes = marks.map((mark, i) => {
    const node = draw('g', { class: 'node', 'aria-label': `${names[i]}, ${told[i]}` }, ...mark);
    tint(node, strengths[i], signed);
    return node;
  });
  const list = draw('g', { 'aria-label': `The graph's relevance, by ${explanation.method}` }, ...nodes);
  listBox(list, nodes, pointed);
  const behind = draw('g', { 'aria-hidden': 'true' }, ...links);
  const svg = draw('svg', { class: 'graph', viewBox: box.join(' ') }, behind, list);
  return {
    element: make('div', { class: 'drawing' }, svg),
    show(place) {
      select(nodes, place);
      return place === null || !names[place] ? '' : `${names[place]} ${told[place]}`;
    },
    columns: ['node', 'score'],
    rows: () => [...names.map((name, i) => [name, told[i]]), ...beside.map(({ name, said }) => [`(${name})`, said])],
  };
}

/** Every region as its pixels and the line around them. */
function mosaic({ source, names }) {
  const [areas, edges] = [names.map(() => ''), names.map(() => '')];
  const sides = [[-1, 0, 'v1'], [0, -1, 'h1'], [1, 0, 'm1 0v1'], [0, 1, 'm0 1h1']];
  source.forEach((row, y) => row.forEach((region, x) => {
    areas[region] += `M${x} ${y}h1v1h-1z`;
    for (const [right, down, side] of sides) {
      if (source[y + down]?.[x + right] !== region) edges[region] += `M${x} ${y}${side}`;
    }
  }));
  const marks = names.map((_, i) =>
    [draw('path', { class: 'area', d: areas[i] }), draw('path', { class: 'edge', d: edges[i] })]);
  return { box: [0, 0, source[0].length, source.length], links: [], marks };
}

function nodeLink(graph, names) {
  const { places, box, radius } = fitted(graph);
  const links = graph.edges.flatMap(([a, b], i) => bond(places[a], places[b], graph.edge_types[i]));
  const marks = places.map(([x, y], i) => {
    const name = names[i].length > 3 ? '' : names[i]; // it must fit its circle
    return [draw('circle', { cx: x, cy: y, r: radius }), draw('text', { x, y, dy: '0.35em' }, name)];
  });
  return { box, links, marks };
}

/** Places on the drawing, the shape kept, and a radius that lets linked nodes stand apart. */
function fitted({ places, edges }) {
  const lows = [0, 1].map((axis) => Math.min(...places.map((place) => place[axis])));
  const spans = [0, 1].map((axis) => Math.max(...places.map((place) => place[axis])) - lows[axis]);
  const scale = (SIDE - 2 * MARGIN) / Math.max(...spans, 1e-9);
  const moved = places.map((place) => place.map((value, axis) => MARGIN + (value - lows[axis]) * scale));
  const [width, height] = spans.map((span) => span * scale + 2 * MARGIN);
  const lengths = edges.map(([a, b]) => Math.hypot(...minus(moved[a], moved[b]))).sort((one, other) => one - other);
  const usual = lengths[Math.floor(lengths.length / 2)] ?? SIDE / 4;
  return { places: moved, box: [0, 0, width, height], radius: Math.min(16, Math.max(4, 0.36 * usual)) };
}

const minus = (one, other) => [one[0] - other[0], one[1] - other[1]];

function bond(from, to, type) {
  const [lines, dashed] = BONDS[type] ?? BONDS[0];
  const [x, y] = minus(to, from);
  const length = Math.hypot(x, y) || 1;
  return lines.map((line, i) => {
    const [right, down] = [-y / length * BETWEEN * line, x / length * BETWEEN * line];
    return draw('line', { x1: from[0] + right, y1: from[1] + down, x2: to[0] + right, y2: to[1] + down,
      'stroke-dasharray': dashed && i === lines.length - 1 ? '3 2' : null });
  });
}
