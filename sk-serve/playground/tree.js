// An answer and its branches. A node is a span that was kept; a path from the root to the leaf is an answer.

const NOT_TEXT = /<\|[^<>|]*\|>$|<\/s>$|<eos>$/;

// The text of a candidate, without the mark that ends an answer.
export const textOf = (candidate) => (candidate.ends ? candidate.text.replace(NOT_TEXT, '') : candidate.text);

// The text of a node: what the server said with it, which is of whole characters and ends before a stop text.
export const saidOf = ({ step, choice, said }) => said ?? textOf(step.candidates[choice]);

// The tokens, and the text, of spans in a row.
export const tokensOf = (nodes) => nodes.flatMap(({ step, choice }) => step.candidates[choice].tokens);
export const textsOf = (nodes) => nodes.map(saidOf).join('');

// What the server held back at the end of spans in a row, since a stop text could begin there. What goes on from their tokens
// lacks it; a character that they begin is completed there.
export function heldAfter(nodes) {
  const own = nodes.map(({ step, choice }) => textOf(step.candidates[choice])).join('').trimStart();
  const said = textsOf(nodes).trimStart();
  return own.startsWith(said) ? own.slice(said.length).replace(/\uFFFD+$/, '') : '';
}

export class Tree {
  // Each node: the step that it was chosen in, which candidate was chosen, after which node, and in which request; a
  // candidate that was taken by hand is of none. What the server said with it, and whether it ended the answer there.
  nodes = [];
  leaf = -1;
  // The settings that are answered, with the conversation, and the bodies of requests, in their order.
  asked = null;
  requests = [];

  add(step, choice = step.chosen, request = this.requests.length - 1, { said, over } = {}) {
    this.nodes.push({ id: this.nodes.length, parent: this.leaf, step, choice, request, byHand: request === null, said, over });
    this.leaf = this.nodes.length - 1;
    return this.nodes[this.leaf];
  }

  // A node beside another one, of the same step but with another candidate. One that is there already is used again.
  addBeside(node, choice) {
    const twin = this.nodes.find((other) => other.parent === node.parent && other.step === node.step && other.choice === choice);
    this.leaf = twin ? twin.id : node.parent;
    return twin ?? this.add(node.step, choice, null, { said: heldAfter(this.path()) + textOf(node.step.candidates[choice]) });
  }

  path(leaf = this.leaf) {
    const nodes = [];
    for (let id = leaf; id >= 0; id = this.nodes[id].parent) nodes.push(this.nodes[id]);
    return nodes.reverse();
  }

  prefix() {
    return tokensOf(this.path());
  }

  text() {
    return textsOf(this.path()).trim();
  }

  isOver() {
    const node = this.nodes[this.leaf];
    return node !== undefined && (node.over || node.step.candidates[node.choice].ends);
  }

  // The newest leaf below a node.
  leafBelow(id) {
    const child = this.nodes.findLast((node) => node.parent === id);
    return child ? this.leafBelow(child.id) : id;
  }

  // Runs of spans without a fork, each with the runs after it.
  runs(parent = -1, children = Map.groupBy(this.nodes, (node) => node.parent)) {
    const after = (node) => children.get(node.id) ?? [];
    return (children.get(parent) ?? []).map((head) => {
      const nodes = [head];
      // A run also ends where the answer that is shown does, so that what came after it can be found.
      while (after(nodes.at(-1)).length === 1 && nodes.at(-1).id !== this.leaf) nodes.push(after(nodes.at(-1))[0]);
      return { nodes, after: this.runs(nodes.at(-1).id, children) };
    });
  }

  // All of it, as JSON can hold it; branches of one step share the step.
  toJSON() {
    const steps = [...new Set(this.nodes.map((node) => node.step))];
    const nodes = this.nodes.map(({ parent, step, choice, request, said, over }) => ({ parent, step: steps.indexOf(step), choice, request, said, over }));
    return { steps, nodes, leaf: this.leaf, asked: this.asked, requests: this.requests };
  }

  static of({ steps, nodes, leaf, asked, requests }) {
    const tree = new Tree();
    tree.nodes = nodes.map((node, id) => ({ ...node, id, step: steps[node.step], byHand: node.request === null }));
    return Object.assign(tree, { leaf, asked, requests });
  }

  // Only the answer that is shown, without its branches.
  pruned() {
    const tree = new Tree();
    for (const { step, choice, request, ...rest } of this.path()) tree.add(step, choice, request, rest);
    return Object.assign(tree, { asked: this.asked, requests: this.requests });
  }
}
