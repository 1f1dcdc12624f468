use std::sync::Arc;

use sk_core::{ParameterError, ScoreTable, Simplex, Weighting};

use crate::tilt::{Tilt, shift};

/// The most passes over the constraints.
const SWEEPS: usize = 200;

/// The change of a multiplier below which the search ends.
const CHANGE: f64 = 1e-9;

/// Weights that keep some objectives above thresholds while maximising the others: satisficing
/// alignment (SITAlign, Chehade et al. 2025).
///
/// Objectives without a threshold have their requested weights, divided by the sum of these: w_k.
/// Those with one are constraints E_π[μ^(c)] ≥ τ_c, and their weights are the Lagrange multipliers,
/// which minimise the dual
///
/// ```text
/// λ* = argmin_λ  T log 1/N Σ_i exp(1/T (Σ_k w_k μ_i^(k) + Σ_c λ_c (μ_i^(c) − τ_c)))    over 0 ≤ λ_c ≤ limit
/// ```
///
/// of maximising Σ_k w_k μ^(k) − T·KL(π ‖ batch) under the constraints. An inactive constraint has
/// weight zero. A constraint that no candidate can meet has weight `limit`. The requested weight of
/// a constraint is ignored, even if it is zero. If no other objective has a positive weight, all
/// w_k are zero, and the requested weights are used if no constraint is active.
///
/// A threshold whose name is not that of a row has no effect. A step reads a blade of requested
/// weight zero only if the selector looks at it, as a gate does.
///
/// The scores and the threshold of a blade have the same unit. The minimum is found by coordinate
/// descent over the multipliers, each pass followed by a line search along its total change. The
/// search ends when no multiplier changes by more than 1e-9 in a pass, or after 200 passes.
///
/// A pass over C constraints takes C + 1 line searches. Each costs O(K·N) products and at most 63·N
/// exponentials: it evaluates a slope over the N candidates at most 62 times. Each evaluation
/// allocates.
#[derive(Debug, Clone, PartialEq)]
pub struct Dual {
    temperature: f64,
    limit: f64,
    thresholds: Vec<(Arc<str>, f64)>,
}

impl Dual {
    /// Creates the rule at temperature T, in the unit of the scores. Multipliers are at most `limit`,
    /// next to weights of the other objectives that sum to one. Each threshold has the name of its
    /// blade.
    ///
    /// # Errors
    /// If `temperature` is not positive and finite, `limit` is not in (0, 10⁹], a threshold is NaN, or
    /// a blade has two thresholds.
    pub fn new(temperature: f64, limit: f64, thresholds: Vec<(Arc<str>, f64)>) -> Result<Self, ParameterError> {
        ParameterError::positive("temperature", temperature)?;
        // The search resolves fractions of the limit.
        ParameterError::check(limit > 0.0 && limit <= 1e9, "limit", limit, "positive and at most 1e9")?;
        for (k, (name, threshold)) in thresholds.iter().enumerate() {
            ParameterError::check(!threshold.is_nan(), "threshold", *threshold, "a number")?;
            let is_first = thresholds[..k].iter().all(|(known, _)| known != name);
            ParameterError::check(is_first, "threshold", *threshold, "the only one of its blade")?;
        }
        Ok(Self { temperature, limit, thresholds })
    }
}

impl Weighting for Dual {
    fn weigh(&self, scores: &ScoreTable, requested: &[f64], weights: &mut [f64]) {
        weights.copy_from_slice(requested);
        let constraint = |(name, threshold): &(Arc<str>, f64)| scores.find(name).map(|k| (k, *threshold));
        let constraints: Vec<(usize, f64)> = self.thresholds.iter().filter_map(constraint).collect();
        constraints.iter().for_each(|&(k, _)| weights[k] = 0.0);
        // An error means that every blade is a constraint or has weight zero.
        if let Ok(simplex) = Simplex::normalized(&*weights) {
            weights.copy_from_slice(simplex.as_slice());
        }
        for _ in 0..SWEEPS {
            let before = weights.to_vec();
            for &(k, threshold) in &constraints {
                weights[k] = 0.0;
                weights[k] = Tilt::new(scores, weights, self.temperature).least_along(scores.mu(k), threshold, self.limit);
            }
            let onward: Vec<f64> = weights.iter().zip(&before).map(|(weight, before)| weight - before).collect();
            if onward.iter().all(|change| change.abs() <= CHANGE) {
                break;
            }
            // Coordinate descent alone is slow if two blades nearly agree.
            let end = |k: usize| if onward[k] < 0.0 { 0.0 } else { self.limit };
            // A threshold may be infinite where nothing moves, and zero times infinity is NaN.
            let moving = || constraints.iter().filter(|&&(k, _)| onward[k] != 0.0);
            let toll = moving().map(|&(k, threshold)| onward[k] * threshold).sum();
            let room = moving().map(|&(k, _)| (end(k) - weights[k]) / onward[k]).fold(f64::INFINITY, f64::min);
            let step = Tilt::new(scores, weights, self.temperature).least_along(&shift(scores, &onward), toll, room);
            constraints.iter().for_each(|&(k, _)| weights[k] = (weights[k] + step * onward[k]).clamp(0.0, self.limit));
        }
        // If every objective is an inactive constraint, the requested weights are used.
        if !weights.iter().any(|weight| *weight > 0.0) || weights.iter().any(|weight| !weight.is_finite()) {
            weights.copy_from_slice(requested);
        }
    }
}
