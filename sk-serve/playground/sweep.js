// The prompt at weights all over the simplex.

import { answer } from './api.js';
import { mean } from './decide.js';
import { h, inWords, number, s, signed, term } from './dom.js';
import { outline, place } from './weights.js';

const TOKENS = 40;
const AT_ONCE = 2;
// A blade of weight zero is not asked what it thinks. This little changes no choice that is not a tie.
const LEAST = 0.001;

// Points of the simplex whose coordinates are multiples of 1/parts.
function grid(dimensions, parts) {
  if (dimensions === 1) return [[parts]];
  return Array.from({ length: parts + 1 }, (_, first) => grid(dimensions - 1, parts - first).map((rest) => [first, ...rest])).flat();
}

// The points to try for so many blades: the finer, the fewer blades there are.
export function points(dimensions) {
  const parts = dimensions <= 3 ? 4 : 2;
  return grid(dimensions, parts).map((point) => point.map((share) => share / parts));
}

// What each blade thinks of the answer: its mean μ over the spans.
function opinions(steps, names) {
  const of = (name) => steps.map((step) => step.candidates[step.chosen].blades[name]?.mu).filter((mu) => mu !== undefined);
  return Object.fromEntries(names.map((name) => [name, of(name).length > 0 ? mean(of(name)) : null]));
}

// Answers at all points, two at a time. `request(weights, tokens)` makes the body, `found` is called with each result.
export async function sweep({ names, request, found, signal }) {
  const waiting = points(names.length);
  const work = async () => {
    for (let point = waiting.shift(); point; point = waiting.shift()) {
      const weights = Object.fromEntries(names.map((name, k) => [name, Math.max(LEAST, point[k])]));
      const { choices } = await answer(request(weights, TOKENS), signal);
      const steps = choices[0].swiss_knife?.steps ?? [];
      found({ point, text: choices[0].message.content, opinions: opinions(steps, names) });
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

const colourAt = (share) => share < 0.5
  ? `color-mix(in oklab, var(--mid) ${200 * share}%, var(--low))`
  : `color-mix(in oklab, var(--high) ${200 * share - 100}%, var(--mid))`;

const near = (one, other) => one.every((share, k) => Math.abs(share - other[k]) < 1e-9);

// The small triangles between points of a grid of quarters, in quarters.
const CELLS = [
  ...grid(3, 3).map(([a, b, c]) => [[a + 1, b, c], [a, b + 1, c], [a, b, c + 1]]),
  ...grid(3, 2).map(([a, b, c]) => [[a + 1, b + 1, c], [a + 1, b, c + 1], [a, b + 1, c + 1]]),
].map((cell) => cell.map((corner) => corner.map((share) => share / 4)));

function painted(results, names, blade, colours, scale, choose) {
  const valueAt = (point) => results.find((result) => near(result.point, point))?.opinions[blade];
  const cells = CELLS.map((corners) => {
    const values = corners.map(valueAt);
    if (values.some((value) => value === undefined || value === null)) return null;
    const shape = s('polygon', { points: corners.map((corner) => place(corner).join()).join(' '), class: 'cell' });
    shape.style.fill = colourAt(scale(mean(values)));
    return shape;
  });
  const dots = results.filter((result) => result.opinions[blade] !== null).map((result) => {
    const [x, y] = place(result.point);
    return s('g', { class: 'dot', tip: opinion(result, names, blade), onclick: () => choose(result) },
      s('circle', { cx: x, cy: y, r: 15 }),
      s('text', { x, y: y + 3, 'text-anchor': 'middle' }, number(result.opinions[blade])));
  });
  return s('svg', { viewBox: '-14 -8 268 236', class: 'swept', 'aria-hidden': 'true' }, ...outline(names, colours, 8), ...cells.filter(Boolean), ...dots);
}

const told = ({ point }, names) => inWords(names.map((name, k) => [name, point[k]]));

const opinion = (result, names, blade) =>
  `At ${told(result, names)}: mean μ of ${blade} ${result.opinions[blade] === null ? 'not known' : signed(result.opinions[blade])} (no unit). ${result.text.trim()}`;

const TIPS = {
  weights: 'Share of each blade in the composite score of the answer, no unit',
  mean: (name) => `What ${name} makes of the answer: the mean of its μ over the spans, no unit; higher is better`,
};

function table(results, names, blade, choose) {
  const row = (result) => h('tr', {},
    h('th', { scope: 'row', class: 'weights' }, told(result, names)),
    ...names.map((name) => h('td', { class: name === blade ? 'number best' : 'number' }, result.opinions[name] === null ? '–' : signed(result.opinions[name]))),
    h('td', { class: 'text' }, result.text.trim()),
    h('td', {}, h('button', { type: 'button', 'aria-label': `Use the weights ${told(result, names)}`, tip: opinion(result, names, blade), onclick: () => choose(result) }, 'Use')));
  const head = [term('Weights (no unit)', TIPS.weights), ...names.map((name) => term(`Mean μ of ${name} (no unit)`, TIPS.mean(name))), 'Answer', 'Use'];
  return h('div', { class: 'frame', tabindex: 0, role: 'region', 'aria-label': 'Answers of the sweep' },
    h('table', {}, h('thead', {}, h('tr', {}, ...head.map((text) => h('th', { scope: 'col' }, text)))), h('tbody', {}, ...results.map(row))));
}

// Shows results in `area`, painted by `blade`. `choose` is called with one whose weights are to be used.
export function showSweep(area, { results, names, blade, colours, choose }) {
  const values = results.map((result) => result.opinions[blade]).filter((value) => value !== null && value !== undefined);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const scale = (value) => (high > low ? (value - low) / (high - low) : 0.5);
  const order = [...results].sort((one, other) => (other.opinions[blade] ?? -Infinity) - (one.opinions[blade] ?? -Infinity));
  area.replaceChildren(
    names.length === 3 ? painted(results, names, blade, colours, scale, choose) : '',
    values.length > 0
      ? h('p', { class: 'hint' }, `Mean μ of ${blade} over the spans, from ${signed(low)} to ${signed(high)} (no unit), over ${results.length} of ${points(names.length).length} answers. Click a point to use its weights.`)
      : '',
    table(order, names, blade, choose));
}
