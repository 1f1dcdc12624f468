// Weights on the simplex: a slider with a lock for each blade, and a triangle where there are three.

import { h, inWords, number, s } from './dom.js';

const CORNERS = [[120, 22], [14, 194], [226, 194]];

const sum = (values) => values.reduce((total, value) => total + value, 0);

// The weights with that of `name` at `value`. Blades that are not locked make room, in proportion.
export function moved(weights, name, value, locked) {
  const others = Object.keys(weights).filter((other) => other !== name);
  const free = others.filter((other) => !locked.includes(other));
  const room = 1 - sum(others.filter((other) => locked.includes(other)).map((other) => weights[other]));
  // Where all others are locked, what they leave is all there is.
  const own = free.length === 0 ? room : Math.max(0, Math.min(value, room));
  const total = sum(free.map((other) => weights[other]));
  const share = (other) => (room - own) * (total > 0 ? weights[other] / total : 1 / free.length);
  return Object.fromEntries(Object.keys(weights).map((other) => [other, other === name ? own : free.includes(other) ? share(other) : weights[other]]));
}

// Weights at a point of the triangle, as near as locked ones allow.
function pulled(weights, shares, locked) {
  const free = Object.keys(weights).filter((name) => !locked.includes(name));
  if (free.length < 2) return weights;
  const room = sum(free.map((name) => weights[name]));
  const total = sum(free.map((name) => shares[name]));
  const share = (name) => (total > 0 ? (room * shares[name]) / total : room / free.length);
  return Object.fromEntries(Object.keys(weights).map((name) => [name, free.includes(name) ? share(name) : weights[name]]));
}

// Sliders in `place`. `change(weights, locked)` is called when one is moved or locked.
export function sliders(place, { names, weights, locked, colours, change }) {
  let now = weights;
  let fixed = locked;
  const tip = 'Share of the blade in the composite score, no unit; all of them sum to one';
  const rows = names.map((name, index) => {
    const id = `${place.id}-${index}`;
    const value = h('output', { for: id, tip });
    const input = h('input', { id, tip, type: 'range', min: 0, max: 1, step: 0.01, oninput: () => change(moved(now, name, Number(input.value), fixed), fixed) });
    const lock = h('input', {
      type: 'checkbox',
      class: 'lock',
      'aria-label': `Lock the weight of ${name}`,
      tip: 'Lock: this weight stays when others move',
      onchange: () => change(now, lock.checked ? [...fixed, name] : fixed.filter((other) => other !== name)),
    });
    const label = h('label', { for: id }, h('span', { class: `key by-${colours[name]}`, 'aria-hidden': 'true' }), name);
    return { name, value, input, lock, row: h('div', { class: 'slider' }, label, input, value, lock) };
  });
  function show(next, nextLocked) {
    now = next;
    fixed = nextLocked;
    for (const { name, value, input, lock } of rows) {
      input.value = now[name];
      input.setAttribute('aria-valuetext', number(now[name]));
      input.disabled = fixed.includes(name);
      lock.checked = fixed.includes(name);
      value.textContent = number(now[name]);
    }
  }
  show(now, fixed);
  place.replaceChildren(...rows.map(({ row }) => row));
  return { show };
}

function barycentric([x, y]) {
  const [[ax, ay], [bx, by], [cx, cy]] = CORNERS;
  const area = (by - cy) * (ax - cx) + (cx - bx) * (ay - cy);
  const a = ((by - cy) * (x - cx) + (cx - bx) * (y - cy)) / area;
  const b = ((cy - ay) * (x - cx) + (ax - cx) * (y - cy)) / area;
  const clipped = [a, b, 1 - a - b].map((share) => Math.max(share, 0));
  return clipped.map((share) => share / sum(clipped));
}

// Where weights lie in the triangle.
export const place = (shares) => [0, 1].map((axis) => sum(CORNERS.map((corner, k) => shares[k] * corner[axis])));

// The outline of the triangle, with a name at each corner, `away` from it.
export function outline(names, colours, away = 0) {
  const words = [[120, 13 - away, 'middle'], [2 - away, 211 + away, 'start'], [238 + away, 211 + away, 'end']];
  return [
    s('polygon', { points: CORNERS.map((corner) => corner.join()).join(' '), class: 'outline' }),
    ...names.map((name, k) => s('text', { x: words[k][0], y: words[k][1], 'text-anchor': words[k][2], class: `corner ink-${colours[name]}` }, name)),
  ];
}

// What an arrow key moves: up and down the upper corner's weight, left and right from one lower corner to the other.
const STEPS = { ArrowUp: [0.02, -0.01, -0.01], ArrowDown: [-0.02, 0.01, 0.01], ArrowLeft: [0, 0.02, -0.02], ArrowRight: [0, -0.02, 0.02] };

// A handle to drag in a triangle, with a pointer or the arrow keys.
export function triangle(svg, { names, weights, locked, colours, change }) {
  let now = weights;
  let fixed = locked;
  const handle = s('circle', { r: 9, class: 'handle' });
  function show(next, nextLocked) {
    now = next;
    fixed = nextLocked;
    const [x, y] = place(names.map((name) => now[name]));
    handle.setAttribute('cx', x);
    handle.setAttribute('cy', y);
    svg.setAttribute('aria-label', `Triangle of weights: ${inWords(names.map((name) => [name, now[name]]))}. The arrow keys move the point; the sliders do the same.`);
  }
  const pull = (shares) => change(pulled(now, Object.fromEntries(names.map((name, k) => [name, shares[k]])), fixed), fixed);
  const drag = (event) => {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    pull(barycentric([point.x, point.y]));
  };
  svg.onpointerdown = (event) => {
    svg.setPointerCapture(event.pointerId);
    drag(event);
  };
  svg.onpointermove = (event) => svg.hasPointerCapture(event.pointerId) && drag(event);
  svg.onkeydown = (event) => {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const next = names.map((name, k) => Math.max(0, now[name] + step[k]));
    pull(next.map((share) => share / sum(next)));
  };
  svg.setAttribute('role', 'application');
  svg.replaceChildren(...outline(names, colours), handle);
  show(now, fixed);
  return { show };
}
