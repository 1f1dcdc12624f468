// The page: settings on the left, answers in the middle, the step that is looked at on the right, and figures below.

import * as api from './api.js';
import { Answer, legend } from './answer.js';
import { showBranches } from './branches.js';
import { charts, table } from './charts.js';
import { showAsked, showTurns } from './conversation.js';
import { announce, atMostEvery, byId, count, h, keepingFocus, number, onceAFrame } from './dom.js';
import { command, download, snippet, trace } from './export.js';
import { askKey, clearNotice, fail, notice, openness } from './notice.js';
import { Run } from './run.js';
import * as kept from './settings.js';
import { showStep } from './step.js';
import { read, write } from './storage.js';
import { showSweep, sweep } from './sweep.js';
import { installTips } from './tip.js';
import { heldAfter, Tree } from './tree.js';
import { moved, sliders, triangle } from './weights.js';

const ANSWER = 'swiss-knife-answer';
// Milliseconds between two drawings of what is not the answer itself, while it is written.
const PACE = 300;
// Decimals beyond these are not worth their room in the browser's storage.
const DIGITS = 6;

let about = null;
let settings = null;
let names = [];
let colours = {};

// The answer and the one beside it, each with its tree, its view and the run that writes it.
const main = { tree: new Tree(), run: null, cost: '' };
const beside = { tree: new Tree(), run: null, cost: '' };
// The span that is looked at; while it is followed, that is the newest one.
let looked = { side: main, id: null, follow: true };
const swept = { results: [], names: [], stop: null };
let controls = { show: () => {} };
let otherControls = { show: () => {} };
let corner = null;
// The last span of the answer that is a turn of the conversation already.
let replied = null;
// What the panel of the step shows.
let drawn = {};

const nodeOf = ({ side, id }) => side.tree.nodes[id];

// ---- What is looked at ----

const drawStep = () => keepingFocus(byId('step'), drawLooked, () => byId('step-title'));

function drawLooked() {
  const node = nodeOf(looked);
  const path = looked.side.tree.path();
  const at = path.indexOf(node);
  byId('step-before').disabled = at <= 0;
  byId('step-after').disabled = at < 0 || at >= path.length - 1;
  for (const side of [main, beside]) side.view.mark(side === looked.side ? looked.id : null);
  byId('step-title').textContent = node ? `Step ${at + 1} of ${path.length}${looked.side === beside ? ', beside' : ''}` : 'Step';
  // Drawn anew, it would lose the focus and the selection in it.
  if (drawn.node === node && drawn.side === looked.side && drawn.colours === colours) return;
  drawn = { node, side: looked.side, colours };
  if (!node) {
    byId('step-body').replaceChildren(h('p', { class: 'hint' }, 'Choose a span of the answer to see what it was chosen from.'));
    return;
  }
  showStep(byId('step-body'), node, { colours, act: looked.side === main ? { take, rewind } : null });
}

const drawCharts = onceAFrame(() => {
  const path = main.tree.path();
  graphs.draw(path);
  if (byId('charts-table').open) byId('charts-table').querySelector('.frame').replaceChildren(table(path));
});

const drawBesides = atMostEvery(PACE, () => {
  drawStep();
  drawCharts();
});

function look(side, id) {
  looked = { side, id, follow: false };
  drawStep();
}

function lookNext(by) {
  const path = looked.side.tree.path();
  const next = path[path.indexOf(nodeOf(looked)) + by];
  if (next) look(looked.side, next.id);
}

// ---- Answers ----

// The answer is added to as its steps come, at most once a frame.
function writer(side) {
  const { tree } = side;
  const fresh = [];
  const flush = () => fresh.splice(0).forEach((node) => side.tree === tree && side.view.append(node));
  const flushSoon = onceAFrame(flush);
  const append = (node) => {
    fresh.push(node);
    flushSoon();
    drawBesides();
  };
  return { append, flush };
}

function showAll() {
  main.view.show(main.tree.path());
  beside.view.show(beside.tree.path());
  showQuestions();
  showControls();
  showTree();
  drawStep();
  drawCharts();
}

function showQuestions() {
  showAsked(byId('steered-question'), main.tree.asked);
  showAsked(byId('beside-question'), beside.tree.asked);
  byId('steered-cost').textContent = main.cost;
  byId('beside-cost').textContent = beside.cost;
}

function showTree() {
  showBranches(byId('branches'), byId('branches-section'), main.tree, (id) => stopped(() => {
    main.tree.leaf = main.tree.leafBelow(id);
    look(main, main.tree.leaf);
    afterEdit();
  }, [main]));
}

// Enables or disables buttons. If the focused one is disabled, the first that is enabled gets the focus.
function enable(buttons) {
  const first = Object.keys(buttons).find((id) => buttons[id]);
  const set = () => Object.entries(buttons).forEach(([id, isEnabled]) => {
    byId(id).disabled = !isEnabled;
  });
  keepingFocus(byId(first).parentElement, set, () => byId(first));
}

function showControls() {
  const runs = main.run !== null || beside.run !== null;
  enable({
    stop: runs,
    'go-on': main.run === null && main.tree.leaf >= 0 && !main.tree.isOver(),
    start: true,
    reply: main.run === null && main.tree.leaf >= 0 && main.tree.nodes[main.tree.leaf] !== replied,
  });
  byId('steered').setAttribute('aria-busy', main.run !== null);
}

const costOf = (usage) => {
  const { steps, drafted_tokens: drafted, seconds = {} } = usage.swiss_knife ?? {};
  const took = Object.values(seconds).reduce((sum, value) => sum + value, 0);
  return `${count(usage.completion_tokens, 'token')}${steps === undefined ? '' : ` in ${count(steps, 'step')}, ${drafted} tokens drafted, ${number(took)} s`}`;
};

// Writes on at the leaf of a side until the answer ends, is stopped or is lost.
async function writeOn(side, request) {
  const { tree } = side;
  const { append, flush } = writer(side);
  tree.requests.push(request);
  let held = heldAfter(tree.path());
  const run = new Run(request, {
    chosen: (step, said) => {
      append(tree.add(step, step.chosen, tree.requests.length - 1, { said: held + said }));
      held = '';
      if (looked.follow && looked.side === side) looked.id = tree.leaf;
    },
    ended: (said, isOver) => {
      const node = tree.nodes[tree.leaf];
      if (!node) return;
      Object.assign(node, { said: (node.said ?? '') + said, over: isOver });
      flush();
      if (side.tree === tree) side.view.renew(node);
    },
    refused: (error) => fail(error, { act: () => {} }),
  });
  side.run = run;
  showControls();
  try {
    const usage = await run.follow();
    if (usage) side.cost = costOf(usage);
    if (usage && side === main) announce(`The answer is complete: ${count(tree.path().length, 'span')}.`);
  } catch (error) {
    if (side === beside) fail(error, { act: () => revive(compare) });
    else if (tree.leaf < 0) fail(error, { act: () => revive(start) });
    else fail(error, { label: 'Go on from the spans that are kept', act: () => revive(goOn) });
  } finally {
    flush();
    if (side.run === run) side.run = null;
    showQuestions();
    showControls();
    showTree();
    drawBesides();
    keepAnswer();
  }
}

// After the server was lost it may be another one.
async function revive(act) {
  try {
    about = await api.about();
    settings = kept.fitted(settings, about);
    showSettings();
    act();
  } catch (error) {
    fail(error, { act: () => revive(act) });
  }
}

// How often `stopped` was called.
let calls = 0;

// Stops what is under way on some sides, and then acts. Of several calls that wait, only the last one acts.
async function stopped(act, among = [main, beside]) {
  calls += 1;
  const mine = calls;
  const sides = among.filter((side) => side.run);
  sides.forEach((side) => side.run.stop());
  while (sides.some((side) => side.run)) await new Promise(requestAnimationFrame);
  if (mine === calls) act();
}

const conversation = ({ system, turns, prompt }) => ({ system, turns, prompt });

// Whether there is a prompt; asks for one if not.
function hasPrompt() {
  if (settings.prompt.trim()) return true;
  notice(h('p', {}, 'There is nothing to answer. Type a prompt.'));
  byId('prompt').focus();
  return false;
}

function start() {
  if (!hasPrompt()) return;
  clearNotice();
  stopped(async () => {
    const before = [main, beside].map(({ tree, cost }) => ({ tree, cost }));
    const tree = new Tree();
    tree.asked = { ...settings };
    Object.assign(main, { tree, cost: '' });
    looked = { side: main, id: null, follow: true };
    showAll();
    const written = writeOn(main, kept.body(settings, about));
    compare();
    await written;
    if (tree.nodes.length > 0 || main.cost) return;
    // A request that was refused, lost or stopped before its first span replaces nothing.
    beside.run?.stop();
    [main, beside].forEach((side, k) => Object.assign(side, before[k]));
    looked = { side: main, id: main.tree.leaf, follow: false };
    showAll();
  });
}

// Goes on after the spans that are kept, under the weights of now.
function goOn() {
  clearNotice();
  if (main.run) return;
  const prefix = main.tree.prefix();
  const left = settings.tokens - prefix.length;
  looked = { side: main, id: main.tree.leaf, follow: true };
  writeOn(main, kept.body({ ...settings, ...conversation(main.tree.asked) }, about, { prefix, tokens: left > 0 ? left : settings.tokens }));
}

// The conversation goes on: the answer becomes a turn, and a prompt is typed next.
function reply() {
  const { system, turns, prompt } = main.tree.asked;
  // What was typed since the answer began is the next prompt.
  const next = settings.prompt === prompt ? '' : settings.prompt;
  Object.assign(settings, { system, turns: [...turns, { asked: prompt, answered: main.tree.text() }], prompt: next });
  replied = main.tree.nodes[main.tree.leaf];
  kept.save(settings);
  showConversation();
  showControls();
  byId('prompt').focus();
  announce('The answer is a turn of the conversation now. Type what comes next.');
}

// What the settings want beside the answer.
function showBeside() {
  byId('beside-section').hidden = !settings.beside;
  byId('other-weights').hidden = settings.beside !== 'weights';
  byId('beside-title').textContent = settings.beside === 'unsteered' ? 'Unsteered' : 'Other weights';
}

// The same prompt, seed and settings without steering, or under other weights.
function compare() {
  showBeside();
  beside.run?.stop();
  beside.tree = new Tree();
  beside.cost = '';
  beside.view.show([]);
  beside.tree.asked = settings.beside ? main.tree.asked : null;
  showQuestions();
  if (!beside.tree.asked) return;
  const same = { ...settings, ...main.tree.asked, blades: settings.blades };
  writeOn(beside, settings.beside === 'unsteered' ? kept.unsteered(same, about) : kept.body(same, about, { weights: settings.otherWeights }));
}

function afterEdit() {
  main.view.show(main.tree.path());
  showTree();
  showControls();
  drawStep();
  drawCharts();
  keepAnswer();
}

// Takes another candidate of a step, and goes on from there.
const take = (node, choice) => stopped(() => {
  main.tree.addBeside(node, choice);
  look(main, main.tree.leaf);
  afterEdit();
  if (!main.tree.isOver()) goOn();
}, [main]);

// Goes back to a span. What came after it stays as a branch.
const rewind = (node) => stopped(() => {
  main.tree.leaf = node.id;
  look(main, node.id);
  afterEdit();
  announce('Back at this span. “Go on” writes on from here.');
}, [main]);

// ---- What a reload finds again ----

const rounded = (_, value) => (typeof value === 'number' && !Number.isInteger(value) ? Number(value.toPrecision(DIGITS)) : value);

function keepAnswer() {
  // Until an answer has a span, the one before it stays.
  if (main.tree.leaf < 0) return;
  const kept = (tree) => JSON.parse(JSON.stringify({ main: tree, beside: beside.tree, costs: [main.cost, beside.cost] }, rounded));
  // Where there is no room for the branches, the answer is kept without.
  if (write(ANSWER, kept(main.tree)) || write(ANSWER, kept(main.tree.pruned()))) return;
  write(ANSWER, null);
  if (byId('notice').hidden) notice(h('p', {}, 'The browser has no room for this answer: a reload loses it. “Trace as JSON” saves it.'));
}

function findAnswer() {
  const found = read(ANSWER, null);
  if (!found?.main.requests) return;
  main.tree = Tree.of(found.main);
  beside.tree = Tree.of(found.beside);
  [main.cost, beside.cost] = found.costs;
  looked = { side: main, id: main.tree.leaf, follow: false };
}

// ---- Settings ----

function setWeights(weights, locked) {
  settings.weights = weights;
  settings.locked = locked;
  controls.show(weights, locked);
  corner?.show(weights, locked);
  main.run?.change({ weights: kept.shares(weights) });
  saveSoon();
}

const saveSoon = atMostEvery(PACE, () => kept.save(settings));

function showWeights() {
  names = kept.bladeNames(settings, about);
  colours = Object.fromEntries(names.map((name, index) => [name, index % 8]));
  const { weights, locked } = settings;
  controls = sliders(byId('sliders'), { names, weights, locked, colours, change: setWeights });
  otherControls = sliders(byId('other-sliders'), {
    names,
    weights: settings.otherWeights,
    locked: [],
    colours,
    change: (other, fixed) => {
      settings.otherWeights = other;
      otherControls.show(other, fixed);
      compareSoon();
      saveSoon();
    },
  });
  byId('triangle').toggleAttribute('hidden', names.length !== 3);
  corner = names.length === 3 ? triangle(byId('triangle'), { names, weights, locked, colours, change: setWeights }) : null;
  const own = Object.entries(settings.blades).map(([name, text]) =>
    h('li', {}, h('strong', {}, name), ` ${text} `, h('button', { type: 'button', 'aria-label': `Remove the blade ${name}`, onclick: () => removeBlade(name) }, 'Remove')));
  keepingFocus(byId('own-blades'), () => byId('own-blades').replaceChildren(...own), () => byId('blade-name'));
  byId('sweep-blade').replaceChildren(...names.map((name) => h('option', { value: name }, name)));
  showLegend();
}

const compareSoon = atMostEvery(1000, () => compare());

const showLegend = () => {
  legend(byId('legend'), { colour: settings.colour, names, colours });
  byId('answers').dataset.colour = settings.colour;
};

const FIELDS = { system: String, prompt: String, scheme: String, preset: String, candidates: Number, span: Number, temperature: Number, tokens: Number, seed: Number };

function showConversation() {
  for (const field of ['system', 'prompt']) byId(field).value = settings[field];
  showTurns(byId('turns'), settings.turns, (turns, isFewer) => {
    settings.turns = turns;
    saveSoon();
    if (!isFewer) return;
    showConversation();
    byId('add-turn').focus();
  });
}

function addTurn() {
  settings.turns = [...settings.turns, { asked: '', answered: '' }];
  showConversation();
  byId(`turn-${settings.turns.length - 1}-asked`).focus();
}

function showSettings() {
  const options = (list) => list.map(([value, text]) => h('option', { value }, text));
  byId('scheme').replaceChildren(...options([['', 'as the server has it'], ...about.schemes.map(({ name, summary }) => [name, `${summary} (${name})`])]));
  byId('preset').replaceChildren(...options([['', 'as the server has it'], ...about.presets.map((name) => [name, name])]));
  byId('tokens').max = about.max_new_tokens;
  for (const field of Object.keys(FIELDS)) byId(field).value = settings[field] ?? '';
  for (const radio of document.getElementsByName('colour')) radio.checked = radio.value === settings.colour;
  byId('beside').value = settings.beside;
  showBeside();
  byId('served').textContent = [`This server has ${about.model}, version ${about.version}.`, ...openness(about)].join(' ');
  showConversation();
  showKept();
  showWeights();
}

const showKept = () => byId('kept').replaceChildren(h('option', { value: '' }, 'choose'), ...Object.keys(kept.kept()).map((name) => h('option', { value: name }, name)));

function useSettings(next) {
  const { blades: before } = settings;
  settings = kept.fitted(next, about);
  const { weights, blades } = settings;
  const gone = Object.keys(before).filter((name) => !Object.hasOwn(blades, name)).map((name) => [name, null]);
  const come = Object.entries(blades).filter(([name, text]) => before[name] !== text).map(([name, text]) => [name, `instruction:${text}`]);
  main.run?.change({ blades: Object.fromEntries([...gone, ...come]), weights: kept.shares(weights) });
  kept.save(settings);
  showSettings();
  main.view.show(main.tree.path());
  drawStep();
  if (next.scheme && settings.scheme !== next.scheme) notice(h('p', {}, `This server has no scheme ${next.scheme}.`));
}

// Uses the settings of the link in the address, if there is one.
function followLink() {
  if (!kept.isLinked()) return;
  const linked = kept.takeLink();
  if (linked) useSettings(linked);
  else notice(h('p', {}, 'This link cannot be read.'));
}

// Weights under which a blade has its even share.
const seated = (weights, name) => moved({ ...weights, [name]: 0 }, name, 1 / (Object.keys(weights).length + 1), []);

function addBlade() {
  const [name, text] = [byId('blade-name').value.trim(), byId('blade-text').value.trim()];
  if (!name || !text) {
    notice(h('p', {}, 'A blade needs a name and an instruction.'));
    return;
  }
  if (/[\s,:=]/.test(name)) {
    notice(h('p', {}, `“${name}” has a blank, a comma, a colon or an equals sign. Give the blade a name without them.`));
    return;
  }
  if (about.blades.some((blade) => blade.name === name)) {
    notice(h('p', {}, `The server has a blade called ${name}. Choose another name.`));
    return;
  }
  clearNotice();
  settings.blades = { ...settings.blades, [name]: text };
  settings.locked = [];
  settings.weights = seated(settings.weights, name);
  settings.otherWeights = { ...settings.otherWeights, [name]: 0 };
  main.run?.change({ blades: { [name]: `instruction:${text}` }, weights: kept.shares(settings.weights) });
  byId('blade-name').value = '';
  byId('blade-text').value = '';
  kept.save(settings);
  showWeights();
}

function removeBlade(name) {
  const { [name]: _, ...blades } = settings.blades;
  const without = (weights) => Object.fromEntries(Object.entries(moved(weights, name, 0, [])).filter(([other]) => other !== name));
  useSettings({ ...settings, blades, weights: without(settings.weights), otherWeights: without(settings.otherWeights) });
}

async function share() {
  const address = kept.link(settings);
  const words = byId('shared');
  words.hidden = false;
  words.replaceChildren(h('a', { href: address }, 'A link to these settings'), '.');
  await navigator.clipboard?.writeText(address).then(() => words.append(' It is in the clipboard.'), () => {});
}

// ---- Sweep and export ----

function showSwept() {
  const choose = ({ point }) => {
    const weights = Object.fromEntries(swept.names.map((name, k) => [name, point[k]]));
    // Blades may have come and gone since.
    setWeights(kept.fitted({ ...settings, weights }, about).weights, []);
  };
  showSweep(byId('sweep-result'), { results: swept.results, names: swept.names, blade: byId('sweep-blade').value, colours, choose });
}

async function startSweep() {
  if (!hasPrompt()) return;
  swept.stop?.abort();
  const stop = new AbortController();
  Object.assign(swept, { results: [], names: [...names], stop });
  enable({ 'sweep-stop': true, sweep: false });
  try {
    await sweep({
      names: swept.names,
      request: (weights, tokens) => kept.body(settings, about, { weights, tokens: Math.min(tokens, about.max_new_tokens) }),
      found: (result) => {
        swept.results.push(result);
        showSwept();
      },
      signal: stop.signal,
    });
    announce(`The sweep is complete: ${count(swept.results.length, 'answer')}.`);
  } catch (error) {
    stop.abort();
    if (error.name !== 'AbortError') fail(error, { label: 'Sweep again', act: () => revive(startSweep) });
  } finally {
    enable({ 'sweep-stop': false, sweep: true });
  }
}

function showExported(text) {
  byId('exported').textContent = text;
  byId('exported').hidden = false;
  byId('copy').hidden = !navigator.clipboard;
}

// ---- The beginning ----

// The fields in which the Enter key presses a button.
const ENTERS = { prompt: 'start', 'blade-name': 'add-blade', 'blade-text': 'add-blade', 'kept-name': 'keep' };

const on = (id, event, act) => byId(id).addEventListener(event, act);

function listen() {
  on('start', 'click', start);
  for (const [field, button] of Object.entries(ENTERS)) {
    on(field, 'keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      if (!event.repeat) byId(button).click();
    });
  }
  on('go-on', 'click', goOn);
  on('stop', 'click', () => stopped(() => {}));
  on('reply', 'click', reply);
  on('add-turn', 'click', addTurn);
  for (const [field, kind] of Object.entries(FIELDS)) {
    on(field, 'input', () => {
      const { value } = byId(field);
      settings[field] = kind === Number ? (value === '' ? null : Number(value)) : value;
      if (field === 'tokens') settings.tokens ??= 120;
      if (field === 'seed') settings.seed ??= 42;
      saveSoon();
    });
  }
  for (const radio of document.getElementsByName('colour')) {
    radio.addEventListener('change', () => {
      settings.colour = radio.value;
      showLegend();
      saveSoon();
    });
  }
  on('beside', 'change', () => {
    settings.beside = byId('beside').value;
    saveSoon();
    compare();
  });
  on('even', 'click', () => setWeights(Object.fromEntries(names.map((name) => [name, kept.weightOf(kept.serverWeights(about), name)])), []));
  on('add-blade', 'click', addBlade);
  on('keep', 'click', () => {
    const name = byId('kept-name').value.trim();
    if (!name) return;
    kept.keep(name, settings);
    showKept();
    byId('kept').value = name;
  });
  on('kept', 'change', () => {
    const found = kept.kept()[byId('kept').value];
    // Another tab may have forgotten them.
    if (found) useSettings(found);
    else showKept();
  });
  on('forget', 'click', () => {
    kept.forget(byId('kept').value);
    showKept();
  });
  on('share', 'click', share);
  on('step-before', 'click', () => lookNext(-1));
  on('step-after', 'click', () => lookNext(1));
  on('charts-table', 'toggle', drawCharts);
  on('sweep', 'click', startSweep);
  on('sweep-stop', 'click', () => swept.stop.abort());
  on('sweep-blade', 'change', () => swept.results.length > 0 && showSwept());
  on('export-trace', 'click', () => download('swiss-knife-trace.json', JSON.stringify(trace(settings, about, main.tree), null, 1)));
  on('export-command', 'click', () => showExported(command(main.tree, kept.body(settings, about))));
  on('export-python', 'click', () => showExported(snippet(main.tree, kept.body(settings, about), about, new URL('.', location).href)));
  on('copy', 'click', () => navigator.clipboard.writeText(byId('exported').textContent));
  addEventListener('pagehide', () => {
    kept.save(settings);
    keepAnswer();
  });
  addEventListener('hashchange', followLink);
}

async function begin() {
  try {
    about = await api.about();
  } catch (error) {
    fail(error, { act: begin });
    return;
  }
  settings = kept.load(about);
  findAnswer();
  listen();
  showSettings();
  showAll();
  followLink();
  if (about.key_required && !api.hasKey()) askKey(() => byId('prompt').focus());
}

main.view = new Answer(byId('steered'), { select: (id) => look(main, id), colours: () => colours });
beside.view = new Answer(byId('beside-answer'), { select: (id) => look(beside, id), colours: () => colours });
const graphs = charts(byId('charts'), { colours: () => colours, select: (id) => look(main, id) });
byId('search').open = matchMedia('(min-width: 60rem)').matches;
installTips();
begin();
