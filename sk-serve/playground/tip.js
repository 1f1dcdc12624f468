// Explanations, shown on hover and on focus alike.

import { byId } from './dom.js';

let owner = null;

export function hideTip() {
  byId('tip').hidden = true;
  owner?.removeAttribute('aria-describedby');
  owner = null;
}

function placeAt(tip, x, y) {
  tip.style.left = `${Math.max(8, Math.min(x, innerWidth - tip.offsetWidth - 8))}px`;
  const below = y + 18;
  tip.style.top = `${below + tip.offsetHeight > innerHeight ? Math.max(8, y - tip.offsetHeight - 12) : below}px`;
}

// Shows words near a point of the window.
export function showTipAt(x, y, text) {
  const tip = byId('tip');
  tip.textContent = text;
  tip.hidden = false;
  placeAt(tip, x, y);
}

function showFor(element) {
  if (element === owner) return;
  hideTip();
  owner = element;
  const box = element.getBoundingClientRect();
  showTipAt(box.left, box.bottom - 10, element.dataset.tip);
  element.setAttribute('aria-describedby', 'tip');
}

export function installTips() {
  const under = (event) => event.target.closest?.('[data-tip]');
  document.addEventListener('pointerover', (event) => {
    const element = under(event);
    if (element) showFor(element);
    else if (!event.target.closest?.('[data-chart]')) hideTip();
  });
  document.addEventListener('focusin', (event) => under(event)?.matches(':focus-visible') && showFor(under(event)));
  document.addEventListener('focusout', hideTip);
  document.addEventListener('scroll', hideTip, { capture: true, passive: true });
  document.addEventListener('keydown', (event) => event.key === 'Escape' && hideTip());
}
