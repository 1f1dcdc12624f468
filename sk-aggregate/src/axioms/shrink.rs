use sk_core::Aggregator;

use super::laws::largest;
use super::{Axiom, Case, Cases, Violation};

/// The most evaluations of the law in one descent.
const ATTEMPTS: usize = 4000;

/// The number of cases of each smaller size that are tried after descent.
const SMALLER: usize = 500;

/// Returns the simplest case found that still violates the axiom: with the fewest candidates, then
/// with the shortest numbers.
///
/// Uses greedy descent from `case`. Descent can end at a batch from which no candidate can be
/// removed, although a smaller batch elsewhere violates the axiom. Therefore [`SMALLER`] cases of
/// each smaller size are tried as well.
pub(super) fn shrink(axiom: Axiom, operator: &dyn Aggregator, case: Case, violation: Violation) -> (Case, Violation) {
    let best = descend(axiom, operator, case, violation);
    for candidates in 1..best.0.len() {
        for case in Cases::of(candidates, 0).take(SMALLER) {
            if let Err(violation) = axiom.law(operator, &case) {
                return descend(axiom, operator, case, violation);
            }
        }
    }
    best
}

fn descend(axiom: Axiom, operator: &dyn Aggregator, case: Case, violation: Violation) -> (Case, Violation) {
    let mut best = (case, violation);
    let mut attempts = 0;
    'descend: loop {
        for simpler in simpler(&best.0) {
            attempts += 1;
            if attempts > ATTEMPTS {
                return best;
            }
            if let Err(violation) = axiom.law(operator, &simpler) {
                best = (simpler, violation);
                continue 'descend;
            }
        }
        return best;
    }
}

/// Returns valid cases simpler than `case`, the largest simplifications first.
fn simpler(case: &Case) -> Vec<Case> {
    let mut out = Vec::new();
    for k in 0..case.len() {
        if k != case.who && k != case.rival {
            out.push(without(case, k));
        }
    }
    if case.len() == 2 {
        out.push(without(case, case.rival));
    }
    // All numbers in another unit.
    for unit in [1.0 / largest(&case.sigma), 1.0 / largest(&case.mu), 1.0 / case.step] {
        let unit = 2f64.powf(unit.log2().round());
        let scaled = |values: &[f64]| values.iter().map(|v| v * unit).collect();
        let (mu, sigma) = (scaled(&case.mu), scaled(&case.sigma));
        out.push(Case { mu, sigma, shift: case.shift * unit, step: case.step * unit, ..case.clone() });
    }
    // All scores shifted.
    let moved = case.mu.iter().map(|m| m - case.mu[case.rival]).collect();
    out.push(Case { mu: moved, ..case.clone() });
    for k in 0..case.len() {
        out.extend(shorter(case.mu[k]).map(|value| {
            let mut simpler = case.clone();
            simpler.mu[k] = value;
            simpler
        }));
        out.extend(shorter(case.sigma[k]).map(|value| {
            let mut simpler = case.clone();
            simpler.sigma[k] = value;
            simpler
        }));
    }
    out.extend(shorter(case.shift).map(|shift| Case { shift, ..case.clone() }));
    out.extend(shorter(case.scale).map(|scale| Case { scale, ..case.clone() }));
    out.extend(shorter(case.step).map(|step| Case { step, ..case.clone() }));
    out.extend(shorter(case.widen).map(|widen| Case { widen, ..case.clone() }));
    let weight = complexity(case);
    out.retain(|simpler| simpler.is_valid() && complexity(simpler) < weight);
    out
}

fn without(case: &Case, k: usize) -> Case {
    let mut fewer = case.clone();
    fewer.mu.remove(k);
    fewer.sigma.remove(k);
    let after = |index: usize| if index > k { index - 1 } else { index };
    fewer.who = after(case.who);
    fewer.rival = if k == case.rival { 0 } else { after(case.rival) };
    fewer
}

/// Returns values near `x`, or much simpler ones, with a shorter description.
fn shorter(x: f64) -> impl Iterator<Item = f64> {
    // Zero has no logarithm, and no shorter description.
    let octave = x.abs().max(f64::MIN_POSITIVE).log2().floor() as i32;
    let top_bits = move |bits: i32| {
        let unit = libm::ldexp(1.0, octave - bits);
        (x / unit).round() * unit
    };
    let values = [0.0, 1.0, -1.0, 2.0, 3.0, x.abs(), x.round(), (2.0 * x).round() / 2.0, (8.0 * x).round() / 8.0];
    values.into_iter().chain([0, 1, 3, 6, 10].map(top_bits)).filter(move |&value| value.is_finite() && value != x)
}

/// Returns the number of candidates, and the number of bits to describe the numbers.
fn complexity(case: &Case) -> (usize, u32) {
    let numbers = case.mu.iter().chain([&case.shift, &case.scale, &case.step, &case.widen]);
    // A dispersion of 1 is the simplest; 0 is a special case.
    let sigma = case.sigma.iter().map(|&s| if s == 0.0 { 2 } else { description(s) });
    (case.len(), numbers.map(|&x| description(x)).chain(sigma).sum())
}

/// Returns the bits of the mantissa, plus the distance of the exponent from that of 1, plus the
/// sign.
fn description(x: f64) -> u32 {
    if x == 0.0 {
        return 0;
    }
    let mantissa = x.to_bits() & ((1 << 52) - 1);
    let exponent = x.abs().log2().floor() as i32;
    1 + (52 - mantissa.trailing_zeros().min(52)) + exponent.unsigned_abs() + u32::from(x < 0.0)
}
