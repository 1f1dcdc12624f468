// What went wrong, in words, and what can be done about it.

import { dropKey, hasKey, isReady, keepKey, knock } from './api.js';
import { byId, h, keepingFocus } from './dom.js';

// Milliseconds between two looks at whether the server is back.
const LOOK = 1000;

let shown = 0;

export function clearNotice() {
  shown += 1;
  byId('notice').hidden = true;
  keepingFocus(byId('notice'), () => byId('notice').replaceChildren(), () => byId('answers'));
}

export function notice(...children) {
  clearNotice();
  byId('notice').replaceChildren(...children);
  byId('notice').hidden = false;
}

const action = (label, act, attributes = {}) => h('button', { type: 'button', ...attributes, onclick: () => { clearNotice(); act(); } }, label);

// Waits for the server, and then lets `label` do `act`.
async function waiting(error, label, act) {
  const state = h('span', {}, ' Waiting until it is back.');
  const button = action(label, act, { id: 'retry', disabled: true });
  notice(h('p', {}, error.message, state), h('p', { class: 'buttons' }, button));
  const mine = shown;
  while (shown === mine) {
    await new Promise((resume) => setTimeout(resume, LOOK));
    if (shown === mine && (await isReady())) {
      state.textContent = ' It is back.';
      button.disabled = false;
      return;
    }
  }
}

// Asks for the key that the server wants, and does `act` once it has the right one.
export function askKey(act) {
  const wanted = hasKey() ? 'The server does not know this key.' : 'The server wants a key.';
  dropKey();
  const input = h('input', { id: 'key', type: 'password', autocomplete: 'off', required: true, pattern: '[!-~]+', title: 'Letters, digits and signs, without blanks' });
  const use = async (event) => {
    event.preventDefault();
    keepKey(input.value);
    clearNotice();
    try {
      await knock();
      act();
    } catch (error) {
      fail(error, { label: 'Use the key', act });
    }
  };
  notice(
    h('p', {}, `${wanted} Whoever started the server knows it. It is kept in this tab only, and sent to this server only.`),
    h('form', { class: 'bar', onsubmit: use }, h('label', { for: 'key' }, 'Key'), input, h('button', { type: 'submit' }, 'Use this key')));
  input.focus();
}

const LOOPBACK = /^(localhost|127(\.\d+){3}|\[::1\])$/;

// What is to be known of a server that others reach too.
export function openness(about) {
  if (LOOPBACK.test(location.hostname)) return [];
  return [
    !about.key_required && `It wants no key, so whoever reaches ${location.host} may use it; started with SWISS_KNIFE_SERVE_KEY=KEY, it lets in those who have the key.`,
    location.protocol === 'http:' && 'What is sent is not encrypted: put a proxy with TLS before the server.',
  ].filter(Boolean);
}

// Statuses of a server, or of a proxy before it, that answers later.
const BUSY = [429, 502, 503, 504];

// Shows an error. `label` and `act` try again, where that may help.
export function fail(error, { label = 'Try again', act }) {
  if (error.isLost) waiting(error, label, act);
  else if (error.status === 401) askKey(act);
  else if (BUSY.includes(error.status)) {
    const when = /^\d+$/.test(error.after) ? ` It asks to be tried again in ${error.after} s.` : '';
    notice(h('p', {}, `The server is busy: ${error.message}.${when}`), h('p', { class: 'buttons' }, action(label, act)));
  } else {
    notice(h('p', {}, `The server refuses: ${error.message}.`));
  }
}
