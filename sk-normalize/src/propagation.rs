use sk_core::{Composite, Real, ScoreTable, Scratch, Simplex, merge_ties};

use crate::Correlation;

/// How the dispersions of the blades make the composite dispersion σ_i = √(**w**ᵀ Σ_i **w**)
/// (`prop:cov`).
///
/// For weights and dispersions that are not negative, independent ≤ linear, and linear is the
/// largest value any correlation allows.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Propagation {
    /// Errors rise and fall together: σ_i = Σ_k w_k σ̂_i^(k). The published rule.
    #[default]
    Linear,
    /// Errors are independent: σ_i = √(Σ_k w_k² (σ̂_i^(k))²).
    Independent,
    /// Errors have a correlation matrix: (Σ_i)_kl = ρ_kl σ̂_i^(k) σ̂_i^(l), with ρ_kl = 1, the
    /// upper bound, where the matrix says nothing.
    Correlated(Correlation),
}

/// What a normaliser says of a blade beside its μ̂.
pub(crate) struct Scale<F> {
    /// Takes σ to σ̂.
    pub(crate) factor: F,
    /// What rounding may have moved a μ̂ by.
    pub(crate) rounding: F,
}

impl<F: Real> Scale<F> {
    /// That of a blade that contributes nothing.
    pub(crate) fn zero() -> Self {
        Self { factor: F::zero(), rounding: F::zero() }
    }
}

impl Propagation {
    /// Combines a table, blade by blade, into `out`. Blades that cancel to their rounding leave a
    /// tie.
    ///
    /// `blade(k, add)` calls `add(i, μ̂)` for each candidate i.
    pub(crate) fn combine<F: Real>(
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
        let mut rounding = F::zero();
        for (k, &w) in weights.as_slice().iter().enumerate() {
            let mu = &mut out.mu;
            // An average of the largest scores may round past them.
            let scale = blade(k, &mut |i, mu_hat| mu[i] = (mu[i] + w * mu_hat).max(F::min_value()).min(F::max_value()));
            rounding = rounding + w * scale.rounding;
            // Dispersions that dwarf the spread of their scores saturate: infinity times zero is
            // not a dispersion.
            let coefficient = w * scale.factor.min(F::max_value());
            if correlation.is_some() {
                coefficients.push(coefficient);
                continue;
            }
            for (total, &sigma) in out.sigma.iter_mut().zip(scores.sigma(k)) {
                let combined = match self {
                    // `hypot` rather than squares, which overflow for scores that are large but
                    // valid.
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
        if rounding > F::zero() {
            merge_ties(&mut out.mu, |_| rounding);
            // Half an ε per operation on terms that are not negative: the standard deviation and
            // its quotient, and per blade two products and an addition or a hypotenuse, of which a
            // quadratic form takes K.
            let operations = (scores.candidates() as f64 + 11.0) / 4.0 + 2.0 * scores.blades() as f64;
            merge_ties(&mut out.sigma, |sigma| F::epsilon() * F::of(operations) * sigma);
        }
    }
}

/// √(Σ_kl ρ_kl a_k a_l) over the blades, in units of the largest a_k; none is negative.
fn quadratic_form<F: Real>(blades: usize, rho: impl Fn(usize, usize) -> f64, a: impl Fn(usize) -> F) -> F {
    let blades = 0..blades;
    let peak = blades.clone().fold(F::zero(), |m, k| m.max(a(k)));
    if peak == F::zero() {
        return F::zero();
    }
    let row = |k: usize| blades.clone().map(|l| F::of(rho(k, l)) * (a(l) / peak)).sum::<F>();
    let square = blades.clone().map(|k| a(k) / peak * row(k)).sum::<F>();
    // A singular matrix can round below zero.
    (peak * square.max(F::zero()).sqrt()).min(F::max_value())
}
