// Tests a server with openai-node, in Chromium: openai_browser.mjs URL ORIGIN. The server must
// allow pages of ORIGIN.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';

import { chromium } from 'playwright-core';

import { check } from './openai_calls.mjs';

const [url, origin] = process.argv.slice(2);
const { port } = new URL(origin);
const PAGE = '<!doctype html><script type="importmap">{"imports": {"openai": "/node_modules/openai/index.mjs"}}</script>';

async function answer(request, response) {
  const { pathname } = new URL(request.url, origin);
  const body = pathname === '/' ? PAGE : await readFile(new URL(`.${pathname}`, import.meta.url)).catch(() => null);
  response.writeHead(body ? 200 : 404, { 'content-type': pathname === '/' ? 'text/html' : 'text/javascript' }).end(body);
}

async function seen(browser, origin) {
  const page = await browser.newPage();
  await page.goto(origin);
  return page.evaluate(async (url) => {
    const [{ default: OpenAI }, { calls }] = await Promise.all([import('openai'), import('/openai_calls.mjs')]);
    return calls(OpenAI, url, { dangerouslyAllowBrowser: true, maxRetries: 0 });
  }, url);
}

const pages = createServer(answer).listen(port);
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
try {
  check(assert, await seen(browser, origin));
  await assert.rejects(seen(browser, `http://127.0.0.1:${port}`), /Connection error/, 'a page of another origin used the server');
  console.log('openai-node in Chromium');
} finally {
  await browser.close();
  pages.close();
}
