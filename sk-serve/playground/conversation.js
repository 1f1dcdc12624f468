// The conversation that an answer belongs to: a system line, earlier turns, and the prompt that waits.

import { count, h } from './dom.js';

// The messages of a request. What is blank was not said.
export function messagesOf({ system, turns, prompt }) {
  const spoken = turns.flatMap(({ asked, answered }) => [['user', asked], ['assistant', answered]]);
  const all = [['system', system], ...spoken, ['user', prompt]];
  return all.filter(([, content]) => content.trim()).map(([role, content]) => ({ role, content }));
}

// Earlier turns in `place`, to be typed over, with the newest in sight. `change(turns, focus)` is called with what they are
// then; with `focus`, there are fewer and they want to be shown again.
export function showTurns(place, turns, change) {
  let now = turns;
  const field = (index, name, label) => {
    const id = `turn-${index}-${name}`;
    const type = ({ target }) => {
      now = now.with(index, { ...now[index], [name]: target.value });
      change(now, false);
    };
    return [h('label', { for: id }, label), h('textarea', { id, dir: 'auto', rows: 1, oninput: type }, now[index][name])];
  };
  place.replaceChildren(...turns.map((_, index) => h('li', {},
    ...field(index, 'asked', `Turn ${index + 1}, asked`),
    ...field(index, 'answered', `Turn ${index + 1}, answered`),
    h('button', { type: 'button', 'aria-label': `Remove turn ${index + 1}`, onclick: () => change(now.toSpliced(index, 1), true) }, 'Remove'))));
  place.scrollTop = place.scrollHeight;
}

const WHO = { system: 'System', user: 'Asked', assistant: 'Answered' };

// What an answer is an answer to.
export function showAsked(place, asked) {
  if (!asked) {
    place.replaceChildren();
    return;
  }
  const before = messagesOf({ ...asked, prompt: '' });
  const earlier = before.map(({ role, content }) => h('p', {}, h('strong', {}, `${WHO[role]}: `), h('bdi', {}, content)));
  place.replaceChildren(
    before.length > 0 ? h('details', {}, h('summary', {}, `After ${count(before.length, 'message')}`), ...earlier) : '',
    h('p', { dir: 'auto' }, asked.prompt));
}
