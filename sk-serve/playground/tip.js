// Explanations, shown on hover and on focus alike.

import { byId } from './dom.js';

// What the words are about, and where in it they belong.
let owner = null;
let offset = null;

export function hideTip() {
  byId('tip').hidden = true;
  owner?.removeAttribute('aria-describedby');
  owner = null;
}

function place() {
  const [tip, box] = [byId('tip'), owner.getBoundingClientRect()];
  const [x, y] = [box.left + offset.x, box.top + offset.y];
  const below = y + 18;
  tip.style.left = `${Math.max(8, Math.min(x, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${below + tip.offsetHeight > innerHeight ? Math.max(8, y - tip.offsetHeight - 12) : below}px`;
}

// Shows words near a point of an element, counted from its corner.
export function showTip(element, text, point) {
  [owner, offset] = [element, point];
  byId('tip').textContent = text;
  byId('tip').hidden = false;
  place();
}

function explain(element) {
  if (element === owner) return;
  hideTip();
  showTip(element, element.dataset.tip, { x: 0, y: element.getBoundingClientRect().height - 10 });
  element.setAttribute('aria-describedby', 'tip');
}

export function installTips() {
  // A label explains what its control does.
  const under = ({ target }) => target.closest?.('[data-tip]') ?? target.closest?.('label')?.control?.closest('[data-tip]');
  // What scrolls under a pointer that rests is not pointed at.
  let rest = null;
  const where = ({ clientX, clientY }) => `${clientX} ${clientY}`;
  document.addEventListener('pointermove', (event) => { rest = where(event); }, { passive: true });
  document.addEventListener('pointerover', (event) => {
    if (where(event) === rest) return;
    const element = under(event);
    if (element) explain(element);
    else if (!event.target.closest?.('[data-chart]')) hideTip();
  });
  document.addEventListener('focusin', (event) => under(event)?.matches(':focus-visible') && explain(under(event)));
  document.addEventListener('focusout', hideTip);
  // What has the focus comes into view by scrolling; what is pointed at scrolls away.
  document.addEventListener('scroll', () => (owner?.matches(':focus') ? place() : hideTip()), { capture: true, passive: true });
  document.addEventListener('keydown', (event) => event.key === 'Escape' && hideTip());
}
