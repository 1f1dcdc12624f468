use sk_core::{Composite, Real, ScoreTable, Scratch, Simplex, merge_ties};

use crate::Correlation;

/// The rule that combines the dispersions of the blades into the composite dispersion σ_i =
/// √(**w**ᵀ Σ_i **w**) (`prop:cov`).
///
/// Since weights and dispersions are not negative, independent ≤ linear, and linear is the largest
/// value for any correlation.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Propagation {
    /// Errors are fully correlated: σ_i = Σ_k w_k σ̂_i^(k). The published rule.
    #[default]
    Linear,
    /// Errors are independent: σ_i = √(Σ_k w_k² (σ̂_i^(k))²).
    Independent,
    /// Errors have a correlation matrix: (Σ_i)_kl = ρ_kl σ̂_i^(k) σ̂_i^(l), with the upper bound
    /// ρ_kl = 1 for pairs that the matrix does not have. O(K²·N) instead of O(K·N).
    Correlated(Correlation),
}

/// The scale of a blade's normalised scores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale<F> {
    /// The factor from σ to σ̂.
    pub factor: F,
    /// A bound on the rounding error of a μ̂ beyond that in `relative`. If both are zero for all
    /// blades, composites are not merged.
    pub rounding: F,
    /// A bound on the further rounding error of a μ̂, in units of |μ̂|.
    pub relative: F,
}

impl<F: Real> Scale<F> {
    /// Returns the scale of a blade that contributes nothing.
    pub fn zero() -> Self {
        Self { factor: F::zero(), rounding: F::zero(), relative: F::zero() }
    }
}

impl Propagation {
    /// Combines a table, blade by blade, into `out`: μ_i = Σ_k w_k μ̂_i^(k), and σ_i by this rule
    /// from the dispersions times the factor of each blade. Composites that differ only by rounding
    /// are made equal. Normalisers differ in `blade` only.
    ///
    /// `blade(k, add)` calls `add(i, μ̂)` for each candidate i and returns the scale of blade k.
    /// O(K·N), or O(K²·N) with a correlation matrix, plus sorting 2·N values.
    ///
    /// # Panics
    /// If the table has another number of blades than the weights.
    pub fn combine<F: Real>(
        &self,
        scores: &ScoreTable<F>,
        weights: &Simplex<F>,
        out: &mut Composite<F>,
        mut blade: impl FnMut(usize, &mut dyn FnMut(usize, F)) -> Scale<F>,
    ) {
        assert_eq!(weights.len(), scores.blades(), "one weight per blade");
        out.reset(scores.candidates());
        let correlation = match self {
            Self::Correlated(correlation) => Some((correlation, correlation.rows(scores))),
            _ => None,
        };
        let mut coefficients = Scratch::empty();
        // Per candidate: |μ̂| of a blade, and a bound on the rounding error of the composite.
        let [mut sizes, mut rounding] = [(); 2].map(|()| Scratch::filled(F::zero(), scores.candidates()));
        for (k, &w) in weights.as_slice().iter().enumerate() {
            let mu = &mut out.mu;
            let scale = blade(k, &mut |i, mu_hat| {
                // A weighted mean of the largest numbers can round to infinity.
                mu[i] = (mu[i] + w * mu_hat).max(F::min_value()).min(F::max_value());
                sizes[i] = mu_hat.abs().min(F::max_value());
            });
            for (bound, &size) in rounding.iter_mut().zip(&*sizes) {
                *bound = *bound + w * (scale.rounding + scale.relative * size);
            }
            // Very large dispersions relative to the spread saturate, since infinity times zero is
            // NaN.
            let coefficient = w * scale.factor.min(F::max_value());
            if correlation.is_some() {
                coefficients.push(coefficient);
                continue;
            }
            for (total, &sigma) in out.sigma.iter_mut().zip(scores.sigma(k)) {
                let combined = match self {
                    // Squares of large but valid scores would overflow, unlike `hypot`.
                    Self::Independent => total.hypot(coefficient * sigma),
                    _ => *total + coefficient * sigma,
                };
                *total = combined.min(F::max_value());
            }
        }
        if let Some((correlation, rows)) = correlation {
            let rho = |k: usize, l: usize| match (rows[k], rows[l]) {
                (Some(row), Some(column)) => correlation.get(row, column),
                _ => 1.0,
            };
            for (i, total) in out.sigma.iter_mut().enumerate() {
                let a = |k: usize| (coefficients[k] * scores.sigma(k)[i]).min(F::max_value());
                *total = quadratic_form(scores.blades(), rho, a);
            }
        }
        if rounding.iter().any(|bound| *bound > F::zero()) {
            merge_ties(&mut out.mu, |i, _| rounding[i]);
            // Half an ε per operation on non-negative terms: the standard deviation and its
            // quotient, and for each blade two products and an addition or `hypot`. A quadratic
            // form takes K of them. All but the standard deviation have the ε of F.
            let (n, k) = (scores.candidates() as f64, scores.blades() as f64);
            let operations = (n + 11.0) / 4.0 + 2.0 * k;
            let narrow = (F::epsilon().widen() - f64::EPSILON) * (2.0 * k + 0.5);
            let relative = F::of(f64::EPSILON * operations + narrow);
            merge_ties(&mut out.sigma, |_, sigma| relative * sigma);
        }
    }
}

/// Returns √(Σ_kl ρ_kl a_k a_l) over the blades, computed relative to the largest a_k; no a_k is
/// negative.
fn quadratic_form<F: Real>(blades: usize, rho: impl Fn(usize, usize) -> f64, a: impl Fn(usize) -> F) -> F {
    let blades = 0..blades;
    let peak = blades.clone().fold(F::zero(), |m, k| m.max(a(k)));
    if peak == F::zero() {
        return F::zero();
    }
    let row = |k: usize| blades.clone().map(|l| F::of(rho(k, l)) * (a(l) / peak)).sum::<F>();
    let square = blades.clone().map(|k| a(k) / peak * row(k)).sum::<F>();
    // The form of a singular matrix can round below zero.
    (peak * square.max(F::zero()).sqrt()).min(F::max_value())
}
