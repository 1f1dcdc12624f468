//! The worst that a bounded change of the scores does to the choice, by search (feature `axioms`).
//!
//! A [`StabilityCertificate`](crate::StabilityCertificate) bounds the jump from above and exists
//! for some operators under a softmax. An [`Audit`] bounds it from below, with two batches to show
//! for it, for any aggregator under any selector.

mod climb;
mod probes;
mod search;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use sk_core::{Aggregator, Batch, ParameterError, Selector};

use search::Search;

/// A search for the scores, at most D apart, between which the distribution of the choice changes
/// most.
///
/// ```text
/// maximise   TV(P(μ), P(μ + δ))   over ‖δ‖_∞ ≤ D   (and over μ, where asked for)
/// ```
///
/// First come the changes that discontinuities answer to: ties made, broken and crossed, scores
/// gathered in one place and reversed, the best k raised against the rest. Then coordinate ascent
/// from the worst of these and from random starts, without derivatives, until the evaluations are
/// spent. A search proves nothing: what it finds is there, and what it does not find may be. The
/// same seed finds the same.
///
/// ```
/// use sk_aggregate::{Audit, Copeland, RoundRobin, StabilityCertificate};
/// use sk_core::{Batch, Selector};
/// # struct Softmax;
/// # impl Selector for Softmax {
/// #     fn distribution(&self, ratings: &[f64], _: &Batch<'_>, p: &mut [f64]) {
/// #         let total: f64 = ratings.iter().map(|r| r.exp()).sum();
/// #         p.iter_mut().zip(ratings).for_each(|(p, r)| *p = r.exp() / total);
/// #     }
/// # }
///
/// let batch = Batch::new(&[0.3, 0.1, -0.2], &[1.0, 0.5, 0.8])?;
/// let audit = Audit::new(1e-9)?.with_evaluations(2000);
/// // A certificate is never exceeded …
/// let found = audit.anywhere(&RoundRobin::thurstone(), &Softmax, &batch);
/// assert!(found.total_variation <= StabilityCertificate::new(&RoundRobin::thurstone(), &batch, 1.0)?.bound(1e-9) + 1e-12);
/// // … and wins are counted differently on the two sides of a tie, however near.
/// assert!(audit.anywhere(&Copeland, &Softmax, &batch).total_variation > 0.4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Audit {
    radius: f64,
    evaluations: usize,
    seed: u64,
}

/// Two batches and the choices made from them: what a search found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Jump {
    /// TV between the two distributions.
    pub total_variation: f64,
    /// The scores before.
    pub before: Vec<f64>,
    /// The scores after, none further than D from before.
    pub after: Vec<f64>,
    /// The dispersions of both.
    pub sigma: Vec<f64>,
    /// ℓ_S of both, where there is a fluency blade.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fluency: Option<Vec<f64>>,
    /// The distribution of the choice before.
    pub probabilities_before: Vec<f64>,
    /// The distribution of the choice after.
    pub probabilities_after: Vec<f64>,
    /// Distributions that were computed.
    pub evaluations: usize,
}

impl Audit {
    /// Distributions computed unless told otherwise.
    pub const DEFAULT_EVALUATIONS: usize = 20_000;

    /// The seed unless told otherwise.
    pub const DEFAULT_SEED: u64 = 42;

    /// Changes of at most `radius` in any score.
    ///
    /// # Errors
    /// When the radius is negative or not finite.
    pub fn new(radius: f64) -> Result<Self, ParameterError> {
        ParameterError::check(radius.is_finite() && radius >= 0.0, "delta", radius, "finite and not negative")?;
        Ok(Self { radius, evaluations: Self::DEFAULT_EVALUATIONS, seed: Self::DEFAULT_SEED })
    }

    /// The same with at most this many distributions computed, and at least two.
    #[must_use]
    pub fn with_evaluations(self, evaluations: usize) -> Self {
        Self { evaluations, ..self }
    }

    /// The same from another seed.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// D.
    pub fn radius(&self) -> f64 {
        self.radius
    }

    /// The largest jump found from the scores of `batch`.
    pub fn around(&self, aggregator: &dyn Aggregator, selector: &dyn Selector, batch: &Batch<'_>) -> Jump {
        self.run(aggregator, selector, batch, false)
    }

    /// The largest jump found from any scores, at the dispersions and the fluency of `batch`: what
    /// a certificate, which does not look at the scores, bounds.
    pub fn anywhere(&self, aggregator: &dyn Aggregator, selector: &dyn Selector, batch: &Batch<'_>) -> Jump {
        self.run(aggregator, selector, batch, true)
    }

    fn run(&self, aggregator: &dyn Aggregator, selector: &dyn Selector, batch: &Batch<'_>, anywhere: bool) -> Jump {
        let mut search = Search::new(aggregator, selector, batch, self.radius, self.evaluations);
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let worst = climb::worst(&mut search, anywhere, &mut rng);
        Jump {
            total_variation: worst.total_variation,
            before: worst.before,
            after: worst.after,
            sigma: batch.sigma().to_vec(),
            fluency: batch.fluency().map(<[f64]>::to_vec),
            probabilities_before: worst.from,
            probabilities_after: worst.to,
            evaluations: search.evaluations(),
        }
    }
}
