use sk_core::{Composite, Normalizer, Real, ScoreTable, Simplex, Standardize};

use crate::Propagation;
use crate::propagation::Scale;

/// The divisor of a blade's σ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DispersionUnit {
    /// std(**μ**): σ̂ has the unit of μ̂, as `prop:cov` requires.
    #[default]
    Score,
    /// std(**σ**), as published (`eq:cbn`). This is a different quantity: σ̂ grows without bound as
    /// σ becomes constant, and is 0 for a constant σ at ε = 0.
    Own,
}

/// Candidate-batch normalisation (CBN, `eq:cbn`).
///
/// ```text
/// μ̂_i = (μ_i − mean(μ)) / (std(μ) + ε)      σ̂_i = σ_i / (std + ε)      per blade, over the N candidates
/// μ_i = Σ_k w_k μ̂_i^(k)                     σ_i by the propagation rule
/// ```
///
/// Composites are dimensionless. At ε = 0 they are invariant under μ^(k) ↦ a_k μ^(k) + b_k, σ^(k) ↦
/// a_k σ^(k), a_k > 0 (`thm:cbn`), and μ̂ = 0 for a blade whose spread is zero up to rounding.
/// With ε > 0 invariance is approximate, and worst for blades of small spread. Candidates whose
/// composites differ only by rounding are tied. A batch of one gives zeros. O(N (K + log N)); no
/// allocation once the thread has processed a batch of this size.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CandidateBatch {
    /// The divisor of the variance, and ε.
    pub standardize: Standardize,
    /// The divisor of σ.
    pub dispersion: DispersionUnit,
    /// How dispersions combine.
    pub propagation: Propagation,
}

impl CandidateBatch {
    /// Creates the published convention: sample standard deviation, ε = 1e-6, σ divided by its own
    /// spread, linear propagation.
    pub fn paper() -> Self {
        Self { standardize: Standardize::PAPER_CBN, dispersion: DispersionUnit::Own, propagation: Propagation::Linear }
    }

    /// Creates the default: the published equation for μ at ε = 0, σ in the unit of μ, linear
    /// propagation.
    pub fn sound() -> Self {
        Self::default()
    }
}

impl<F: Real> Normalizer<F> for CandidateBatch {
    fn combine(&self, scores: &ScoreTable<F>, weights: &Simplex<F>, out: &mut Composite<F>) {
        let alone = scores.candidates() == 1;
        self.propagation.combine(scores, weights, out, |k, add| {
            let mu = self.standardize.moments(scores.mu(k));
            for (i, &value) in scores.mu(k).iter().enumerate() {
                add(i, self.standardize.apply(&mu, value));
            }
            if alone {
                return Scale::zero();
            }
            let factor = match self.dispersion {
                DispersionUnit::Score => self.standardize.rescale(&mu, F::one()),
                DispersionUnit::Own => self.standardize.rescale(&self.standardize.moments(scores.sigma(k)), F::one()),
            };
            Scale { factor, rounding: self.standardize.rounding(&mu, scores.blades()), ..Scale::zero() }
        });
    }
}
