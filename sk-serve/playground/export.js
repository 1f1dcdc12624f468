// What repeats an answer: its trace, a command line, and a snippet.

import { h } from './dom.js';
import { sameWeights } from './settings.js';
import { heldAfter, textsOf, tokensOf } from './tree.js';

const MOVED = 'Weights were moved while it was written: what repeats is the answer up to there.';
const CUT = 'The answer was stopped, or cut back: what repeats begins with it and goes on.';
const LATER = 'Candidates were taken by hand, or the answer went on from an earlier span: the Python snippet repeats that, this does not.';

const wereMoved = (nodes) => nodes.some((node, k) => k > 0 && !sameWeights(nodes[k - 1].step.weights, node.step.weights));

// Whether a request would have written more than these spans.
const isCut = (nodes, request) => {
  const last = nodes.at(-1);
  return last !== undefined && !last.over && !last.step.candidates[last.choice].ends && tokensOf(nodes).length < request.max_tokens;
};

const notes = (...lines) => lines.filter(Boolean).map((line) => `# ${line}\n`).join('');

const quoted = (text) => (/^[\w.,:=/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

const WHO = { user: 'Human', assistant: 'Assistant' };

// What is asked, as one argument; several turns are in the framing that the command takes for a dialogue.
function argument(spoken) {
  if (spoken.length === 1) return spoken[0].content;
  return `${spoken.map(({ role, content }) => `\n\n${WHO[role]}: ${content}`).join('')}\n\nAssistant:`;
}

// The command line that repeats an answer from its first request, which is `otherwise` where there is none yet.
export function command(tree, otherwise) {
  const request = tree.requests[0] ?? otherwise;
  const path = tree.path();
  const { weights, scheme, preset, set = [], blades = {} } = request.swiss_knife;
  const system = request.messages.find(({ role }) => role === 'system');
  const words = [['--seed', request.seed], ['--max-new-tokens', request.max_tokens]];
  if (weights) words.push(['--weights', Object.entries(weights).map(([name, weight]) => `${name}=${weight}`).join(',')]);
  if (scheme) words.push(['--scheme', scheme]);
  if (preset) words.push(['--preset', preset]);
  for (const field of set) words.push(['--set', field]);
  if (request.temperature !== undefined) words.push(['--draft-temperature', request.temperature]);
  for (const [name, source] of Object.entries(blades)) words.push(['--blade', `${name}=${source}`]);
  if (system) words.push(['--system', system.content]);
  // What is typed may begin with a dash.
  const options = words.map(([option, value]) => `${option}${String(value).startsWith('-') ? '=' : ' '}${quoted(String(value))}`);
  const prompt = argument(request.messages.filter((message) => message !== system));
  const lines = ['swiss-knife generate', ...options, `-- ${quoted(prompt)}`].join(' \\\n  ');
  const isLater = path.some((node) => node.request !== 0);
  const remarks = ['Options that the server was started with come in addition.', wereMoved(path) && MOVED, isLater ? LATER : isCut(path, request) && CUT];
  return `${notes(...remarks)}${lines}\n`;
}

// JSON as Python writes it. Strings are the same in both.
function python(value, indent) {
  const inner = `${indent}    `;
  if (value === true) return 'True';
  if (value === false) return 'False';
  if (value === null) return 'None';
  if (typeof value !== 'object') return JSON.stringify(value);
  const items = Array.isArray(value) ? value : Object.values(value);
  const isFlat = Array.isArray(value) ? items.every((item) => typeof item !== 'object') : items.every((item) => typeof item === 'string');
  if (Array.isArray(value)) {
    return isFlat ? `[${items.map((item) => python(item, inner)).join(', ')}]` : `[\n${items.map((item) => `${inner}${python(item, inner)},\n`).join('')}${indent}]`;
  }
  if (isFlat) return `{${Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}: ${JSON.stringify(item)}`).join(', ')}}`;
  return `{\n${Object.entries(value).map(([name, item]) => `${inner}${JSON.stringify(name)}: ${python(item, inner)},\n`).join('')}${indent}}`;
}

// The last request of the answer that is shown, the spans that it went on from, and those that it wrote.
function lastOf(tree, otherwise) {
  const path = tree.path();
  const index = path.length > 0 ? path.at(-1).request : 0;
  const at = index === null ? path.length : path.findIndex((node) => node.request === index);
  const [before, written] = at < 0 ? [[], []] : [path.slice(0, at), path.slice(at)];
  const request = tree.requests[index ?? 0] ?? otherwise;
  const prefix = tokensOf(before);
  const steering = { ...request.swiss_knife, ...(prefix.length > 0 ? { prefix } : {}) };
  return { request: { ...request, swiss_knife: steering }, before, written };
}

// The snippet that repeats an answer through the server whose page is at `address`.
export function snippet(tree, otherwise, about, address) {
  const { request, before, written } = lastOf(tree, otherwise);
  const { swiss_knife: steering, ...rest } = request;
  const begun = before.length > 0 ? `${JSON.stringify((textsOf(before) + heldAfter(before)).trimStart())} + ` : '';
  const fieldsOf = Object.entries(rest).map(([name, value]) => `    ${name}=${python(value, '    ')},\n`).join('');
  const key = about.key_required ? 'os.environ["SWISS_KNIFE_SERVE_KEY"]' : '"none"';
  return `${notes(wereMoved(written) && MOVED, isCut(written, request) && CUT)}${about.key_required ? 'import os\n\n' : ''}from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(`${address}v1`)}, api_key=${key})
answer = client.chat.completions.create(
    model=${JSON.stringify(about.model)},
${fieldsOf}    extra_body={"swiss_knife": ${python(steering, '    ')}},
)
print(${begun}answer.choices[0].message.content)
`;
}

// Everything about the answer that is shown, and how it came about.
export const trace = (settings, about, tree) => ({
  model: about.model,
  version: about.version,
  settings,
  requests: tree.requests,
  steps: tree.path().map(({ step, choice, request, byHand }) => ({ ...step, kept: choice, by_hand: byHand, request })),
});

export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  h('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
