use std::sync::Arc;

use sk_core::{Blade, BoxError, Divergence, Observation, Policy, Score};

use crate::reading;

/// f′ of the likelihood ratio of a policy and the backbone, for MOD under divergences other than
/// the reverse KL.
///
/// ```text
/// μ_i = 1/L_i Σ_t f′( π_k(y_t | x, y_<t) / π_B(y_t | x, y_<t) ),   σ_i = 0
/// ```
///
/// The normaliser `raw` sums these scores with the weights, and the aggregator of the same
/// [`Divergence`] converts the sum back to a log-probability. This is exact at token granularity, L
/// = 1. Reads the backbone and one variant; O(L) per candidate. Shi et al. 2024, eq. 6.
#[derive(Debug, Clone, PartialEq)]
pub struct DivergenceRatio {
    policy: Policy,
    divergence: Divergence,
}

impl DivergenceRatio {
    /// Creates the ratio of the variant `name` to the backbone under `divergence`.
    pub fn new(name: impl Into<Arc<str>>, divergence: Divergence) -> Self {
        Self { policy: Policy::Variant(name.into()), divergence }
    }
}

impl Blade for DivergenceRatio {
    fn score(&self, step: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError> {
        let backbone = reading::of(step, &Policy::Backbone)?;
        let policy = reading::of(step, &self.policy)?;
        let score = |candidate: usize, _| {
            let (k, b) = (&policy[candidate].log_probs, &backbone[candidate].log_probs);
            let terms = k.iter().zip(b).map(|(&k, &b)| self.divergence.gradient(f64::from(k) - f64::from(b)));
            (terms.sum::<f64>() / k.len() as f64, 0.0)
        };
        Ok(reading::write(out, policy.len(), score)?)
    }

    fn policies(&self) -> Vec<Policy> {
        vec![Policy::Backbone, self.policy.clone()]
    }
}
