// Fake answers, generated in the browser.

// Replaces `fetch` in the page, so that each answer has `steps` steps of `text`, one every `pause`
// milliseconds. `said` has the content of each chunk, `text` if it is left out, and of one more at the end.
export function made({ steps, text, pause, said }) {
  const step = (index) => ({
    step: index,
    chosen: index % 12,
    weights: { harmless: 0.5, helpful: 0.3, honest: 0.2 },
    influence: { harmless: 0.5, helpful: 0.3, honest: 0.2 },
    certificate: { radius: 0.01 },
    candidates: Array.from({ length: 12 }, (_, k) => ({
      text,
      tokens: [1, 2, 3],
      ends: false,
      probability: k === index % 12 ? 0.45 : 0.05,
      rating: 1500 + k,
      mu: k / 12,
      sigma: 0.5,
      fluency: -1,
      blades: Object.fromEntries(['harmless', 'helpful', 'honest'].map((name, n) => [name, { mu: -k / 10, sigma: 0.2, contribution: (k === index % 12 && n === index % 3) ? 1 : 0 }])),
    })),
  });
  const chunk = (more) => ({ id: 'chatcmpl-made', object: 'chat.completion.chunk', created: 0, model: 'made', ...more });
  const saying = (content, reason = null) => [{ index: 0, delta: { content }, finish_reason: reason }];
  const usage = { prompt_tokens: 1, completion_tokens: 3 * steps, swiss_knife: { steps, drafted_tokens: 36 * steps, seconds: { draft: 1 } } };
  const real = window.fetch;
  window.fetch = async (address, options) => {
    if (!String(address).endsWith('v1/chat/completions')) return real(address, options);
    const bytes = new TextEncoder();
    const body = new ReadableStream({
      async start(stream) {
        options.signal?.addEventListener('abort', () => stream.error(options.signal.reason));
        const send = (data) => stream.enqueue(bytes.encode(`data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`));
        for (let index = 0; index < steps; index += 1) {
          send(chunk({ choices: saying(said?.[index] ?? text), swiss_knife: { step: step(index) } }));
          await new Promise((resume) => setTimeout(resume, pause));
        }
        if (said) send(chunk({ choices: saying(said[steps], 'stop') }));
        send(chunk({ choices: [], usage }));
        send('[DONE]');
        stream.close();
      },
    });
    return new Response(body, { headers: { 'content-type': 'text/event-stream' } });
  };
}
