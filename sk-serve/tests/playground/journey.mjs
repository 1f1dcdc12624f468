// Tests the page in a real browser: journey.mjs PROGRAM PYTHON FOLDER [PICTURES]. Starts PROGRAM,
// runs exported snippets with PYTHON, and writes pictures of whole pages into FOLDER and the
// pictures of the book into PICTURES.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { createServer, request } from 'node:http';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';

import { chromium } from 'playwright-core';

import { difference, nearest } from './colours.mjs';
import { made } from './made.mjs';
import { Server } from './server.mjs';
import { unexplained } from './unexplained.mjs';

const MOST_BYTES = 300_000;
// How often the page is loaded for the medians of the first paint.
const LOADS = 5;
// The least difference (CIEDE2000 ΔE) between two blades, with normal or colour-deficient vision. A
// difference of about 1 is just noticeable side by side.
const LEAST_APART = 9;
// The time-out of every wait, in milliseconds; long enough for a busy machine.
const PATIENCE = 120_000;
const MARKUP = '<img src=x onerror="window.wasMarkup = true">';
// A host name that only this browser resolves to this machine.
const OTHER_HOST = 'playground.test';
const KEY = 'a-secret-of-the-journey';

const [program, interpreter, folder, pictures] = process.argv.slice(2);
const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const server = new Server(program);
await server.start();
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', `--host-resolver-rules=MAP ${OTHER_HOST} 127.0.0.1`],
});

// Faults of any page. A request may fail only while `mayFail` is set.
const faults = [];
let mayFail = false;

function watch(context) {
  context.on('request', (request) => {
    const { protocol, hostname } = new URL(request.url());
    if (protocol.startsWith('http') && !['127.0.0.1', OTHER_HOST].includes(hostname)) faults.push(`a request to ${hostname}`);
  });
  context.on('console', (message) => {
    const isFailure = /Failed to load resource|net::ERR/.test(message.text());
    // Browsers request an icon even if the page has none.
    const isIcon = message.location().url.endsWith('/favicon.ico');
    if (message.type() === 'error' && !((mayFail || isIcon) && isFailure)) faults.push(`console: ${message.text()}`);
  });
  context.on('weberror', (error) => faults.push(`error: ${error.error().stack}`));
}

async function open({ width = 1280, height = 900, origin = server.origin, hash = '', script = null, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, acceptDownloads: true, ...options });
  context.setDefaultTimeout(PATIENCE);
  watch(context);
  const page = await context.newPage();
  if (script) await page.addInitScript(made, script);
  const bytes = [];
  page.on('response', (response) => bytes.push(response.body().then((body) => body.length, () => 0)));
  await page.goto(`${origin}/${hash}`);
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

// Takes a picture for the book: of an element, or of the top of the page at three quarters of its
// size.
async function picture(page, name, selector = null) {
  if (!pictures) return;
  const path = join(pictures, `${name}.jpeg`);
  await page.mouse.move(0, 0);
  if (selector) {
    await page.locator(selector).screenshot({ path, quality: 50, animations: 'disabled' });
    return;
  }
  await page.evaluate(() => scrollTo(0, 0));
  const session = await page.context().newCDPSession(page);
  const clip = { x: 0, y: 0, width: 1280, height: 720, scale: 0.75 };
  await writeFile(path, Buffer.from((await session.send('Page.captureScreenshot', { format: 'jpeg', quality: 50, clip })).data, 'base64'));
}

const run = promisify(execFile);
const spans = (page) => page.locator('#steered .span').allTextContents();
const isOver = (page) => page.waitForFunction(() => document.querySelector('#stop').disabled && document.querySelectorAll('#steered .span').length > 0);

const median = (values) => values.sort((one, other) => one - other)[Math.floor(values.length / 2)].toFixed(0);

const firstPaint = async (page) => {
  const entry = await page.waitForFunction(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime);
  return entry.jsonValue();
};

const isSwept = (page) => page.waitForFunction(() => document.querySelectorAll('#sweep-result .dot').length === 15 && document.querySelector('#sweep-stop').disabled);

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

const text = async (page) => (await spans(page)).join('').trim();

async function addBlade(page, name, text) {
  await page.fill('#blade-name', name);
  await page.fill('#blade-text', text);
  await page.click('#add-blade');
}

async function exported(page, kind) {
  await page.click(`#export-${kind}`);
  return page.textContent('#exported');
}

// The outputs of the exported command and of the exported snippet.
async function byCommand(page) {
  const env = { ...process.env, PATH: `${dirname(program)}:${process.env.PATH}` };
  return (await run('bash', ['-c', await exported(page, 'command')], { env })).stdout.trim();
}
const byPython = async (page) => (await run(interpreter, ['-c', await exported(page, 'python')])).stdout.trim();

// Runs `act` on an answer that has some spans and, as far as the page knows, is not complete, while
// the server is stopped. On a busy machine the page may learn too late that it is complete; `act`
// then returns false, and another answer starts.
async function inTheMiddle(page, act) {
  for (let attempt = 0; attempt < 10; attempt += 1) {
    await answer(page, { prompt: 'How do I write a letter to a friend?', span: 1, candidates: 64 });
    for (let before = -1, now = 0; now < 3 || now > before; before = now, now = (await spans(page)).length) {
      if (now < 3) server.go();
      await page.waitForTimeout(30);
      server.halt();
      await page.waitForTimeout(100);
      if (await page.locator('#stop').isDisabled()) break;
    }
    if ((await page.locator('#stop').isEnabled()) && (await act())) return;
    server.go();
  }
  assert.fail('every answer was over before its middle');
}

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
    const [anew, again, words] = [[], [], []];
    for (let load = 0; load < LOADS; load += 1) {
      const { page } = await open();
      anew.push(await firstPaint(page));
      await page.reload();
      again.push(await firstPaint(page));
      await page.goto(`${server.origin}/health`);
      words.push(await firstPaint(page));
      await page.context().close();
    }
    const total = (await Promise.all(bytes)).reduce((sum, length) => sum + length, 0);
    console.log(`first paint after ${median(anew)} ms in a new tab, ${median(again)} ms when loaded again, ${median(words)} ms of one word, in medians; ${total} bytes`);
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
    // What is beside an answer has the settings of that answer.
    const beside = page.waitForRequest((request) => request.method() === 'POST');
    await page.fill('#seed', '43');
    await page.selectOption('#beside', 'weights');
    assert.equal((await beside).postDataJSON().seed, 42);
    await isOver(page);
    await page.fill('#seed', '42');
    await page.selectOption('#beside', 'unsteered');
    await isOver(page);
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
    let edited = null;
    page.on('response', (response) => {
      if (response.request().method() === 'PATCH' && response.ok()) edited = response.request().postDataJSON();
    });
    await inTheMiddle(page, async () => {
      await page.locator('#sliders input[type=range]').first().press('End');
      server.go();
      await isOver(page);
      const isMoved = edited !== null && (await page.locator('#steered .marker').count()) > 0;
      if (!isMoved) await page.click('#even');
      return isMoved;
    });
    assert.equal(edited.weights.harmless, 1);
    assert.match(await page.locator('#steered .marker').last().getAttribute('aria-label'), /harmless 1\.00/);
    await picture(page, 'weights-moved', '.runs');
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
    await picture(page, 'branches', '#branches-section');
    await page.locator('#steered .span').nth(2).click();
    await picture(page, 'step', '#step');
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

  await part('keeps the focus of a keyboard after an action', async () => {
    const { page } = await open();
    const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.className);
    await answer(page);
    await isOver(page);
    await page.locator('#steered .span').nth(1).click();
    await page.locator('.card:not(.chosen) .take').first().press('Enter');
    await page.locator('#steered .by-hand').waitFor();
    await isOver(page);
    assert.equal(await focused(), 'step-title');
    await page.locator('#branches .branch:not([aria-current])').first().press('Enter');
    await page.waitForFunction(() => document.querySelectorAll('#steered .by-hand').length === 0);
    assert.equal(await focused(), 'branch');
    await page.locator('#steered .span').first().click();
    await page.locator('#step .rewind').press('Enter');
    assert.equal(await focused(), 'rewind');
    await page.locator('#go-on').press('Enter');
    await isOver(page);
    assert.match(await focused(), /^(go-on|start)$/);
    // The step is drawn shortly after the answer.
    await page.locator('#step-before:enabled').waitFor();
    while (await page.locator('#step-before').isEnabled()) await page.locator('#step-before').press('Enter');
    assert.equal(await focused(), 'step-title');
    await page.getByText('Blades from an instruction').click();
    await page.fill('#blade-name', 'calm');
    await page.fill('#blade-text', 'Answer calmly.');
    await page.press('#blade-text', 'Enter');
    await page.getByRole('button', { name: 'Remove the blade calm' }).press('Enter');
    assert.equal(await focused(), 'blade-name');
    await page.locator('#sweep').press('Enter');
    await isSwept(page);
    assert.equal(await focused(), 'sweep');
    await page.context().close();
  });

  await part('seats a blade of an instruction', async () => {
    await page.getByText('Blades from an instruction').click();
    await page.fill('#blade-name', 'calm');
    await page.fill('#blade-text', 'Answer calmly.');
    await page.press('#blade-text', 'Enter');
    assert.equal(await page.locator('#sliders input[type=range]').count(), 4);
    await answer(page);
    await isOver(page);
    await page.locator('#steered .span').first().click();
    assert.match(await page.textContent('#step-body'), /calm/);
    await page.getByRole('button', { name: 'Remove the blade calm' }).click();
    await page.locator('#triangle').waitFor();
  });

  await part('sweeps', async () => {
    await page.click('#sweep');
    await isSwept(page);
    assert.equal(await page.locator('#sweep-result tbody tr').count(), 15);
    await picture(page, 'sweep', '#sweep-result .swept');
    // A blade that came after the sweep has no weight in it, whatever its name is.
    await addBlade(page, 'constructor', 'Answer briefly.');
    await page.getByRole('button', { name: 'Use the weights harmless 1.00' }).click();
    assert.deepEqual(await page.locator('#sliders output').allTextContents(), ['1.00', '0.00', '0.00', '0.00']);
    await page.click('#even');
    assert.equal(await page.locator('#sliders output').last().textContent(), '0.00');
    await page.getByRole('button', { name: 'Remove the blade constructor' }).click();
  });

  await part('exports', async () => {
    const download = page.waitForEvent('download');
    await page.click('#export-trace');
    const trace = JSON.parse(await readFile(await (await download).path(), 'utf8'));
    assert.equal(trace.steps.length, (await spans(page)).length);
    // The answer used an instruction blade.
    assert.match(await exported(page, 'command'), /swiss-knife generate[^]+--blade 'calm=instruction:Answer calmly\.'/);
    assert.equal(await byCommand(page), await text(page));
    assert.equal(await byPython(page), await text(page));
    await page.locator('#steered .span').first().click();
    await page.click('#step .rewind');
    await page.click('#go-on');
    await page.waitForFunction(() => document.querySelectorAll('#steered .span').length > 1);
    await isOver(page);
    assert.match(await exported(page, 'command'), /the Python snippet repeats that, this does not/);
    assert.equal(await byPython(page), await text(page));
    await page.locator('#sliders input[type=range]').first().press('Home');
    await page.fill('#temperature', '0.82');
    await answer(page);
    await isOver(page);
    assert.match(await exported(page, 'command'), /--draft-temperature 0\.82/);
    assert.equal(await byCommand(page), await text(page));
    assert.equal(await byPython(page), await text(page));
    await page.fill('#temperature', '');
    await page.click('#even');
  });

  await part('sends what is set and leaves the rest to the server', async () => {
    const own = join(folder, 'own.toml');
    await writeFile(own, (await run(program, ['schemes', 'gsi'])).stdout);
    const owned = new Server(program, { options: ['--scheme', own, '--max-new-tokens', '20'] });
    await owned.start();
    const { page } = await open({ origin: owned.origin });
    const asked = async () => {
      const sent = page.waitForRequest((request) => request.method() === 'POST');
      await page.click('#start');
      const { swiss_knife: { scheme, set }, temperature } = (await sent).postDataJSON();
      await isOver(page);
      assert.ok(await page.locator('#notice').isHidden());
      return { scheme, set, temperature };
    };
    await openSearch(page);
    assert.deepEqual(await asked(), { scheme: undefined, set: undefined, temperature: undefined });
    await page.selectOption('#scheme', 'swiss-knife');
    await page.fill('#candidates', '12');
    await page.fill('#temperature', '1');
    assert.deepEqual(await asked(), { scheme: 'swiss-knife', set: ['proposal.candidates=12'], temperature: 1 });
    await page.click('#sweep');
    await isSwept(page);
    assert.ok(await page.locator('#notice').isHidden());
    await page.context().close();
    await owned.lose();
  });

  await part('holds a conversation', async () => {
    await page.fill('#system', 'Answer in one sentence.');
    await answer(page);
    await isOver(page);
    const first = await text(page);
    await page.click('#reply');
    assert.equal(await page.inputValue('#turn-0-answered'), first);
    assert.equal(await page.evaluate(() => document.activeElement.id), 'prompt');
    assert.ok(await page.locator('#reply').isDisabled());
    await page.keyboard.press('Enter');
    await page.locator('#notice').getByText('Type a prompt').waitFor();
    await page.evaluate(() => document.querySelector('#notice').replaceChildren());
    await page.click('#sweep');
    await page.locator('#notice').getByText('Type a prompt').waitFor();
    const asked = page.waitForRequest((request) => request.method() === 'POST');
    await answer(page, { prompt: 'And how often?' });
    assert.deepEqual((await asked).postDataJSON().messages, [
      { role: 'system', content: 'Answer in one sentence.' },
      { role: 'user', content: 'How do I clean my bicycle?' },
      { role: 'assistant', content: first },
      { role: 'user', content: 'And how often?' },
    ]);
    await isOver(page);
    assert.equal(await byCommand(page), await text(page));
    assert.equal(await byPython(page), await text(page));
    await picture(page, 'conversation', '#controls > fieldset:first-of-type');
    // An edited answer replaces the original, also after a reload.
    await page.fill('#turn-0-answered', 'With a sponge.');
    await page.click('#add-turn');
    await page.fill('#turn-1-asked', 'Really?');
    await page.reload();
    await page.locator('#turn-1-asked').waitFor();
    assert.equal(await page.inputValue('#turn-0-answered'), 'With a sponge.');
    assert.equal(await page.inputValue('#turn-1-asked'), 'Really?');
    assert.match(await page.textContent('#steered-question'), new RegExp(`After 3 messages[^]+Answered: ${first.slice(0, 9)}`));
    await page.getByRole('button', { name: 'Remove turn 2' }).click();
    await page.getByRole('button', { name: 'Remove turn 1' }).click();
    assert.equal(await page.locator('#turns li').count(), 0);
    await page.fill('#system', '');
    await answer(page);
    await isOver(page);
  });

  await part('keeps its state', async () => {
    await page.locator('#sliders input[type=range]').first().press('End');
    await page.getByText('Settings to keep and share').click();
    await page.fill('#kept-name', 'only harmless');
    await page.press('#kept-name', 'Enter');
    await page.click('#share');
    const hash = new URL(await page.locator('#shared a').getAttribute('href')).hash;
    await page.click('#even');
    let edited = null;
    page.on('request', (request) => {
      if (request.method() === 'PATCH') edited = request.postDataJSON();
    });
    await inTheMiddle(page, async () => {
      await page.selectOption('#kept', 'only harmless');
      server.go();
      await isOver(page);
      if (edited === null) await page.click('#even');
      return edited !== null;
    });
    assert.equal(edited.weights.harmless, 1);
    const before = await spans(page);
    await page.reload();
    await page.locator('#steered .span').first().waitFor();
    assert.deepEqual(await spans(page), before);
    assert.deepEqual(await page.locator('#sliders output').allTextContents(), ['1.00', '0.00', '0.00']);
    assert.ok((await page.locator('#kept option').allTextContents()).includes('only harmless'));
    const other = await open({ hash });
    assert.deepEqual(await other.page.locator('#sliders output').allTextContents(), ['1.00', '0.00', '0.00']);
    // What cannot be used of a link is said.
    await other.page.evaluate(() => { location.hash = '#s=%'; });
    await other.page.locator('#notice').getByText('This link cannot be read.').waitFor();
    const foreign = Buffer.from(JSON.stringify({ scheme: 'nosuch', tokens: 1e9 })).toString('base64url');
    await other.page.goto(`${server.origin}/#s=${foreign}`);
    await other.page.locator('#notice').getByText('This server has no scheme nosuch.').waitFor();
    assert.equal(await other.page.inputValue('#tokens'), await other.page.getAttribute('#tokens', 'max'));
    assert.equal(new URL(other.page.url()).hash, '');
    await other.page.context().close();
    await page.click('#even');
    // Another tab forgets settings that this one still offers.
    await page.evaluate(() => localStorage.removeItem('swiss-knife-kept'));
    await page.getByText('Settings to keep and share').click();
    await page.fill('#prompt', 'How do I bake bread?');
    await page.selectOption('#kept', 'only harmless');
    assert.deepEqual(await page.locator('#kept option').allTextContents(), ['choose']);
    assert.equal(await page.inputValue('#prompt'), 'How do I bake bread?');
  });

  await part('loses the server and finds it again', async () => {
    mayFail = true;
    await inTheMiddle(page, async () => {
      await server.lose();
      await isOver(page);
      if (await page.locator('#notice').isVisible()) return true;
      await server.start();
      return false;
    });
    await page.locator('#notice').getByText('The server was lost').waitFor();
    const before = await spans(page);
    assert.ok(before.length >= 3);
    await server.start();
    await page.locator('#retry:not([disabled])').waitFor();
    mayFail = false;
    await page.click('#retry');
    await page.waitForFunction((least) => document.querySelectorAll('#steered .span').length > least, before.length);
    await isOver(page);
    assert.deepEqual((await spans(page)).slice(0, before.length), before);
    assert.ok(await page.locator('#notice').isHidden());
  });

  await part('sweeps on the server that takes the place of a lost one', async () => {
    mayFail = true;
    const replaced = new Server(program);
    await replaced.start();
    const { page } = await open({ origin: replaced.origin });
    await replaced.lose();
    await page.click('#sweep');
    replaced.options = ['--blade', 'warm=instruction:Be warm.'];
    await replaced.start();
    await page.click('#retry');
    await page.locator('#sweep-result tbody tr').first().waitFor();
    assert.match(await page.textContent('#sweep-result thead'), /warm/);
    mayFail = false;
    await page.context().close();
    await replaced.lose();
  });

  await part('says what the server refuses', async () => {
    mayFail = true;
    const before = await spans(page);
    await page.route('**/v1/chat/completions', (route) => route.fulfill({ status: 502, headers: { 'retry-after': 'Wed, 21 Oct 2026 07:28:00 GMT' }, body: 'no route' }));
    await page.click('#start');
    await page.locator('#notice').getByText('The server is busy').waitFor();
    assert.doesNotMatch(await page.textContent('#notice'), /Oct/);
    await page.unroute('**/v1/chat/completions');
    await page.route('**/v1/chat/completions', (route) => route.fulfill({ status: 429, headers: { 'retry-after': '7' }, json: { error: { message: 'too many answers wait' } } }));
    await page.click('#start');
    await page.locator('#notice').getByText('too many answers wait').waitFor();
    assert.match(await page.textContent('#notice'), /in 7 s/);
    await page.locator('#export-trace').scrollIntoViewIfNeeded();
    assert.ok((await page.locator('#notice').boundingBox()).y >= 0);
    // The last answer stays, also after a reload.
    assert.deepEqual(await spans(page), before);
    await page.reload();
    await page.locator('#steered .span').first().waitFor();
    assert.deepEqual(await spans(page), before);
    await page.click('#start');
    await page.locator('#notice').getByText('too many answers wait').waitFor();
    await page.unroute('**/v1/chat/completions');
    const asked = page.waitForRequest((request) => request.method() === 'POST');
    await page.locator('#notice button').click();
    await asked;
    await isOver(page);
    mayFail = false;
    await page.context().close();
  });

  await part('asks for the key', async () => {
    const guarded = new Server(program, { key: KEY });
    await guarded.start();
    try {
      mayFail = true;
      const { page } = await open({ origin: guarded.origin });
      await page.locator('#notice').getByText('The server wants a key').waitFor();
      await page.keyboard.type('another');
      await page.keyboard.press('Enter');
      await page.locator('#notice').getByText('does not know this key').waitFor();
      await page.fill('#key', KEY);
      await page.keyboard.press('Enter');
      await page.locator('#notice').waitFor({ state: 'hidden' });
      await answer(page);
      await isOver(page);
      assert.match(await exported(page, 'python'), /os\.environ\["SWISS_KNIFE_SERVE_KEY"\]/);
      const kept = await page.evaluate(() => JSON.stringify({ ...localStorage }) + document.cookie + location.href + document.body.textContent);
      assert.ok(!kept.includes(KEY));
      await page.reload();
      await page.click('#start');
      await isOver(page);
      assert.ok(await page.locator('#notice').isHidden());
      const other = await page.context().newPage();
      await other.goto(guarded.origin);
      await other.locator('#notice').getByText('The server wants a key').waitFor();
      await page.context().close();
    } finally {
      mayFail = false;
      await guarded.lose();
    }
  });

  await part('says what others may do who reach it', async () => {
    const named = new Server(program, { options: ['--origin', `http://${OTHER_HOST}`] });
    await named.start();
    const { page } = await open({ origin: `http://${OTHER_HOST}:${named.port}` });
    assert.match(await page.textContent('#served'), /wants no key, so whoever reaches playground\.test:\d+ may use it[^]+not encrypted/);
    await answer(page);
    await isOver(page);
    // Without HTTPS, a browser gives no access to the clipboard.
    await page.getByText('Settings to keep and share').click();
    await page.click('#share');
    assert.equal(await page.textContent('#shared'), 'A link to these settings.');
    await page.context().close();
    await named.lose();
  });

  await part('works under the prefix of a proxy', async () => {
    const proxy = createServer((asked, answered) => {
      if (!asked.url.startsWith('/prefix/')) return void answered.writeHead(404).end();
      const { method, headers } = asked;
      const passed = request(`${server.origin}${asked.url.slice('/prefix'.length)}`, { method, headers }, (reply) => {
        answered.writeHead(reply.statusCode, reply.headers);
        reply.pipe(answered);
      });
      asked.pipe(passed);
    });
    await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    const { page } = await open({ origin: `http://127.0.0.1:${proxy.address().port}/prefix` });
    await answer(page);
    await isOver(page);
    assert.equal(await byPython(page), await text(page));
    await page.context().close();
    proxy.closeAllConnections();
    proxy.close();
  });

  await part('explains its numbers', async () => {
    const { page } = await open();
    await answer(page);
    await isOver(page);
    await page.locator('#charts-table > summary').click();
    await page.click('#sweep');
    await isSwept(page);
    assert.deepEqual(await page.evaluate(unexplained), []);
    // An element with an explanation shows it when it gets the keyboard focus.
    const explained = await page.locator('[data-tip]:is(a, button, input, select, textarea, [tabindex="0"]):visible:enabled').all();
    assert.ok(explained.length >= 25, `${explained.length} explanations`);
    await page.keyboard.press('Tab');
    for (const element of explained) {
      await element.focus();
      assert.equal(await page.locator('#tip').textContent(), await element.getAttribute('data-tip'));
      assert.ok(await page.locator('#tip').isVisible());
    }
    await page.keyboard.press('Escape');
    assert.ok(await page.locator('#tip').isHidden());
    await page.context().close();
  });

  await part('reads charts with a keyboard', async () => {
    const { page } = await open();
    await answer(page);
    await isOver(page);
    const steps = (await spans(page)).length;
    // Charts and the step are drawn shortly after the answer.
    await page.getByText(`Step ${steps} of ${steps}`).waitFor();
    await page.locator('#step-after').focus();
    for (const title of ['Weights', 'Probability of the choice', 'Tokens drafted per token kept']) {
      const chart = page.getByRole('slider', { name: `${title}, ` });
      await page.keyboard.press('Tab');
      await chart.focus();
      assert.match(await page.textContent('#tip'), new RegExp(`^Step ${steps} of ${steps}: `));
      await page.keyboard.press('Home');
      await page.keyboard.press('ArrowRight');
      assert.match(await page.textContent('#tip'), new RegExp(`^Step 2 of ${steps}: .*\\d`));
      assert.equal(await chart.getAttribute('aria-valuetext'), await page.textContent('#tip'));
      await page.keyboard.press('Enter');
      assert.match(await page.textContent('#step-title'), /Step 2 of/);
      await page.keyboard.press('Escape');
      assert.ok(await page.locator('#tip').isHidden());
    }
    await page.context().close();
  });

  await part('has colours that any eye tells apart', async () => {
    // A pair from the paper of CIEDE2000 checks the measure itself.
    assert.equal(difference([50, 2.6772, -79.7751], [50, 0, -82.7485]).toFixed(4), '2.0425');
    for (const colorScheme of ['light', 'dark']) {
      const { page } = await open({ colorScheme });
      const colours = await page.evaluate(() => Array.from({ length: 8 }, (_, k) => getComputedStyle(document.documentElement).getPropertyValue(`--series-${k}`)));
      const { vision, pair, apart } = nearest(colours);
      console.log(`${colorScheme}: ${pair.join(' and ')} are the least apart, with ${vision}: ${apart.toFixed(1)}`);
      assert.ok(apart >= LEAST_APART, `${pair} with ${vision}: ${apart}`);
      await page.context().close();
    }
  });

  await part('never takes text for markup', async () => {
    const { page } = await open({ script: { steps: 4, text: ` ${MARKUP}`, pause: 1 } });
    await page.getByText('Blades from an instruction').click();
    // The server could not seat a blade of this name.
    await addBlade(page, MARKUP, MARKUP);
    assert.match(await page.textContent('#notice'), /<img src=.+ has a blank, a comma, a colon or an equals sign/);
    await addBlade(page, '<img>', MARKUP);
    assert.equal(await page.locator('#sliders input[type=range]').count(), 4);
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
    // An answer that the browser has no room for does not leave an older one in its place.
    await page.evaluate(() => {
      const set = Storage.prototype.setItem;
      Storage.prototype.setItem = function setItem(name, value) {
        if (value.length > 1000) throw new DOMException('no room', 'QuotaExceededError');
        set.call(this, name, value);
      };
    });
    await page.click('#start');
    await page.locator('#notice').getByText('no room for this answer').waitFor();
    assert.equal(await page.evaluate(() => localStorage.getItem('swiss-knife-answer')), 'null');
    await page.context().close();
  });

  await part('edits and stops what is being written', async () => {
    const { page } = await open({ script: { steps: 1000, text: ' and so on,', pause: 16 } });
    const edits = [];
    await page.route('**/swiss-knife/generations/*', (route) => {
      edits.push(route.request().postDataJSON().blades);
      return route.fulfill({ json: {} });
    });
    // Clicks buttons, waits for some frames, and returns whether nothing is written.
    const stopped = (...buttons) => page.evaluate(async (buttons) => {
      buttons.forEach((button) => document.getElementById(button).click());
      for (let frame = 0; frame < 9; frame += 1) await new Promise(requestAnimationFrame);
      return document.querySelector('#stop').disabled;
    }, buttons);
    await page.getByText('Blades from an instruction').click();
    await addBlade(page, 'calm', 'Answer calmly.');
    // A key that is held starts one answer, and types nothing.
    const prompt = await page.inputValue('#prompt');
    await page.focus('#prompt');
    await page.keyboard.down('Enter');
    const first = await page.locator('#steered .span').first().elementHandle();
    await page.keyboard.down('Enter');
    await page.keyboard.up('Enter');
    assert.equal(await stopped(), false);
    assert.ok(await first.evaluate((span) => span.isConnected));
    assert.equal(await page.inputValue('#prompt'), prompt);
    // The server refuses to remove a blade twice.
    const edited = page.waitForRequest((request) => request.method() === 'PATCH');
    await page.getByRole('button', { name: 'Remove the blade calm' }).click();
    await edited;
    await page.waitForTimeout(300);
    assert.deepEqual(edits, [{ calm: null }]);
    // Of several starts one is left, and none after a stop.
    assert.equal(await stopped('start', 'start', 'start'), false);
    assert.equal(await stopped('stop'), true);
    assert.equal(await stopped('start', 'start', 'start', 'stop'), true);
    await page.context().close();
  });

  await part('keeps a long conversation in sight', async () => {
    const { page } = await open({ script: { steps: 4, text: ' and so on,', pause: 1 } });
    for (let turn = 0; turn < 5; turn += 1) {
      await page.fill('#prompt', `Question ${turn}`);
      await page.keyboard.press('Enter');
      await isOver(page);
      assert.ok((await page.locator('#steered').boundingBox()).y > 0, `the answer is above the screen after ${turn} turns`);
      // What is typed before the reply is kept.
      if (turn === 4) await page.fill('#prompt', 'And how often?');
      await page.click('#reply');
      assert.equal(await page.inputValue('#prompt'), turn === 4 ? 'And how often?' : '');
    }
    const bottom = async (selector) => {
      const { y, height } = await page.locator(selector).boundingBox();
      return y + height;
    };
    assert.ok((await bottom('#turn-4-answered')) < (await bottom('#turns')), 'the newest turn is not in sight');
    await page.context().close();
  });

  await part('shows what is said', async () => {
    // Two spans divide a character, and the last one runs into a stop text.
    const { page } = await open({ script: { steps: 4, text: ' d\u{fffd}', pause: 40, said: [' nice', '', ' day', '', '.'] } });
    await answer(page);
    await isOver(page);
    assert.equal(await text(page), 'nice day.');
    assert.deepEqual(await page.locator('#steered .span').evaluateAll((all) => all.map((span) => span.ariaLabel)), [null, 'No text', null, null]);
    assert.ok(await page.locator('#go-on').isDisabled());
    await page.click('#reply');
    assert.equal(await page.inputValue('#turn-0-answered'), 'nice day.');
    await page.context().close();
  });

  await part('streams smoothly', async () => {
    const { page } = await open({ script: { steps: 200, text: ' and so on,', pause: 16 } });
    // The step that is looked at stays as it is while others come.
    await page.selectOption('#beside', 'weights');
    await page.click('#start');
    await page.locator('#steered .span').first().click();
    await page.focus('#step .rewind');
    const seen = await page.locator('#steered .span').count();
    await page.waitForFunction((seen) => document.querySelectorAll('#steered .span').length > Math.min(seen + 60, 199), seen);
    assert.equal(await page.evaluate(() => document.activeElement.className), 'rewind');
    // Going back stops the answer, and not the one beside it.
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelectorAll('#steered .span').length === 1);
    await page.waitForFunction(() => document.querySelectorAll('#beside-answer .span').length === 200);
    await isOver(page);
    await page.selectOption('#beside', '');
    const session = await page.context().newCDPSession(page);
    await session.send('Performance.enable', { timeDomain: 'threadTicks' });
    const busy = async () => (await session.send('Performance.getMetrics')).metrics.find(({ name }) => name === 'TaskDuration').value;
    const before = await busy();
    const { frames, long } = await page.evaluate(() => new Promise((resolve) => {
      const [frames, long] = [[], []];
      new PerformanceObserver((list) => long.push(...list.getEntries().map(({ duration }) => duration))).observe({ entryTypes: ['longtask'] });
      document.querySelector('#start').click();
      const frame = (time) => {
        frames.push(time);
        if (document.querySelectorAll('#steered .span').length === 200) resolve({ frames, long });
        else requestAnimationFrame(frame);
      };
      requestAnimationFrame(frame);
    }));
    const work = (1000 * (await busy() - before)) / 200;
    const gaps = frames.slice(1).map((time, k) => time - frames[k]).sort((one, other) => one - other);
    const at = (quantile) => gaps[Math.min(gaps.length - 1, Math.floor(quantile * gaps.length))];
    const rate = (1000 * gaps.length) / (frames.at(-1) - frames[0]);
    console.log(`${rate.toFixed(1)} frames a second over 200 steps; from frame to frame ${at(0.5).toFixed(1)} ms in the median, ${at(0.99).toFixed(1)} in the 99th percentile, ${at(1).toFixed(1)} at most`);
    console.log(`${long.length} tasks of more than 50 ms, the longest of ${Math.max(0, ...long).toFixed(0)} ms; the main thread works ${work.toFixed(1)} ms for a step`);
    await page.context().close();
  });

  await part('is accessible and fits', async () => {
    for (const width of [390, 1280, 2560]) {
      const { page } = await open({ width });
      await page.selectOption('#beside', 'weights');
      await answer(page);
      await isOver(page);
      await page.click('#reply');
      await page.fill('#prompt', 'And how often?');
      await page.click('#start');
      await isOver(page);
      await page.locator('#steered .span').nth(1).click();
      await page.locator('.card:not(.chosen) .take').first().click();
      await isOver(page);
      await page.evaluate(() => document.querySelectorAll('details').forEach((details) => { details.open = true; }));
      await page.click('#sweep');
      await isSwept(page);
      await page.click('#export-command');
      for (const colorScheme of ['light', 'dark']) {
        await page.emulateMedia({ colorScheme });
        for (const colour of ['probability', 'blade']) {
          await page.check(`input[value=${colour}]`);
          assert.deepEqual(await seriousFaults(page), [], `${colorScheme} at ${width}, by ${colour}`);
        }
        await page.evaluate(() => scrollTo(0, 0));
        await page.screenshot({ path: join(folder, `${colorScheme}-${width}.jpeg`), quality: 70, fullPage: true });
        assert.ok((await overflow(page)) <= 0, `at ${width} pixels the page is ${await overflow(page)} too wide`);
      }
      await addBlade(page, 'calm-'.repeat(13), 'Answer calmly.');
      assert.ok((await overflow(page)) <= 0, `at ${width} pixels a long name is ${await overflow(page)} too wide`);
      await page.context().close();
    }
  });

  console.log(`${done.length} parts of the journey are done`);
} finally {
  await browser.close();
  await server.lose();
}
