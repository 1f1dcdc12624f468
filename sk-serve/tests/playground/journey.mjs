// A journey over the page in a real browser: journey.mjs PROGRAM [SCREENSHOTS] starts PROGRAM, and writes pictures if it is told where.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';

import { chromium } from 'playwright-core';

import { made } from './made.mjs';
import { Server } from './server.mjs';

const MOST_BYTES = 300_000;
const LEAST_FRAMES = 20;
const MARKUP = '<img src=x onerror="window.wasMarkup = true">';

const [program, pictures] = process.argv.slice(2);
const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const server = new Server(program);
await server.start();
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });

// Faults that any page of the journey shows. A request may fail only while the server is away.
const faults = [];
let isAway = false;

function watch(context) {
  context.on('request', (request) => {
    const { protocol, hostname } = new URL(request.url());
    if (protocol.startsWith('http') && hostname !== '127.0.0.1') faults.push(`a request to ${hostname}`);
  });
  context.on('console', (message) => {
    const isFailure = /Failed to load resource|net::ERR/.test(message.text());
    if (message.type() === 'error' && !(isAway && isFailure)) faults.push(`console: ${message.text()}`);
  });
  context.on('weberror', (error) => faults.push(`error: ${error.error().stack}`));
}

async function open({ width = 1280, height = 900, hash = '', script = null, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, acceptDownloads: true, ...options });
  watch(context);
  const page = await context.newPage();
  if (script) await page.addInitScript(made, script);
  const bytes = [];
  page.on('response', (response) => bytes.push(response.body().then((body) => body.length, () => 0)));
  await page.goto(`${server.origin}/${hash}`);
  await page.locator('#sliders input[type=range]').first().waitFor();
  return { page, bytes };
}

const done = [];
async function part(name, act) {
  const began = performance.now();
  await act();
  assert.deepEqual(faults, [], name);
  done.push(name);
  console.log(`${name}: ${((performance.now() - began) / 1000).toFixed(1)} s`);
}

const picture = async (page, name, options = {}) => pictures && page.screenshot({ path: join(pictures, `${name}.jpeg`), quality: 70, ...options });
const spans = (page) => page.locator('#steered .span').allTextContents();
const isOver = (page) => page.waitForFunction(() => document.querySelector('#stop').disabled && document.querySelectorAll('#steered .span').length > 0);
const hasSpans = (page, least) => page.waitForFunction((least) => document.querySelectorAll('#steered .span').length >= least, least, { polling: 'raf' });

async function openSearch(page) {
  if (!(await page.locator('#seed').isVisible())) await page.locator('#search > summary').click();
}

async function answer(page, { prompt = 'How do I clean my bicycle?', span = 6, candidates = 12 } = {}) {
  await openSearch(page);
  await page.fill('#prompt', prompt);
  await page.fill('#span', String(span));
  await page.fill('#candidates', String(candidates));
  await page.click('#start');
}

// An answer that takes its time.
const slowly = (page) => answer(page, { prompt: 'How do I write a letter to a friend?', span: 1, candidates: 64 });

async function seriousFaults(page) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run());
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ target }) => target.join(' ')).slice(0, 5).join(', ')}`);
}

const overflow = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

try {
  const { page, bytes } = await open();

  await part('loads', async () => {
    const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime);
    const total = (await Promise.all(bytes)).reduce((sum, length) => sum + length, 0);
    console.log(`first paint after ${paint.toFixed(0)} ms, ${total} bytes`);
    assert.ok(total <= MOST_BYTES, `the page has ${total} bytes`);
    assert.ok((await page.request.get(server.origin)).headers()['content-security-policy'].startsWith("default-src 'self'"));
  });

  await part('types and streams', async () => {
    await page.selectOption('#beside', 'unsteered');
    await answer(page);
    await isOver(page);
    assert.ok((await spans(page)).length > 2);
    assert.ok((await page.locator('#beside-answer .span').count()) > 0);
    assert.match(await page.textContent('#steered-cost'), /tokens in \d+ steps/);
    assert.match(await page.textContent('#announcer'), /complete/);
    await page.locator('#steered .span').first().click();
    assert.match(await page.textContent('#step-title'), /Step 1 of/);
    assert.ok((await page.locator('#step .card').count()) > 1);
    await picture(page, 'answer');
  });

  await part('is moved by a keyboard', async () => {
    await page.focus('#triangle');
    for (let press = 0; press < 5; press += 1) await page.keyboard.press('ArrowUp');
    assert.equal(await page.textContent('#sliders output'), '0.43');
    await page.locator('#sliders .lock').first().check();
    await page.locator('#sliders input[type=range]').nth(1).focus();
    await page.keyboard.press('End');
    assert.deepEqual(await page.locator('#sliders output').allTextContents(), ['0.43', '0.57', '0.00']);
    await page.click('#even');
    await page.locator('#steered .span').first().focus();
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('Enter');
    assert.match(await page.textContent('#step-title'), /Step 2 of/);
  });

  await part('moves a weight in the middle of an answer', async () => {
    const edited = page.waitForResponse((response) => response.request().method() === 'PATCH');
    await slowly(page);
    await hasSpans(page, 3);
    await page.locator('#sliders input[type=range]').first().press('End');
    const response = await edited;
    assert.equal(response.status(), 200);
    assert.equal(response.request().postDataJSON().weights.harmless, 1);
    await page.locator('#steered .marker').first().waitFor();
    await isOver(page);
    assert.match(await page.locator('#steered .marker').last().getAttribute('aria-label'), /harmless 1\.00/);
    await picture(page, 'weights-moved');
    await page.click('#even');
  });

  await part('takes another candidate', async () => {
    await page.selectOption('#beside', '');
    await answer(page);
    await isOver(page);
    const before = await spans(page);
    await page.locator('#steered .span').nth(1).click();
    const text = (await page.locator('.card:not(.chosen) blockquote').first().textContent()).replace(/ ends the answer$/, '');
    const asked = page.waitForRequest((request) => request.method() === 'POST');
    await page.locator('.card:not(.chosen) .take').first().click();
    assert.ok((await asked).postDataJSON().swiss_knife.prefix.length > 0);
    await page.locator('#steered .by-hand').waitFor();
    await isOver(page);
    const after = await spans(page);
    assert.equal(after[0], before[0]);
    assert.equal(after[1].trim(), text);
  });

  await part('branches', async () => {
    const after = await spans(page);
    await page.locator('#branches .branch').first().waitFor();
    assert.ok((await page.locator('#branches .branch').count()) >= 3);
    await picture(page, 'branches');
    await page.locator('#branches .branch:not([aria-current])').first().click();
    assert.notDeepEqual(await spans(page), after);
    assert.equal(await page.locator('#steered .by-hand').count(), 0);
  });

  await part('rewinds and goes on', async () => {
    const before = await spans(page);
    await page.locator('#steered .span').first().click();
    await page.click('#step .rewind');
    assert.deepEqual(await spans(page), before.slice(0, 1));
    await page.click('#go-on');
    await page.waitForFunction(() => document.querySelectorAll('#steered .span').length > 1);
    await isOver(page);
    assert.equal((await spans(page))[0], before[0]);
  });

  await part('seats a blade of an instruction', async () => {
    await page.getByText('Blades from an instruction').click();
    await page.fill('#blade-name', 'calm');
    await page.fill('#blade-text', 'Answer calmly.');
    await page.click('#add-blade');
    assert.equal(await page.locator('#sliders input[type=range]').count(), 4);
    await answer(page);
    await isOver(page);
    assert.match(await page.textContent('#step-body'), /calm/);
    await page.getByRole('button', { name: 'Remove the blade calm' }).click();
    await page.locator('#triangle').waitFor();
  });

  await part('sweeps', async () => {
    await page.click('#sweep');
    await page.waitForFunction(() => document.querySelectorAll('#sweep-result .dot').length === 15, null, { timeout: 120_000 });
    assert.equal(await page.locator('#sweep-result tbody tr').count(), 15);
    await page.locator('#sweep-result').scrollIntoViewIfNeeded();
    await picture(page, 'sweep');
  });

  await part('exports', async () => {
    const download = page.waitForEvent('download');
    await page.click('#export-trace');
    const trace = JSON.parse(await readFile(await (await download).path(), 'utf8'));
    assert.equal(trace.steps.length, (await spans(page)).length);
    await page.click('#export-command');
    assert.match(await page.textContent('#exported'), /swiss-knife generate[^]+--seed 42[^]+'How do I clean my bicycle\?'/);
    await page.click('#export-python');
    assert.match(await page.textContent('#exported'), /from openai import OpenAI[^]+granularity\.span_tokens=6/);
  });

  await part('keeps its state', async () => {
    await page.locator('#sliders input[type=range]').first().press('End');
    await page.getByText('Settings to keep and share').click();
    await page.fill('#kept-name', 'only harmless');
    await page.click('#keep');
    await page.click('#share');
    const hash = new URL(await page.locator('#shared a').getAttribute('href')).hash;
    const before = await spans(page);
    await page.reload();
    await page.locator('#steered .span').first().waitFor();
    assert.deepEqual(await spans(page), before);
    assert.deepEqual(await page.locator('#sliders output').allTextContents(), ['1.00', '0.00', '0.00']);
    assert.ok((await page.locator('#kept option').allTextContents()).includes('only harmless'));
    const other = await open({ hash });
    assert.deepEqual(await other.page.locator('#sliders output').allTextContents(), ['1.00', '0.00', '0.00']);
    await other.page.context().close();
    await page.click('#even');
  });

  await part('loses the server and finds it again', async () => {
    await slowly(page);
    await hasSpans(page, 3);
    isAway = true;
    await server.lose();
    await page.locator('#notice').getByText('The server was lost').waitFor();
    const before = await spans(page);
    assert.ok(before.length >= 3);
    await picture(page, 'server-lost');
    await server.start();
    await page.locator('#retry:not([disabled])').waitFor({ timeout: 30_000 });
    isAway = false;
    await page.click('#retry');
    await page.waitForFunction((least) => document.querySelectorAll('#steered .span').length > least, before.length);
    await isOver(page);
    assert.deepEqual((await spans(page)).slice(0, before.length), before);
    assert.ok(await page.locator('#notice').isHidden());
  });

  await part('says what the server refuses', async () => {
    isAway = true;
    await page.route('**/v1/chat/completions', (route) => route.fulfill({ status: 429, headers: { 'retry-after': '7' }, json: { error: { message: 'too many answers wait' } } }));
    await page.click('#start');
    await page.locator('#notice').getByText('too many answers wait').waitFor();
    assert.match(await page.textContent('#notice'), /in 7 s/);
    await page.unroute('**/v1/chat/completions');
    await page.locator('#notice button').click();
    await isOver(page);
    isAway = false;
    await page.context().close();
  });

  await part('never takes text for markup', async () => {
    const { page } = await open({ script: { steps: 4, text: ` ${MARKUP}`, pause: 1 } });
    await page.getByText('Blades from an instruction').click();
    await page.fill('#blade-name', MARKUP);
    await page.fill('#blade-text', MARKUP);
    await page.click('#add-blade');
    await page.selectOption('#beside', 'weights');
    await answer(page, { prompt: MARKUP });
    await page.waitForFunction(() => document.querySelectorAll('#steered .span').length === 4);
    await isOver(page);
    await page.click('#export-command');
    assert.equal((await spans(page))[0], MARKUP);
    assert.equal(await page.textContent('#steered-question'), MARKUP);
    await page.reload();
    await page.locator('#steered .span').first().waitFor();
    assert.equal(await page.locator('img').count(), 0);
    assert.equal(await page.evaluate(() => window.wasMarkup), undefined);
    await page.context().close();
  });

  await part('streams smoothly', async () => {
    const { page } = await open({ script: { steps: 200, text: ' and so on,', pause: 16 } });
    await page.evaluate(() => {
      window.frames_ = [];
      const frame = (time) => {
        window.frames_.push(time);
        requestAnimationFrame(frame);
      };
      requestAnimationFrame(frame);
    });
    const begun = await page.evaluate(() => window.frames_.length);
    await page.click('#start');
    await page.waitForFunction(() => document.querySelectorAll('#steered .span').length === 200, null, { timeout: 60_000 });
    const times = await page.evaluate((begun) => window.frames_.slice(begun), begun);
    const rate = (1000 * (times.length - 1)) / (times.at(-1) - times[0]);
    console.log(`${rate.toFixed(0)} frames a second over 200 steps`);
    assert.ok(rate >= LEAST_FRAMES, `${rate} frames a second`);
    await page.context().close();
  });

  await part('is accessible and fits', async () => {
    for (const width of [390, 1280, 2560]) {
      for (const colorScheme of ['light', 'dark']) {
        const { page } = await open({ width, colorScheme });
        await page.selectOption('#beside', 'weights');
        await answer(page);
        await isOver(page);
        await page.locator('#steered .span').nth(1).click();
        await page.locator('.card:not(.chosen) .take').first().click();
        await isOver(page);
        await page.evaluate(() => document.querySelectorAll('details').forEach((details) => { details.open = true; }));
        await page.click('#sweep');
        await page.waitForFunction(() => document.querySelectorAll('#sweep-result .dot').length === 15, null, { timeout: 120_000 });
        await page.click('#export-command');
        await picture(page, `${colorScheme}-${width}`, { fullPage: true });
        assert.ok((await overflow(page)) <= 0, `at ${width} pixels the page is ${await overflow(page)} too wide`);
        if (width < 2560) assert.deepEqual(await seriousFaults(page), [], `${colorScheme} at ${width}`);
        await page.check('input[value=probability]');
        if (width < 2560) assert.deepEqual(await seriousFaults(page), [], `${colorScheme} at ${width}, by probability`);
        await page.context().close();
      }
    }
  });

  console.log(`${done.length} parts of the journey are done`);
} finally {
  await browser.close();
  await server.lose();
}
