// The calls that openai-node makes, in Node and in a browser: plain and streamed, with this
// server's own fields beside those of OpenAI.

export async function calls(OpenAI, url, options = {}) {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', ...options });
  const asked = {
    model: 'swiss-knife',
    messages: [{ role: 'user', content: 'How do I clean my bicycle?' }],
    seed: 7,
    swiss_knife: { weights: { helpful: 1 }, explain: true },
  };

  const whole = (await client.chat.completions.create(asked)).choices[0].message.content;

  let streamed = '';
  const weights = [];
  for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) {
    streamed += chunk.choices[0]?.delta.content ?? '';
    if (chunk.swiss_knife) weights.push(chunk.swiss_knife.step.weights);
  }

  // Change the weights while an answer is under way. On a busy machine it may be over before the change
  // arrives; another one is then changed.
  let [edit, edited] = [null, []];
  const long = { ...asked, max_tokens: 200, stream: true, swiss_knife: { ...asked.swiss_knife, set: ['granularity.span_tokens=2', 'proposal.candidates=64'] } };
  for (let attempt = 0; attempt < 10 && edited.at(-1) !== 'harmless'; attempt += 1) {
    [edit, edited] = [null, []];
    for await (const chunk of await client.chat.completions.create(long)) {
      if (edit === null) {
        const body = JSON.stringify({ weights: { harmless: 1 } });
        const response = await fetch(`${url}/swiss-knife/generations/${chunk.id}`, { method: 'PATCH', body });
        edit = { status: response.status, text: await response.text() };
      }
      if (chunk.swiss_knife) edited.push(Object.keys(chunk.swiss_knife.step.weights).join());
    }
  }

  const refusal = await client.chat.completions.create({ ...asked, model: 'gpt-5' }).catch((error) => error);
  return { whole, streamed, weights, edit, edited, refused: refusal instanceof OpenAI.NotFoundError };
}

export function check(assert, { whole, streamed, weights, edit, edited, refused }) {
  assert.ok(whole.length > 0);
  assert.equal(streamed, whole);
  assert.ok(weights.length > 0);
  for (const each of weights) assert.deepEqual(each, { helpful: 1 });
  assert.equal(edit.status, 200, edit.text);
  assert.equal(edited.at(-1), 'harmless');
  assert.ok(refused, 'a model that is not there was not refused');
}
