// One step: its candidates, what blades make of them, and why one won.

import { count, h, inWords, number, percent, s, signed, term } from './dom.js';
import { advantages, deciding } from './decide.js';
import { textOf } from './tree.js';

const TIPS = {
  probability: 'Probability with which the candidate was drawn, of 100 %',
  mu: 'μ: what the blade makes of the candidate, no unit; higher is better. σ: how unsure the blade is, in the same scale. The bar is μ, the line μ ± σ; each blade has a scale of its own in this step.',
  adds: 'What the blade adds to the composite μ: its weight times its μ after normalisation, no unit',
  composite: 'What the scheme makes of all blades: μ ± σ, no unit',
  rating: 'Rating that the scheme gives the candidate, no unit; higher is better',
  fluency: 'Mean log-probability of a token under the drafter, in nats; nearer to zero is more fluent',
  influence: 'Share of the blade in how far the composite moves the candidates apart, of 100 %',
  length: 'Length of the candidate, in tokens',
  weight: 'Share of the blade in the composite score, no unit',
  advantage: 'What the blade adds to the composite μ of this candidate, less what it adds on average; no unit',
  radius: 'How far each composite μ may move, in its own scale, while the probabilities change by at most 0.1',
};

const WIDTH = 120;

// μ as a bar from zero and μ ± σ as a line, in the scale of the blade.
function bar({ mu, sigma }, reach, colour) {
  const x = (value) => WIDTH / 2 + (value / reach) * (WIDTH / 2 - 2);
  return s('svg', { class: `bar-svg fill-${colour}`, viewBox: `0 0 ${WIDTH} 14`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    s('line', { x1: x(0), x2: x(0), y1: 0, y2: 14, class: 'zero' }),
    s('rect', { x: Math.min(x(0), x(mu)), width: Math.max(1, Math.abs(x(mu) - x(0))), y: 3, height: 8 }),
    s('line', { x1: x(mu - sigma), x2: x(mu + sigma), y1: 7, y2: 7, class: 'whisker' }));
}

// How far a blade's axis goes from zero.
const reachOf = (scores) => Math.max(1e-9, ...scores.filter(Boolean).map(({ mu, sigma }) => Math.abs(mu) + sigma));

function row(name, score, { reach, colour, added, tip }) {
  return h('tr', {},
    h('th', { scope: 'row', class: `ink-${colour}` }, name),
    h('td', {}, score && bar(score, reach, colour)),
    h('td', { class: 'figure', tip: score && tip }, score ? `${number(score.mu)} ± ${number(score.sigma)}` : 'not asked'),
    h('td', { class: 'figure', tip: TIPS.adds }, added === undefined ? '' : signed(added)));
}

function scores(candidate, { names, colours, reach, rank }) {
  const blades = names.map((name) => {
    const score = candidate.blades[name];
    return row(name, score, { reach: reach[name], colour: colours[name], added: score?.contribution, tip: TIPS.mu });
  });
  const composite = row('composite', candidate, { reach: reach.composite, colour: 'none', tip: TIPS.composite });
  return h('table', { 'aria-label': `Scores of candidate ${rank}: blade, bar, μ ± σ, and what it adds; no unit` }, h('tbody', {}, ...blades, composite));
}

function card(step, index, { node, act, ...shown }) {
  const candidate = step.candidates[index];
  const isChosen = index === node.choice;
  const badge = isChosen && h('span', { class: 'badge' }, node.byHand ? 'taken by hand' : 'chosen');
  return h('li', { class: isChosen ? 'card chosen' : 'card' },
    h('div', { class: 'probability', tip: TIPS.probability },
      h('strong', {}, percent(candidate.probability)),
      h('span', { class: 'track', 'aria-hidden': 'true' }, h('span', { class: 'part', style: { width: `${100 * candidate.probability}%` } })),
      badge),
    h('blockquote', { dir: 'auto' }, textOf(candidate).trim() || '(nothing)', candidate.ends && h('span', { class: 'hint' }, ' ends the answer')),
    scores(candidate, shown),
    h('p', { class: 'hint figures' },
      h('span', { tip: TIPS.rating }, `rating ${number(candidate.rating, 1)}`),
      candidate.fluency !== undefined && h('span', { tip: TIPS.fluency }, `fluency ${number(candidate.fluency)} nats a token`),
      h('span', { tip: TIPS.length }, count(candidate.tokens.length, 'token'))),
    act && h('p', { class: 'buttons' }, isChosen
      ? h('button', { type: 'button', class: 'rewind', onclick: () => act.rewind(node) }, 'Go back to here')
      : h('button', { type: 'button', class: 'take', onclick: () => act.take(node, index) }, 'Take this one instead')));
}

function reason({ step, choice, byHand }) {
  const { probability } = step.candidates[choice];
  const best = Math.max(...step.candidates.map((candidate) => candidate.probability));
  const drawn = probability >= best ? 'It was the most probable candidate, and it was drawn.' : `It was drawn although another one had ${percent(best)}.`;
  const blade = deciding(step, choice);
  return [
    byHand ? 'It was taken by hand. ' : `${drawn} `,
    ...(blade === null
      ? ['No blade put it above the others.']
      : [`${blade} did most for it: `, term(signed(advantages(step, choice)[blade]), TIPS.advantage), ' against the mean of the candidates (no unit).']),
  ];
}

const influence = (step, names, colours) => names.filter((name) => step.influence[name] !== undefined).map((name) =>
  h('div', { class: 'share', tip: TIPS.influence },
    h('span', { class: `ink-${colours[name]}` }, name),
    h('span', { class: 'track', 'aria-hidden': 'true' }, h('span', { class: `part by-${colours[name]}`, style: { width: `${100 * step.influence[name]}%` } })),
    h('span', { class: 'figure' }, percent(step.influence[name]))));

const certificate = ({ certificate }) => certificate
  ? h('p', { class: 'hint' }, term('Certificate', TIPS.radius), `: the probabilities change by at most 0.1 while each composite μ moves by at most ${number(certificate.radius, 3)} (no unit).`)
  : h('p', { class: 'hint' }, 'There is no certificate for this step.');

// Shows the step of `node`. `act`, where the answer can be changed, takes candidates and goes back.
export function showStep(area, node, { colours, act = null }) {
  const { step } = node;
  const names = [...new Set([...Object.keys(step.weights), ...step.candidates.flatMap((candidate) => Object.keys(candidate.blades))])];
  const reach = Object.fromEntries(names.map((name) => [name, reachOf(step.candidates.map((candidate) => candidate.blades[name]))]));
  const shown = { node, act, names, colours: Object.fromEntries(names.map((name) => [name, colours[name] ?? 'none'])), reach: { ...reach, composite: reachOf(step.candidates) } };
  const order = step.candidates.map((_, index) => index).sort((one, other) => step.candidates[other].probability - step.candidates[one].probability);
  area.replaceChildren(
    h('h3', {}, 'Why this one'),
    h('p', {}, ...reason(node)),
    h('p', { class: 'hint' }, term('Influence', TIPS.influence), ' of each blade on this step:'),
    ...influence(step, names, shown.colours),
    certificate(step),
    h('p', { class: 'hint' }, term('Weights', TIPS.weight), ` in this step: ${inWords(Object.entries(step.weights))}.`),
    h('h3', {}, 'Candidates'),
    h('p', { class: 'hint' }, 'By ', term('probability', TIPS.probability), '. In each: ', term('μ ± σ', TIPS.mu), ' of a blade and what it ', term('adds', TIPS.adds),
      '; ', term('composite', TIPS.composite), ', ', term('rating', TIPS.rating), ', ', term('fluency', TIPS.fluency), ', ', term('length', TIPS.length), '.'),
    h('ol', { class: 'cards' }, ...order.map((index, place) => card(step, index, { ...shown, rank: place + 1 }))));
}
