// The spans of an answer. Each is one element, added once; the colours follow from a class of all of them.

import { h, inWords, percent } from './dom.js';
import { deciding, level } from './decide.js';
import { sameWeights } from './settings.js';
import { saidOf } from './tree.js';

const words = (weights) => inWords(Object.entries(weights));

const marker = (weights) =>
  h('span', { class: 'marker', role: 'img', 'aria-label': `From here on other weights: ${words(weights)}.`, tip: `From here on: ${words(weights)} (shares, no unit)` });

// The name of a span of nothing to be read.
function nameOf(node) {
  const text = saidOf(node);
  if (text.trim()) return null;
  return node.step.candidates[node.choice].ends ? 'End of the answer' : text ? 'White space' : 'No text';
}

export class Answer {
  #spans = new Map();
  #last = null;
  #selected = null;

  // `select(id)` is called when a span is chosen.
  constructor(place, { select, colours }) {
    this.place = place;
    this.colours = colours;
    const under = (event) => event.target.closest?.('[data-node]');
    place.addEventListener('click', (event) => under(event) && select(Number(under(event).dataset.node)));
    place.addEventListener('keydown', (event) => {
      const span = under(event);
      if (!span) return;
      if (event.key === 'Enter' || event.key === ' ') select(Number(span.dataset.node));
      else if (!this.#moveFocus(span, event.key)) return;
      event.preventDefault();
    });
  }

  // The answer is one stop of the tab key; the arrow keys move within.
  #moveFocus(span, key) {
    const spans = [...this.#spans.values()];
    const at = spans.indexOf(span);
    const target = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: spans.length - 1 }[key];
    if (target === undefined) return false;
    this.#stopAt(spans[target]);
    spans[target]?.focus();
    return true;
  }

  #stopAt(span) {
    if (!span) return;
    for (const other of this.place.querySelectorAll('[data-node][tabindex="0"]')) other.tabIndex = -1;
    span.tabIndex = 0;
  }

  show(nodes) {
    this.#spans.clear();
    this.#last = null;
    this.#selected = null;
    this.place.replaceChildren();
    nodes.forEach((node) => this.append(node));
  }

  append(node) {
    if (this.#spans.has(node.id)) return;
    const { step, choice, byHand } = node;
    const candidate = step.candidates[choice];
    const blade = deciding(step, choice);
    if (this.#last && !sameWeights(this.#last.step.weights, step.weights)) this.place.append(marker(step.weights));
    const span = h('span', {
      class: `span by-${this.colours()[blade] ?? 'none'} level-${level(candidate.probability)}${byHand ? ' by-hand' : ''}${candidate.ends ? ' end' : ''}`,
      role: 'button',
      tabindex: this.#spans.size === 0 ? 0 : -1,
      'aria-pressed': 'false',
      'aria-label': nameOf(node),
      'data-node': node.id,
      tip: `${blade === null ? 'No blade decided this span' : `Decided by ${blade}`}; probability ${percent(candidate.probability)}${byHand ? '; taken by hand' : ''}`,
    }, this.#last ? saidOf(node) : saidOf(node).trimStart());
    this.#spans.set(node.id, span);
    this.#last = node;
    this.place.append(span);
  }

  // Shows the text of a span again, after more was said with it.
  renew(node) {
    const span = this.#spans.get(node.id);
    if (!span) return;
    span.textContent = node.parent < 0 ? saidOf(node).trimStart() : saidOf(node);
    if (nameOf(node) === null) span.removeAttribute('aria-label');
  }

  // Marks the span that is looked at.
  mark(id) {
    this.#spans.get(this.#selected)?.setAttribute('aria-pressed', 'false');
    this.#spans.get(id)?.setAttribute('aria-pressed', 'true');
    this.#stopAt(this.#spans.get(id));
    this.#selected = id;
  }
}

// What colours and lines mean.
export function legend(place, { colour, names, colours }) {
  const item = (classes, text) => h('li', {}, h('span', { class: `span key ${classes}`, 'aria-hidden': 'true' }, 'abc'), text);
  const blades = [...names.map((name) => item(`by-${colours[name]}`, name)), item('by-none', 'no blade')];
  const levels = ['below 20 %', '20 to 40 %', '40 to 60 %', '60 to 80 %', '80 % and more'].map((text, index) => item(`level-${index}`, text));
  const moved = h('li', {}, h('span', { class: 'marker', 'aria-hidden': 'true' }), 'weights moved');
  place.replaceChildren(...(colour === 'blade' ? blades : levels), moved);
}
