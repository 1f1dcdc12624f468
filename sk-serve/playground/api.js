// The server: requests, streams and errors. Addresses are relative to the page, which a proxy may
// put under a prefix.

const KEY = 'swiss-knife-key';
const LOST = 'The server was lost in the middle of the answer.';

// An error of the server, or of the way to it, in words that can be shown.
export class ServerError extends Error {
  constructor(message, { status = 0, after = null } = {}) {
    super(message);
    this.status = status;
    // When the server wants to be asked again: seconds, or a date.
    this.after = after;
  }

  // Whether the server could not be reached, or was lost.
  get isLost() {
    return this.status === 0;
  }
}

// The key lives as long as the tab.
export const keepKey = (key) => sessionStorage.setItem(KEY, key);
export const dropKey = () => sessionStorage.removeItem(KEY);

export const hasKey = () => sessionStorage.getItem(KEY) !== null;

function headers() {
  const key = sessionStorage.getItem(KEY);
  return { 'content-type': 'application/json', ...(key ? { authorization: `Bearer ${key}` } : {}) };
}

async function refusal(response) {
  const body = await response.json().catch(() => ({}));
  const message = body.error?.message ?? `the answer has status ${response.status}`;
  const after = response.headers.get('retry-after');
  return new ServerError(message, { status: response.status, after });
}

async function ask(path, { method = 'GET', body, signal } = {}) {
  let response;
  try {
    response = await fetch(path, { method, headers: headers(), body: body && JSON.stringify(body), signal });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ServerError('The server cannot be reached.');
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

// What the server has to offer.
export const about = async () => (await ask('swiss-knife')).json();

// Whether the server takes requests.
export const isReady = () => ask('ready').then(() => true, () => false);

// Fails where the server does not take the key.
export const knock = () => ask('v1/models');

// The whole answer to a request.
export const answer = async (body, signal) => (await ask('v1/chat/completions', { method: 'POST', body, signal })).json();

// Edits an answer under way. Returns whether there still is one.
export async function edit(id, change) {
  try {
    await ask(`swiss-knife/generations/${encodeURIComponent(id)}`, { method: 'PATCH', body: change });
    return true;
  } catch (error) {
    if (error.status === 404) return false;
    throw error;
  }
}

async function next(reader) {
  try {
    const part = await reader.read();
    if (!part.done) return part.value;
  } catch (error) {
    if (error.name === 'AbortError') throw error;
  }
  throw new ServerError(LOST);
}

// The chunks of an answer, as they come.
export async function* stream(body, signal) {
  const request = { ...body, stream: true, stream_options: { include_usage: true } };
  const response = await ask('v1/chat/completions', { method: 'POST', body: request, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const lines = (rest + (await next(reader))).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      // Other lines are comments, which keep the connection alive.
      if (!line.startsWith('data:')) continue;
      const data = line.slice('data:'.length).trim();
      if (data === '[DONE]') return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ServerError(chunk.error.message, { status: 500 });
      yield chunk;
    }
  }
}
