use crate::{Batch, Real};

/// 𝓐: rates the candidates of a batch, {(μ_i, σ_i)} ↦ **R** ∈ ℝ^N.
///
/// Only the order and the differences of ratings carry meaning; their origin is the operator's own.
pub trait Aggregator<F: Real = f64>: Send + Sync {
    /// Writes the rating of candidate i to `ratings[i]`, whatever it held. A step fails where one
    /// is NaN.
    ///
    /// # Panics
    /// May panic when `ratings` is not as long as the batch.
    fn rate(&self, batch: &Batch<'_, F>, ratings: &mut [F]);
}

const _: Option<&dyn Aggregator<f64>> = None;
