use sk_core::{ParameterError, ScoreTable, Weighting};

use crate::tilt::Tilt;

/// Exchanges of weight between two blades; the gap closes long before.
const EXCHANGES: usize = 1000;

/// Halvings of the interval of a line search: an `f64` has 53 bits.
const HALVINGS: usize = 60;

/// The gap at which the weights are a minimum, as a share of the largest score.
const GAP: f64 = 1e-9;

/// The weights under which the batch does worst: robust multi-objective decoding (RMOD, Son et al.
/// 2025).
///
/// ```text
/// w* = argmin_w  T log 1/N Σ_i exp(1/T Σ_k w_k μ_i^(k))      over the simplex
/// ```
///
/// is the adversary's part of max_π min_w E_π[Σ_k w_k μ^(k)] − T·KL(π ‖ batch); a softmax with
/// temperature T over the composites is the other one. Under w* the objectives of positive weight
/// have one expected score, and no other has a smaller one: the worst-served objective counts.
///
/// A blade whose requested weight is zero takes no part; of the others, all that the requested
/// weights decide is where the search begins. Blades are compared as they are, so that their scores
/// must be in one unit.
///
/// Solved by pairwise exchanges of weight with an exact line search, in O(N) for each evaluation of
/// the objective.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MaxMin {
    temperature: f64,
}

impl MaxMin {
    /// Returns the rule at temperature T, in the unit of the scores.
    ///
    /// # Errors
    /// If `temperature` is not positive and finite.
    pub fn new(temperature: f64) -> Result<Self, ParameterError> {
        let valid = temperature.is_finite() && temperature > 0.0;
        ParameterError::check(valid, "temperature", temperature, "positive and finite")?;
        Ok(Self { temperature })
    }
}

impl Weighting for MaxMin {
    fn weigh(&self, scores: &ScoreTable, requested: &[f64], weights: &mut [f64]) {
        let sum: f64 = requested.iter().sum();
        weights.iter_mut().zip(requested).for_each(|(weight, requested)| *weight = requested / sum);
        let part: Vec<usize> = (0..requested.len()).filter(|&k| requested[k] > 0.0).collect();
        let largest = part.iter().flat_map(|&k| scores.mu(k)).fold(0.0_f64, |most, mu| most.max(mu.abs()));
        let mut tilt = Tilt::new(scores, weights, self.temperature);
        for _ in 0..EXCHANGES {
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
            // The objective is convex along the exchange; its slope rises from below zero.
            let slope = |moved: f64| {
                let moved = tilt.along(moved, scores.mu(worst), scores.mu(best));
                moved.mean(scores.mu(worst)) - moved.mean(scores.mu(best))
            };
            let (mut least, mut most) = (0.0, weights[best]);
            if slope(most) > 0.0 {
                for _ in 0..HALVINGS {
                    let middle = f64::midpoint(least, most);
                    *if slope(middle) > 0.0 { &mut most } else { &mut least } = middle;
                }
            }
            if most <= 0.0 {
                break;
            }
            let moved = most.min(weights[best]);
            tilt = tilt.along(moved, scores.mu(worst), scores.mu(best));
            weights[best] -= moved;
            weights[worst] += moved;
        }
        // Scores near the largest number that there is have differences without end.
        if weights.iter().any(|weight| !weight.is_finite()) {
            weights.copy_from_slice(requested);
        }
    }
}
