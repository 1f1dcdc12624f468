use auto_impl::auto_impl;

use crate::ScoreTable;

/// The rule that derives the weights of a step from those of Ω, before 𝓝 combines the blades.
///
/// [`Fixed`] is the paper's rule: the weights are the requested ones. Other rules use the scores of
/// the step, such as one that favours the worst-served objective.
#[auto_impl(&, Box, Arc)]
pub trait Weighting: Send + Sync {
    /// Writes the weight of blade k in this step to `weights[k]`, overwriting its contents. Weights
    /// are finite and not negative, and at least one is positive, or the step fails. They need not
    /// sum to one: unless they equal the requested weights, the composites are multiplied by their
    /// sum, which must be finite.
    ///
    /// `requested` holds the weights of Ω, one per blade of `scores`. A blade whose requested
    /// weight is zero is included only because the selector uses it; give it the weight zero,
    /// unless it is a constraint of the rule.
    ///
    /// # Panics
    /// May panic if the slices do not have one entry per blade.
    fn weigh(&self, scores: &ScoreTable, requested: &[f64], weights: &mut [f64]);
}

/// The weights are those of Ω.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fixed;

impl Weighting for Fixed {
    fn weigh(&self, _: &ScoreTable, requested: &[f64], weights: &mut [f64]) {
        weights.copy_from_slice(requested);
    }
}
