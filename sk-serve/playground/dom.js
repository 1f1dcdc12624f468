// Elements. What a model or a user wrote only ever becomes text.

const SVG = 'http://www.w3.org/2000/svg';

export const byId = (id) => document.getElementById(id);

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'tip') node.dataset.tip = value;
    else if (name === 'style') Object.assign(node.style, value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// An element of HTML: `h('p', { class: 'hint', tip: 'shown on hover' }, 'words')`.
export const h = (tag, attributes = {}, ...children) => build(document.createElement(tag), attributes, children);

// An element of SVG.
export const s = (tag, attributes = {}, ...children) => build(document.createElementNS(SVG, tag), attributes, children);

// A word that a keyboard reaches, with its explanation.
export const term = (word, tip, attributes = {}) => h('span', { class: 'term', tabindex: 0, tip, ...attributes }, word);

// Runs `draw`, which changes `area`. If this removes or disables the focused element there, focuses the one that `instead` returns.
export function keepingFocus(area, draw, instead) {
  const focused = document.activeElement;
  const isIn = area.contains(focused);
  draw();
  if (isIn && (!focused.isConnected || focused.disabled)) instead()?.focus();
}

// A function that runs `draw` once before the next frame, however often it is called.
export function onceAFrame(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  };
}

// How many times as long as an act takes, it waits for the next time.
const REST = 10;

// A function that runs `act` at most once in `pause` milliseconds, the more seldom the longer it takes, and once more at the end.
export function atMostEvery(pause, act) {
  let timer = null;
  let next = -Infinity;
  return () => {
    if (timer !== null) return;
    timer = setTimeout(() => {
      timer = null;
      const began = performance.now();
      act();
      const ended = performance.now();
      next = ended + Math.max(pause, REST * (ended - began));
    }, Math.max(0, next - performance.now()));
  };
}

// Says something to those who do not see the page.
export const announce = (text) => {
  byId('announcer').textContent = text;
};

// What rounds to zero has no sign.
const sign = (value, digits, plus) => (Math.abs(value) < 0.5 / 10 ** digits ? '' : value < 0 ? '−' : plus);
export const number = (value, digits = 2) => sign(value, digits, '') + Math.abs(value).toFixed(digits);
export const signed = (value, digits = 2) => sign(value, digits, '+') + Math.abs(value).toFixed(digits);
export const percent = (value) => (value > 0 && value < 0.001 ? '< 0.1 %' : `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`);
export const count = (amount, noun) => `${amount} ${noun}${amount === 1 ? '' : 's'}`;

// Weights in words, from pairs of a name and a share.
export const inWords = (weights) => weights.map(([name, share]) => `${name} ${number(share)}`).join(', ');
