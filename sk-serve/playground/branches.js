// Branches of an answer, as a tree of the runs between its forks.

import { count, h, keepingFocus } from './dom.js';
import { textsOf } from './tree.js';

const opening = (nodes) => {
  const text = textsOf(nodes).trim();
  return text.length > 48 ? `${text.slice(0, 48)}…` : text;
};

function item(run, shown, choose) {
  const [head, leaf] = [run.nodes[0], run.nodes.at(-1)];
  const isShown = shown.has(leaf.id);
  const button = h('button', { type: 'button', class: 'branch', 'aria-current': isShown && 'true', onclick: () => choose(leaf.id) },
    h('span', {}, opening(run.nodes)), ' ', h('span', { class: 'hint' }, `${count(run.nodes.length, 'span')}${head.byHand ? ', taken by hand' : ''}`));
  return h('li', {}, button, run.after.length > 0 && list(run.after, shown, choose));
}

const list = (runs, shown, choose) => h('ul', { class: 'tree' }, ...runs.map((run) => item(run, shown, choose)));

// Shows the branches in `place`, if there are any. `choose(id)` is called with the last node of a run.
export function showBranches(place, section, tree, choose) {
  const runs = tree.runs();
  section.hidden = runs.length < 2 && (runs[0]?.after.length ?? 0) === 0;
  const shown = new Set(tree.path().map((node) => node.id));
  keepingFocus(place, () => place.replaceChildren(list(runs, shown, choose)), () => [...place.querySelectorAll('[aria-current]')].at(-1));
}
