use sk_core::{Composite, Normalizer, Real, ScoreTable, Simplex};

use crate::Propagation;
use crate::propagation::Scale;

/// No normalisation: μ_i = Σ_k w_k μ_i^(k).
///
/// Used by Best-of-N, ARGS and MOD. The influence of blade k is then w_k · std(**μ**^(k)), not w_k
/// (`thm:cbn` i). O(K·N).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Raw {
    /// How dispersions combine.
    pub propagation: Propagation,
}

impl<F: Real> Normalizer<F> for Raw {
    fn combine(&self, scores: &ScoreTable<F>, weights: &Simplex<F>, out: &mut Composite<F>) {
        self.propagation.combine(scores, weights, out, |k, add| {
            for (i, &mu) in scores.mu(k).iter().enumerate() {
                add(i, mu);
            }
            Scale { factor: F::one(), ..Scale::zero() }
        });
    }
}
