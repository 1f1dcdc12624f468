use auto_impl::auto_impl;

use crate::{Composite, Real, ScoreTable, Simplex};

/// 𝓝: puts the blades of a batch on one scale and combines them with weights **w**.
#[auto_impl(&, Box, Arc)]
pub trait Normalizer<F: Real = f64>: Send + Sync {
    /// Combines K×N scores under K weights into N composites, such as
    ///
    /// ```text
    /// μ_i = Σ_k w_k μ̂_i^(k)        σ_i = Σ_k w_k σ̂_i^(k)
    /// ```
    ///
    /// where μ̂ and σ̂ are the normalised scores of a blade. They have no unit, except for a
    /// normaliser that leaves scores unchanged. The method is infallible, since table and weights
    /// are valid by construction. The results must be valid scores, one per candidate: μ finite, σ
    /// finite and not negative. A step fails if they are not.
    ///
    /// The contents of `out` are overwritten.
    ///
    /// # Panics
    /// May panic if the number of weights differs from the number of blades.
    fn combine(&self, scores: &ScoreTable<F>, weights: &Simplex<F>, out: &mut Composite<F>);
}
