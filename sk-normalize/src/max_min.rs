use sk_core::{ParameterError, ScoreTable, Simplex, Weighting};

use crate::tilt::{Tilt, shift};

/// The most transfers of weight between two blades.
const EXCHANGES: usize = 1000;

/// The optimality gap at which the search ends, relative to the largest score.
const GAP: f64 = 1e-9;

/// The worst-case weights of a batch: robust multi-objective decoding (RMOD, Son et al. 2025).
///
/// ```text
/// w* = argmin_w  T log 1/N Σ_i exp(1/T Σ_k w_k μ_i^(k))      over the simplex
/// ```
///
/// is the minimising player of max_π min_w E_π[Σ_k w_k μ^(k)] − T·KL(π ‖ batch); the maximising
/// player is a softmax with temperature T over the composites. Under w*, all objectives of positive
/// weight have the same expected score, and no other objective has a smaller one. The worst-served
/// objective therefore determines the result.
///
/// A blade whose requested weight is zero is left out. Otherwise the requested weights are only the
/// starting point. Blades are compared without normalisation, so their scores must have the same
/// unit.
///
/// The minimum is found by transfers of weight between two blades, each followed by a step along
/// the last two transfers (parallel tangents), with exact line searches. The search ends when the
/// expected scores differ by 1e-9 of the largest score, or after 1000 transfers; if blades nearly
/// agree, a difference of a few 1e-6 may then remain.
///
/// A transfer costs O(K·N) products and at most 127·N exponentials: its two line searches evaluate
/// a slope over the N candidates at most 62 times each. Each evaluation allocates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MaxMin {
    temperature: f64,
}

impl MaxMin {
    /// Creates the rule at temperature T, in the unit of the scores.
    ///
    /// # Errors
    /// If `temperature` is not positive and finite.
    pub fn new(temperature: f64) -> Result<Self, ParameterError> {
        ParameterError::positive("temperature", temperature)?;
        Ok(Self { temperature })
    }

    /// Moves `weights` along `direction` to the minimum within the simplex. Leaves them unchanged
    /// if the objective increases in this direction.
    fn descend(&self, scores: &ScoreTable, weights: &mut [f64], direction: &[f64]) {
        let room = weights.iter().zip(direction).filter(|(_, d)| **d < 0.0).map(|(weight, d)| -weight / d);
        let room = room.fold(f64::INFINITY, f64::min);
        if !room.is_finite() {
            return;
        }
        let step = Tilt::new(scores, weights, self.temperature).least_along(&shift(scores, direction), 0.0, room);
        weights.iter_mut().zip(direction).for_each(|(weight, d)| *weight = (*weight + step * d).max(0.0));
        let sum: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= sum);
    }
}

impl Weighting for MaxMin {
    fn weigh(&self, scores: &ScoreTable, requested: &[f64], weights: &mut [f64]) {
        weights.copy_from_slice(requested);
        let Ok(simplex) = Simplex::normalized(requested) else { return };
        weights.copy_from_slice(simplex.as_slice());
        let part: Vec<usize> = (0..requested.len()).filter(|&k| requested[k] > 0.0).collect();
        let largest = part.iter().flat_map(|&k| scores.mu(k)).fold(0.0_f64, |most, mu| most.max(mu.abs()));
        let mut before: Option<Vec<f64>> = None;
        for _ in 0..EXCHANGES {
            let tilt = Tilt::new(scores, weights, self.temperature);
            let expected = |k: usize| tilt.mean(scores.mu(k));
            let by_score = |a: &&usize, b: &&usize| expected(**a).total_cmp(&expected(**b));
            let (Some(&worst), Some(&best)) =
                (part.iter().min_by(by_score), part.iter().filter(|&&k| weights[k] > 0.0).max_by(by_score))
            else {
                break;
            };
            if expected(best) - expected(worst) <= GAP * largest {
                break;
            }
            let start = weights.to_vec();
            let mut exchange = vec![0.0; weights.len()];
            (exchange[worst], exchange[best]) = (1.0, -1.0);
            self.descend(scores, weights, &exchange);
            // Transfers alone zigzag between blades that nearly agree.
            if let Some(before) = before.replace(start) {
                let onward: Vec<f64> = weights.iter().zip(&before).map(|(weight, before)| weight - before).collect();
                self.descend(scores, weights, &onward);
            }
        }
        // Differences of scores near the largest number overflow.
        if weights.iter().any(|weight| !weight.is_finite()) {
            weights.copy_from_slice(requested);
        }
    }
}
