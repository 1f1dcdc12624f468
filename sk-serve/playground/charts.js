// Charts over the steps.

import { h, inWords, number, percent, s, term } from './dom.js';
import { draftedPerKept } from './decide.js';
import { hideTip, showTip } from './tip.js';

const HEIGHT = 150;
const LEFT = 40;
const RIGHT = 66;
const TOP = 8;
const BOTTOM = 34;

const text = (x, y, anchor, words) => s('text', { x, y, 'text-anchor': anchor }, words);

// A chart of one kind. `layers(nodes, scales)` gives its lines and areas, `tell(node)` the words of a step.
class Chart {
  constructor({ title, unit, about, ...kind }, select) {
    Object.assign(this, { title, ...kind });
    this.nodes = [];
    // The step that is pointed at, which the newest one is without a pointer.
    this.at = null;
    this.plot = s('g');
    this.cursor = s('line', { class: 'cursor', y1: TOP, y2: HEIGHT - BOTTOM });
    this.svg = s('svg', { 'aria-label': `${title}, ${unit}`, 'data-chart': '' }, this.plot, this.cursor);
    this.figure = h('figure', {}, h('h3', {}, title, ' ', h('span', { class: 'hint' }, unit)), this.svg, h('figcaption', {}, about));
    const leave = () => {
      this.#point(null);
      hideTip();
    };
    this.svg.addEventListener('pointermove', (event) => this.#point(this.#under(event), event.offsetY));
    this.svg.addEventListener('pointerleave', leave);
    this.svg.addEventListener('focus', () => this.svg.matches(':focus-visible') && this.#point(this.at ?? this.nodes.length - 1));
    this.svg.addEventListener('blur', leave);
    this.svg.addEventListener('keydown', (event) => this.#press(event, select));
    this.svg.addEventListener('click', (event) => this.nodes.length > 0 && select(this.nodes[this.#under(event)].id));
    new ResizeObserver(() => this.draw(this.nodes)).observe(this.figure);
  }

  #under(event) {
    const share = (event.clientX - this.svg.getBoundingClientRect().left - LEFT) / Math.max(1, this.width - LEFT - RIGHT);
    return Math.max(0, Math.min(this.nodes.length - 1, Math.floor(share * this.nodes.length)));
  }

  #press(event, select) {
    const [at, last] = [this.at ?? this.nodes.length - 1, this.nodes.length - 1];
    const target = { ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1, PageDown: at - 10, PageUp: at + 10, Home: 0, End: last }[event.key];
    if (target !== undefined) this.#point(Math.max(0, Math.min(last, target)));
    else if (event.key === 'Enter' && last >= 0) select(this.nodes[at].id);
    else return;
    event.preventDefault();
  }

  // Points at a step, and tells of it at a height, or at none.
  #point(at, height = HEIGHT - BOTTOM) {
    this.at = at === null || this.nodes.length === 0 ? null : at;
    this.#mark();
    if (this.at !== null) showTip(this.svg, this.svg.getAttribute('aria-valuetext'), { x: this.#middleOf(this.at), y: height });
  }

  #middleOf(at) {
    return LEFT + ((at + 0.5) / Math.max(1, this.nodes.length)) * (this.width - LEFT - RIGHT);
  }

  // To a reader of the screen a chart is a slider over its steps.
  #mark() {
    const steps = this.nodes.length;
    const at = Math.min(this.at ?? Infinity, steps - 1);
    this.cursor.toggleAttribute('hidden', this.at === null || steps === 0);
    this.svg.setAttribute('role', steps > 0 ? 'slider' : 'img');
    this.svg.tabIndex = steps > 0 ? 0 : -1;
    if (steps === 0) return;
    const values = { valuemin: 1, valuemax: steps, valuenow: at + 1, valuetext: `Step ${at + 1} of ${steps}: ${this.tell(this.nodes[at])}` };
    for (const [name, value] of Object.entries(values)) this.svg.setAttribute(`aria-${name}`, value);
    for (const end of ['x1', 'x2']) this.cursor.setAttribute(end, this.#middleOf(at));
  }

  draw(nodes) {
    this.nodes = nodes;
    this.width = Math.max(200, this.figure.clientWidth);
    this.svg.setAttribute('viewBox', `0 0 ${this.width} ${HEIGHT}`);
    this.#mark();
    const [right, high] = [this.width - RIGHT, this.top(nodes)];
    const x = (step) => LEFT + (step / Math.max(1, nodes.length)) * (right - LEFT);
    const y = (value) => TOP + (1 - value / high) * (HEIGHT - TOP - BOTTOM);
    const grid = [0, high / 2, high].flatMap((value) => [
      s('line', { x1: LEFT, x2: right, y1: y(value), y2: y(value), class: 'grid' }),
      text(LEFT - 6, y(value) + 4, 'end', this.axis(value)),
    ]);
    const below = HEIGHT - BOTTOM + 14;
    const ends = [text(x(0.5), below, 'middle', '1'), nodes.length > 1 && text(x(nodes.length - 0.5), below, 'middle', String(nodes.length))];
    const drawn = nodes.length > 0 ? [...ends.filter(Boolean), ...this.layers(nodes, { x, y, right })] : [];
    this.plot.replaceChildren(...grid, text((LEFT + right) / 2, HEIGHT - 4, 'middle', 'step'), ...drawn);
  }
}

const point = (x, y) => `${x.toFixed(1)} ${y.toFixed(1)}`;

// A line that holds each value for the width of its step.
const held = (values, x, y) => values.map((value, k) => `${k === 0 ? 'M' : 'L'}${point(x(k), y(value))}H${x(k + 1).toFixed(1)}`).join('');

// The area between two such lines.
function band(low, high, x, y) {
  const back = low.map((value, k) => `L${point(x(k + 1), y(value))}H${x(k).toFixed(1)}`).reverse().join('');
  return `${held(high, x, y)}${back}Z`;
}

// The shares of blades, one above the other, each with its name where there is room.
function stacked(nodes, { x, y, right }, colours) {
  const names = [...new Set(nodes.flatMap((node) => Object.keys(node.step.weights)))];
  let low = nodes.map(() => 0);
  return names.flatMap((name) => {
    const high = nodes.map((node, k) => low[k] + (node.step.weights[name] ?? 0));
    const share = high.at(-1) - low.at(-1);
    const colour = colours()[name] ?? 'none';
    const area = s('path', { d: band(low, high, x, y), class: `area fill-${colour}` });
    const label = s('text', { x: right + 6, y: y(low.at(-1) + share / 2) + 4, class: `ink-${colour}` }, name);
    low = high;
    return share > 0.12 ? [area, label] : [area];
  });
}

const line = (value) => (nodes, { x, y }) => [s('path', { d: held(nodes.map(value), x, y), class: 'line' })];
const chance = ({ step, choice }) => step.candidates[choice].probability;
const drafted = ({ step, choice }) => draftedPerKept(step, choice);
const weights = ({ step }) => inWords(Object.entries(step.weights));

const KINDS = (colours) => [
  {
    title: 'Weights',
    unit: 'shares, no unit',
    about: 'The share of each blade in the composite score.',
    top: () => 1,
    axis: (value) => number(value, 1),
    layers: (nodes, scales) => stacked(nodes, scales, colours),
    tell: weights,
  },
  {
    title: 'Probability of the choice',
    unit: '%',
    about: 'How likely the draw was: low where candidates are alike, high where one is clearly best.',
    top: () => 1,
    axis: (value) => String(100 * value),
    layers: line(chance),
    tell: (node) => percent(chance(node)),
  },
  {
    title: 'Tokens drafted per token kept',
    unit: 'tokens per token',
    about: 'What the search costs: tokens of all candidates for each token of the chosen one.',
    top: (nodes) => Math.max(2, 2 * Math.ceil(Math.max(0, ...nodes.map(drafted)) / 2)),
    axis: (value) => number(value, 0),
    layers: line(drafted),
    tell: (node) => `${number(drafted(node), 1)} tokens drafted per token kept`,
  },
];

// The charts, in `area`. `select(id)` is called when a step is clicked.
export function charts(area, { colours, select }) {
  const all = KINDS(colours).map((kind) => new Chart(kind, select));
  area.replaceChildren(...all.map((chart) => chart.figure));
  return { draw: (nodes) => all.forEach((chart) => chart.draw(nodes)) };
}

// The same figures as a table.
export function table(nodes) {
  const head = ['Step', ...KINDS(() => ({})).map(({ title, unit, about }) => term(`${title} (${unit})`, about))];
  const row = (node, k) =>
    h('tr', {}, h('th', { scope: 'row' }, String(k + 1)), h('td', { class: 'weights' }, weights(node)), h('td', {}, percent(chance(node))), h('td', {}, number(drafted(node), 1)));
  return h('table', {}, h('thead', {}, h('tr', {}, ...head.map((words) => h('th', { scope: 'col' }, words)))), h('tbody', {}, ...nodes.map(row)));
}
