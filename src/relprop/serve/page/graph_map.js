// A graph as nodes and links, its nodes coloured.

import { draw, make } from './dom.js';
import { shades, tint } from './palette.js';
import { listBox, select } from './pointing.js';
import { number, titled, visible } from './words.js';

const SIDE = 360;
const MARGIN = 28;
const ROUNDS = 200;

export function graphMap(explanation, signed, pointed) {
  const { scores, graph, rest } = explanation;
  const names = graph.names.map(visible);
  const strengths = shades(scores);
  const { places, width, height, radius } = fitted(graph.places ?? spread(names.length, graph.edges), graph.edges);
  const links = graph.edges.map(([a, b]) =>
    draw('line', { x1: places[a][0], y1: places[a][1], x2: places[b][0], y2: places[b][1] }));
  const nodes = names.map((name, i) => {
    const [x, y] = places[i];
    const fits = name.length * radius * 0.33 < radius;
    const node = draw('g', { class: 'node', 'aria-label': `${name}, ${titled(scores[i], signed)}` },
      draw('circle', { cx: x, cy: y, r: radius }), draw('text', { x, y, dy: '0.35em' }, fits ? name : ''));
    tint(node, strengths[i]);
    return node;
  });
  const box = draw('g', { 'aria-label': `The graph's relevance, by ${explanation.method}` }, ...nodes);
  listBox(box, nodes, pointed);
  const svg = draw('svg', { class: 'graph', viewBox: `0 0 ${width} ${height}` },
    draw('g', { 'aria-hidden': 'true' }, ...links), box);
  svg.style.setProperty('--letter', `${Math.min(13, radius)}px`);
  return {
    element: make('div', { class: 'drawing' }, svg),
    show(place) {
      select(nodes, place);
      return place === null || !names[place] ? '' : `${names[place]} ${titled(scores[place], signed)}`;
    },
    columns: ['node', 'score'],
    rows: () => names.map((name, i) => [name, titled(scores[i], signed)])
      .concat(rest ? [['the virtual node', number(rest)]] : []),
  };
}

/** Places on the drawing, the shape kept, and a radius that lets linked nodes stand apart. */
function fitted(places, edges) {
  const lows = [0, 1].map((axis) => Math.min(...places.map((place) => place[axis])));
  const spans = [0, 1].map((axis) => Math.max(...places.map((place) => place[axis])) - lows[axis]);
  const scale = (SIDE - 2 * MARGIN) / Math.max(...spans, 1e-9);
  const moved = places.map((place) => place.map((value, axis) => MARGIN + (value - lows[axis]) * scale));
  const [width, height] = spans.map((span) => span * scale + 2 * MARGIN);
  const lengths = edges.map(([a, b]) => apart(moved[a], moved[b])).sort((one, other) => one - other);
  const usual = lengths[Math.floor(lengths.length / 2)] ?? SIDE / 4;
  return { places: moved, width, height, radius: Math.min(16, Math.max(4, 0.36 * usual)) };
}

const apart = (one, other) => Math.hypot(one[0] - other[0], one[1] - other[1]);

/** Places for a graph that has none: neighbours near, others as far as their path (majorised stress). */
export function spread(count, edges) {
  const wanted = paths(count, edges);
  let places = Array.from({ length: count }, (_, i) => {
    const angle = 2 * Math.PI * i / count;
    return [Math.cos(angle) * count / 6, Math.sin(angle) * count / 6];
  });
  for (let round = 0; count > 1 && round < ROUNDS; round += 1) {
    places = places.map((one, i) => pulled(one, i, places, wanted));
  }
  return places;
}

/** A node in the mean of where the others want it, near ones more. */
function pulled(one, i, places, wanted) {
  const sum = [0, 0, 0];
  places.forEach((other, j) => {
    if (i === j) return;
    const weight = 1 / wanted[i][j] ** 2;
    const stretch = wanted[i][j] / Math.max(apart(one, other), 1e-6);
    sum[0] += weight * (other[0] + (one[0] - other[0]) * stretch);
    sum[1] += weight * (other[1] + (one[1] - other[1]) * stretch);
    sum[2] += weight;
  });
  return [sum[0] / sum[2], sum[1] / sum[2]];
}

/** The lengths of the shortest paths; where there is none, more than any. */
function paths(count, edges) {
  const neighbours = Array.from({ length: count }, () => []);
  for (const [a, b] of edges) {
    neighbours[a].push(b);
    neighbours[b].push(a);
  }
  return neighbours.map((_, start) => {
    const away = Array(count).fill(count + 1);
    away[start] = 0;
    for (const queue = [start]; queue.length;) {
      const here = queue.shift();
      for (const next of neighbours[here]) if (away[next] > count) {
        away[next] = away[here] + 1;
        queue.push(next);
      }
    }
    return away;
  });
}
