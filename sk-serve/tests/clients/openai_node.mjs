// openai-node against a server: plain and streamed, with what is ours beside the fields of OpenAI.

import assert from 'node:assert/strict';
import OpenAI from 'openai';

const model = 'swiss-knife';
const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: 'none' });
const asked = {
  model,
  messages: [{ role: 'user', content: 'How do I clean my bicycle?' }],
  seed: 7,
  swiss_knife: { weights: { helpful: 1 }, explain: true },
};

const whole = await client.chat.completions.create(asked);
const text = whole.choices[0].message.content;
assert.ok(text.length > 0);

let joined = '';
let edited = false;
for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) {
  joined += chunk.choices[0]?.delta.content ?? '';
  if (chunk.swiss_knife) assert.deepEqual(chunk.swiss_knife.step.weights, { helpful: 1 });
}
assert.equal(joined, text);

// Weights change while it answers.
const seen = [];
const long = { ...asked, max_tokens: 200, stream: true, swiss_knife: { ...asked.swiss_knife, set: ['granularity.span_tokens=2'] } };
for await (const chunk of await client.chat.completions.create(long)) {
  if (!edited) {
    edited = true;
    const edit = await fetch(`${process.argv[2]}/swiss-knife/generations/${chunk.id}`, {
      method: 'PATCH',
      body: JSON.stringify({ weights: { harmless: 1 } }),
    });
    assert.equal(edit.status, 200, await edit.text());
  }
  if (chunk.swiss_knife) seen.push(Object.keys(chunk.swiss_knife.step.weights).join());
}
assert.ok(seen.length > 0 && seen.at(-1) === 'harmless', seen);

await assert.rejects(client.chat.completions.create({ ...asked, model: 'gpt-5' }), OpenAI.NotFoundError);
console.log('openai-node');
