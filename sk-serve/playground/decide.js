// What a step says about its choice.

export const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

// By how much each blade puts a candidate above the mean of the step.
export function advantages(step, choice) {
  const names = Object.keys(step.candidates[choice].blades);
  const added = (candidate, name) => candidate.blades[name]?.contribution ?? 0;
  return Object.fromEntries(
    names.map((name) => [name, added(step.candidates[choice], name) - mean(step.candidates.map((candidate) => added(candidate, name)))]),
  );
}

// The blade that did most for the champion, or null where the draw was even or no blade spoke for it.
export function deciding(step, choice) {
  const probabilities = step.candidates.map((candidate) => candidate.probability);
  if (Math.max(...probabilities) - Math.min(...probabilities) < 1e-9) return null;
  const [name, most] = Object.entries(advantages(step, choice)).reduce((best, entry) => (entry[1] > best[1] ? entry : best), [null, 0]);
  return most > 0 ? name : null;
}

// Five classes of probability, from the least to the most.
export const level = (probability) => Math.min(4, Math.floor(probability * 5));

// Tokens of all candidates for each token that was kept. A step over a vocabulary lists only some of
// its n candidates, which have one token each.
export const draftedPerKept = (step, choice) =>
  (step.n ?? step.candidates.reduce((sum, candidate) => sum + candidate.tokens.length, 0)) / Math.max(1, step.candidates[choice].tokens.length);
