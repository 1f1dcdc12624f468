use sk_core::{Batch, ParameterError, Real, Selector};

use crate::Buffer;
use crate::argmax::{highest, point_mass};

/// The quantity a [`Gate`] looks at.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Criterion {
    /// The composite score μ_i. It is relative to the batch unless the normaliser is raw.
    Score,
    /// μ_i − κ σ_i: the score less κ dispersions.
    LowerBound {
        /// κ.
        kappa: f64,
    },
    /// ℓ_S of the fluency blade. Where none is seated, every candidate passes.
    Fluency,
    /// The rating R_i.
    Rating,
}

/// What a [`Gate`] does when no candidate passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fallback {
    /// The candidate that comes closest, the lowest index among equals.
    #[default]
    Best,
    /// The inner rule over all candidates, as if there were no gate.
    Open,
}

/// An inner rule over the candidates whose criterion reaches a threshold.
///
/// The inner rule sees the candidates that pass and no others, so that whatever it standardises or compares is among them. O(N) and the
/// inner rule; allocates only past 32 candidates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gate<S> {
    criterion: Criterion,
    threshold: f64,
    fallback: Fallback,
    inner: S,
}

impl<S> Gate<S> {
    /// `inner` over the candidates with `criterion` at least `threshold`.
    ///
    /// # Errors
    /// When the threshold or κ is not a number.
    pub fn new(criterion: Criterion, threshold: f64, fallback: Fallback, inner: S) -> Result<Self, ParameterError> {
        ParameterError::check(!threshold.is_nan(), "threshold", threshold, "a number")?;
        if let Criterion::LowerBound { kappa } = criterion {
            ParameterError::check(kappa.is_finite(), "kappa", kappa, "finite")?;
        }
        Ok(Self { criterion, threshold, fallback, inner })
    }

    fn value<F: Real>(&self, i: usize, ratings: &[F], batch: &Batch<'_, F>) -> F {
        match self.criterion {
            Criterion::Score => batch.mu()[i],
            Criterion::LowerBound { kappa } => batch.mu()[i] - F::of(kappa) * batch.sigma()[i],
            Criterion::Fluency => batch.fluency().map_or(F::infinity(), |fluency| fluency[i]),
            Criterion::Rating => ratings[i],
        }
    }
}

impl<F: Real, S: Selector<F>> Selector<F> for Gate<S> {
    fn distribution(&self, ratings: &[F], batch: &Batch<'_, F>, probabilities: &mut [F]) {
        let n = batch.len();
        assert!(ratings.len() == n && probabilities.len() == n, "one rating and one probability per candidate");
        let values: Buffer<F> = (0..n).map(|i| self.value(i, ratings, batch)).collect();
        let passing: Buffer<usize> = (0..n).filter(|&i| values[i] >= F::of(self.threshold)).collect();
        match (passing.len(), self.fallback) {
            (0, Fallback::Best) => return point_mass(highest(&values), probabilities),
            (0, Fallback::Open) => return self.inner.distribution(ratings, batch, probabilities),
            (all, _) if all == n => return self.inner.distribution(ratings, batch, probabilities),
            _ => {}
        }
        let pick = |values: &[F]| passing.iter().map(|&i| values[i]).collect::<Buffer<F>>();
        let (ratings, mu, sigma, fluency) = (pick(ratings), pick(batch.mu()), pick(batch.sigma()), batch.fluency().map(pick));
        let mut subset = Batch::new(&mu, &sigma);
        if let Some(fluency) = &fluency {
            subset = subset.with_fluency(fluency);
        }
        let mut inner = Buffer::from_elem(F::zero(), passing.len());
        self.inner.distribution(&ratings, &subset, &mut inner);
        probabilities.fill(F::zero());
        for (&i, &p) in passing.iter().zip(&inner) {
            probabilities[i] = p;
        }
    }
}
