// What repeats an answer: its trace, a command line, and a snippet.

import { h } from './dom.js';
import { fields, sameWeights, shares } from './settings.js';

// What neither the command line nor one request repeats.
function doneByHand(nodes) {
  const moved = nodes.filter((node, k) => k > 0 && !sameWeights(nodes[k - 1].step.weights, node.step.weights)).length;
  const taken = nodes.filter((node) => node.byHand).length;
  return [
    moved > 0 && 'Weights were moved while it was written: what repeats is the answer up to there.',
    taken > 0 && 'Candidates were taken by hand: they are in the prefix of the Python snippet, and not in the command line.',
  ].filter(Boolean);
}

const quoted = (text) => (/^[\w.,:=/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

const assignments = (weights) => Object.entries(shares(weights)).map(([name, weight]) => `${name}=${weight}`).join(',');

export function command(settings, about, nodes) {
  const words = [['--seed', settings.seed], ['--max-new-tokens', settings.tokens], ['--weights', assignments(settings.weights)]];
  if (settings.scheme !== about.defaults.scheme) words.push(['--scheme', settings.scheme]);
  if (settings.preset) words.push(['--preset', settings.preset]);
  for (const field of fields(settings, about)) words.push(['--set', field]);
  if (settings.temperature !== about.defaults.temperature) words.push(['--draft-temperature', settings.temperature]);
  for (const [name, text] of Object.entries(settings.blades)) words.push(['--blade', `${name}=instruction:${text}`]);
  const options = words.map(([option, value]) => `${option} ${quoted(String(value))}`);
  // A prompt may begin with a dash.
  const lines = ['swiss-knife generate', ...options, `-- ${quoted(settings.prompt)}`].join(' \\\n  ');
  const notes = ['Options of models that the server was started with come in addition.', ...doneByHand(nodes)];
  return `${notes.map((note) => `# ${note}`).join('\n')}\n${lines}\n`;
}

// JSON as Python writes it. Strings are the same in both.
function python(value, indent) {
  const inner = `${indent}    `;
  if (value === true) return 'True';
  if (value === false) return 'False';
  if (value === null) return 'None';
  if (Array.isArray(value)) return `[${value.map((item) => python(item, inner)).join(', ')}]`;
  if (typeof value !== 'object') return JSON.stringify(value);
  return `{\n${Object.entries(value).map(([name, item]) => `${inner}${JSON.stringify(name)}: ${python(item, inner)},\n`).join('')}${indent}}`;
}

export function snippet(request, about, nodes, origin) {
  const { swiss_knife: steering, ...rest } = request;
  const fieldsOf = Object.entries(rest).map(([name, value]) => `    ${name}=${python(value, '    ')},\n`).join('');
  return `${doneByHand(nodes).map((note) => `# ${note}\n`).join('')}from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(`${origin}/v1`)}, api_key="none")
answer = client.chat.completions.create(
    model=${JSON.stringify(about.model)},
${fieldsOf}    extra_body={"swiss_knife": ${python(steering, '    ')}},
)
print(answer.choices[0].message.content)
`;
}

// Everything about the answer that is shown, and how it came about.
export const trace = (settings, about, tree) => ({
  model: about.model,
  version: about.version,
  settings,
  request: tree.first,
  last_request: tree.last,
  steps: tree.path().map(({ step, choice, byHand }) => ({ ...step, kept: choice, by_hand: byHand })),
});

export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  h('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
