use std::sync::Arc;

use sk_core::{Batch, ParameterError, Real, Scratch, Selector};

use crate::argmax::{highest, point_mass};

/// The quantity that a [`Gate`] compares with its threshold.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Criterion {
    /// μ_i − κ σ_i of the composite. It is relative to the batch unless the normaliser is raw.
    LowerBound {
        /// κ; 0 for the score alone.
        kappa: f64,
    },
    /// μ_i − κ σ_i of one blade, before normalisation and whatever its weight. The threshold is in
    /// the blade's own unit and has the same meaning in every batch. If the batch lacks the blade,
    /// all probabilities are NaN, so that a step fails.
    Blade {
        /// The name of its seat.
        name: Arc<str>,
        /// κ; 0 for the score alone.
        kappa: f64,
    },
    /// ℓ_S of the fluency blade. If none is seated, every candidate passes.
    Fluency,
    /// The rating R_i itself, with the origin of the aggregator: 1500 for a Swiss–Elo tournament, 0
    /// for a round robin.
    Rating,
}

/// The rule of a [`Gate`] if no candidate passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GateFallback {
    /// Selects the candidate with the largest criterion, on ties the lowest index.
    #[default]
    Best,
    /// Applies the inner rule to all candidates, as if there were no gate.
    Open,
}

/// Applies an inner rule to the candidates whose criterion reaches a threshold.
///
/// The inner rule sees only the candidates that pass, so that it standardises and compares only
/// those. O(N·K) if the batch has the scores of K blades, otherwise O(N), plus the inner rule; no
/// allocation once the thread has processed a batch of this size.
///
/// A gate on a safety blade is the boundary that the paper proposes: a candidate below the
/// threshold cannot be selected, however high its rating. Gates can be nested; the outermost is
/// applied first.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate<S> {
    criterion: Criterion,
    threshold: f64,
    fallback: GateFallback,
    inner: S,
}

impl<S> Gate<S> {
    /// Creates a gate on `inner` for candidates with a `criterion` of at least `threshold`.
    ///
    /// # Errors
    /// If the threshold is NaN, or κ is not finite. A negative κ counts in favour of uncertain
    /// candidates.
    pub fn new(criterion: Criterion, threshold: f64, fallback: GateFallback, inner: S) -> Result<Self, ParameterError> {
        ParameterError::check(!threshold.is_nan(), "threshold", threshold, "a number")?;
        if let Criterion::LowerBound { kappa } | Criterion::Blade { kappa, .. } = criterion {
            ParameterError::check(kappa.is_finite(), "kappa", kappa, "finite")?;
        }
        Ok(Self { criterion, threshold, fallback, inner })
    }

    /// Returns the values to compare with the threshold, one per candidate, unless the batch lacks
    /// the blade.
    fn values<F: Real>(&self, ratings: &[F], batch: &Batch<'_, F>) -> Option<Scratch<Vec<F>>> {
        let lower_bound = |kappa: f64, mu: &[F], sigma: &[F]| {
            let kappa = F::of(kappa);
            mu.iter().zip(sigma).map(|(&mu, &sigma)| mu - kappa * sigma).collect()
        };
        Some(match &self.criterion {
            Criterion::LowerBound { kappa } => lower_bound(*kappa, batch.mu(), batch.sigma()),
            Criterion::Blade { name, kappa } => {
                let table = batch.blades()?;
                let k = table.find(name)?;
                lower_bound(*kappa, table.mu(k), table.sigma(k))
            }
            Criterion::Fluency => match batch.fluency() {
                Some(fluency) => fluency.iter().copied().collect(),
                None => Scratch::filled(F::infinity(), batch.len()),
            },
            Criterion::Rating => ratings.iter().copied().collect(),
        })
    }
}

impl<F: Real, S: Selector<F>> Selector<F> for Gate<S> {
    fn distribution(&self, ratings: &[F], batch: &Batch<'_, F>, probabilities: &mut [F]) {
        let n = batch.len();
        assert!(ratings.len() == n && probabilities.len() == n, "one rating and one probability per candidate");
        let Some(values) = self.values(ratings, batch) else { return probabilities.fill(F::nan()) };
        let passing: Scratch<Vec<usize>> = (0..n).filter(|&i| values[i] >= F::of(self.threshold)).collect();
        match (passing.len(), self.fallback) {
            (0, GateFallback::Best) => return point_mass(highest(&values), probabilities),
            (0, GateFallback::Open) => return self.inner.distribution(ratings, batch, probabilities),
            (all, _) if all == n => return self.inner.distribution(ratings, batch, probabilities),
            _ => {}
        }
        let ratings: Scratch<Vec<F>> = passing.iter().map(|&i| ratings[i]).collect();
        let subset = batch.pick(&passing);
        let mut inner = Scratch::filled(F::zero(), passing.len());
        self.inner.distribution(&ratings, &subset.batch(), &mut inner);
        probabilities.fill(F::zero());
        for (&i, &p) in passing.iter().zip(&*inner) {
            probabilities[i] = p;
        }
    }

    fn blades(&self) -> Vec<Arc<str>> {
        let mut blades = self.inner.blades();
        if let Criterion::Blade { name, .. } = &self.criterion {
            blades.push(Arc::clone(name));
        }
        blades
    }
}
