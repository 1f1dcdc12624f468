// An answer under way: its steps as they come, and edits of its weights.

import { edit, stream } from './api.js';

// Milliseconds from one edit to the next, however fast weights are dragged.
const PAUSE = 100;

export class Run {
  #stop = new AbortController();
  #id = null;
  #change = null;
  #editing = false;

  // `chosen` is called with each step and what is said with it, `ended` with what is said after the last step and whether
  // the answer is over, `refused` with the error of an edit.
  constructor(request, { chosen, ended = () => {}, refused = () => {} }) {
    this.request = request;
    this.chosen = chosen;
    this.ended = ended;
    this.refused = refused;
  }

  // Resolves to the usage at the end, and to null where it was stopped.
  async follow() {
    let usage = null;
    try {
      for await (const chunk of stream(this.request, this.#stop.signal)) {
        this.#id ??= chunk.id;
        // Weights may have been moved before the answer had a name.
        this.#edit();
        const [{ delta, finish_reason: reason } = {}] = chunk.choices;
        if (chunk.swiss_knife?.step) this.chosen(chunk.swiss_knife.step, delta.content);
        else if (delta?.content || reason) this.ended(delta?.content ?? '', reason === 'stop');
        usage = chunk.usage ?? usage;
      }
      return usage;
    } catch (error) {
      if (error.name === 'AbortError') return null;
      throw error;
    } finally {
      this.#id = null;
      this.#change = null;
    }
  }

  stop() {
    this.#stop.abort();
  }

  // Changes weights or blades from the next step on. Of several weights within a pause the last ones count.
  change({ weights, blades }) {
    const before = this.#change ?? {};
    this.#change = { ...before, weights, ...(blades ? { blades: { ...before.blades, ...blades } } : {}) };
    this.#edit();
  }

  async #edit() {
    if (this.#editing || !this.#change || !this.#id) return;
    this.#editing = true;
    const change = this.#change;
    this.#change = null;
    const pause = new Promise((resume) => setTimeout(resume, PAUSE));
    await edit(this.#id, change).catch(this.refused);
    await pause;
    this.#editing = false;
    this.#edit();
  }
}
