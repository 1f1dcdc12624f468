//! A search for the bounded change of scores with the largest effect on the selection (feature
//! `axioms`).
//!
//! A [`StabilityCertificate`](crate::StabilityCertificate) is an upper bound on the effect,
//! available for some operators under a softmax. An [`Audit`] gives a lower bound, with the two
//! batches that attain it, for any aggregator and selector.

mod climb;
mod probes;
mod search;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use sk_core::{Aggregator, Batch, ParameterError, Selector};

use search::Search;

/// A search for two score vectors, at most D apart, whose selection probabilities differ most.
///
/// ```text
/// maximise   TV(P(μ), P(μ + δ))   over ‖δ‖_∞ ≤ D   (and over μ, where asked for)
/// ```
///
/// The search first tries changes at which discontinuities show: making, breaking and crossing
/// ties, gathering scores in one place, reversing them, and raising the best k against the rest. It
/// then runs derivative-free coordinate ascent from the best of these and from random starts until
/// the evaluations are used up. The result is a lower bound; a larger change may exist. Equal seeds
/// give equal results.
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
/// // … and wins jump at a tie, however small the change.
/// assert!(audit.anywhere(&Copeland, &Softmax, &batch).total_variation > 0.4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Audit {
    radius: f64,
    evaluations: usize,
    seed: u64,
}

/// The result of a search: two batches and their selection probabilities.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Jump {
    /// The total variation between the two distributions.
    pub total_variation: f64,
    /// The initial scores.
    pub before: Vec<f64>,
    /// The changed scores, each at most D from the initial one.
    pub after: Vec<f64>,
    /// The dispersions of both batches.
    pub sigma: Vec<f64>,
    /// ℓ_S of both batches, if there is a fluency blade.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fluency: Option<Vec<f64>>,
    /// The initial selection probabilities.
    pub probabilities_before: Vec<f64>,
    /// The changed selection probabilities.
    pub probabilities_after: Vec<f64>,
    /// The number of distributions computed.
    pub evaluations: usize,
}

impl Audit {
    /// The default number of distributions to compute.
    pub const DEFAULT_EVALUATIONS: usize = 20_000;

    /// The default seed.
    pub const DEFAULT_SEED: u64 = 42;

    /// Creates an audit of changes of at most `radius` in each score.
    ///
    /// # Errors
    /// If the radius is negative or not finite.
    pub fn new(radius: f64) -> Result<Self, ParameterError> {
        ParameterError::not_negative("delta", radius)?;
        Ok(Self { radius, evaluations: Self::DEFAULT_EVALUATIONS, seed: Self::DEFAULT_SEED })
    }

    /// Sets the most distributions to compute, at least two.
    #[must_use]
    pub fn with_evaluations(self, evaluations: usize) -> Self {
        Self { evaluations, ..self }
    }

    /// Sets the seed.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Returns D.
    pub fn radius(&self) -> f64 {
        self.radius
    }

    /// Returns the largest change found from the scores of `batch`.
    pub fn around(&self, aggregator: &dyn Aggregator, selector: &dyn Selector, batch: &Batch<'_>) -> Jump {
        self.run(aggregator, selector, batch, false)
    }

    /// Returns the largest change found from any scores, at the dispersions and the fluency of
    /// `batch`. This is the quantity that a certificate bounds, since it does not depend on the
    /// scores.
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
            evaluations: search.evaluations,
        }
    }
}
