use sk_core::{Composite, Real, ScoreTable, Simplex};

use crate::Correlation;

/// How the dispersions of the blades make the composite dispersion σ_i = √(**w**ᵀ Σ_i **w**) (`prop:cov`).
///
/// For weights and dispersions that are not negative, independent ≤ linear, and linear is the largest value any correlation allows.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Propagation {
    /// Errors rise and fall together: σ_i = Σ_k w_k σ̂_i^(k). The published rule.
    #[default]
    Linear,
    /// Errors are independent: σ_i = √(Σ_k w_k² (σ̂_i^(k))²).
    Independent,
    /// Errors have a correlation matrix: (Σ_i)_kl = ρ_kl σ̂_i^(k) σ̂_i^(l).
    ///
    /// For a table of another number of blades than the matrix the linear rule is used: it needs no correlations and is the upper bound.
    Correlated(Correlation),
}

impl Propagation {
    /// Combines a table, blade by blade, into `out`.
    ///
    /// `blade(k, add)` calls `add(i, μ̂)` for each candidate i and returns the factor that takes the blade's σ to σ̂.
    pub(crate) fn combine<F: Real>(
        &self,
        scores: &ScoreTable<F>,
        weights: &Simplex<F>,
        out: &mut Composite<F>,
        mut blade: impl FnMut(usize, &mut dyn FnMut(usize, F)) -> F,
    ) {
        assert_eq!(weights.len(), scores.blades(), "one weight per blade");
        out.reset(scores.candidates());
        let correlation = match self {
            Self::Correlated(correlation) if correlation.size() == scores.blades() => Some(correlation),
            _ => None,
        };
        let mut coefficients = Vec::new();
        for (k, &w) in weights.as_slice().iter().enumerate() {
            let mu = &mut out.mu;
            let factor = blade(k, &mut |i, mu_hat| mu[i] = mu[i] + w * mu_hat);
            // Dispersions that dwarf the spread of their scores saturate: infinity times zero is not a dispersion.
            let coefficient = w * factor.min(F::max_value());
            if correlation.is_some() {
                coefficients.push(coefficient);
                continue;
            }
            for (total, &sigma) in out.sigma.iter_mut().zip(scores.sigma(k)) {
                let combined = match self {
                    // `hypot` rather than squares, which overflow for scores that are large but valid.
                    Self::Independent => total.hypot(coefficient * sigma),
                    Self::Linear | Self::Correlated(_) => *total + coefficient * sigma,
                };
                *total = combined.min(F::max_value());
            }
        }
        if let Some(correlation) = correlation {
            for (i, total) in out.sigma.iter_mut().enumerate() {
                *total = quadratic_form(correlation, |k| (coefficients[k] * scores.sigma(k)[i]).min(F::max_value()));
            }
        }
    }
}

/// √(Σ_kl ρ_kl a_k a_l), in units of the largest |a_k|.
fn quadratic_form<F: Real>(correlation: &Correlation, a: impl Fn(usize) -> F) -> F {
    let blades = 0..correlation.size();
    let peak = blades.clone().fold(F::zero(), |m, k| m.max(a(k)));
    if peak == F::zero() {
        return F::zero();
    }
    let row = |k: usize| blades.clone().map(|l| F::of(correlation.get(k, l)) * (a(l) / peak)).sum::<F>();
    let square = blades.clone().map(|k| a(k) / peak * row(k)).sum::<F>();
    // A singular matrix can round below zero.
    (peak * square.max(F::zero()).sqrt()).min(F::max_value())
}
