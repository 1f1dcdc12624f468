use sk_core::{Blade, BoxError, Observation, Policy, Score};

use crate::{Dispersion, reading};

/// The length-normalised log-probability of a candidate under a policy.
///
/// ```text
/// μ_i = 1/L_i Σ_t log π(y_t | x, y_<t)
/// ```
///
/// in nats per token, with σ from a [`Dispersion`]. Mixtures of log-probabilities (MOD) and of a
/// log-probability with a reward (ARGS) are weights over such blades at token granularity. O(L) per
/// candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Likelihood {
    policy: Policy,
    dispersion: Dispersion,
}

impl Likelihood {
    /// Creates the log-probability under `policy`.
    pub fn new(policy: Policy, dispersion: Dispersion) -> Self {
        Self { policy, dispersion }
    }
}

impl Blade for Likelihood {
    fn score(&self, step: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError> {
        let policy = reading::with(step, &self.policy, self.dispersion)?;
        let score = |candidate: usize, _| {
            let read = &policy[candidate];
            let terms = read.log_probs.iter().map(|&p| f64::from(p));
            (reading::mean(&read.log_probs), self.dispersion.sigma(read, 1.0, terms))
        };
        reading::write(out, policy.len(), score)?;
        Ok(self.dispersion.complete(out)?)
    }

    fn policies(&self) -> Vec<Policy> {
        vec![self.policy.clone()]
    }
}
