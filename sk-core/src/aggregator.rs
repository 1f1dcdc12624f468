use auto_impl::auto_impl;

use crate::{Batch, Real};

/// 𝓐: rates the candidates of a batch, {(μ_i, σ_i)} ↦ **R** ∈ ℝ^N.
///
/// Only the order and the differences of ratings are meaningful. Each operator chooses its own
/// origin, which matters only to a selector that compares ratings with a threshold.
#[auto_impl(&, Box, Arc)]
pub trait Aggregator<F: Real = f64>: Send + Sync {
    /// Writes the rating of candidate i to `ratings[i]`, overwriting its contents. A step fails if
    /// a rating is not finite.
    ///
    /// # Panics
    /// May panic if the length of `ratings` differs from that of the batch.
    fn rate(&self, batch: &Batch<'_, F>, ratings: &mut [F]);
}
