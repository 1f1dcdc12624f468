use std::sync::Arc;

use sk_core::{Blade, BoxError, Observation, ParameterError, Policy, Score};

use crate::{Dispersion, reading};

/// The length-normalised implicit reward of a policy against the backbone.
///
/// ```text
/// μ_i = β/L_i Σ_t [ log π_k(y_t | x, y_<t) − log π_B(y_t | x, y_<t) ]
/// ```
///
/// in nats per token times β, with σ from a [`Dispersion`]. π_k is an adapter trained by DPO, or
/// the backbone under an instruction. [`against`](Self::against) replaces π_B by another variant.
/// Reads two policies; O(L) per candidate.
#[derive(Debug, Clone, PartialEq)]
pub struct ImplicitReward {
    policy: Policy,
    reference: Policy,
    beta: f64,
    dispersion: Dispersion,
}

impl ImplicitReward {
    /// Creates the implicit reward of the backbone's variant `name`, with the β of its training.
    ///
    /// # Errors
    /// If β is not positive and finite.
    pub fn new(name: impl Into<Arc<str>>, beta: f64, dispersion: Dispersion) -> Result<Self, ParameterError> {
        ParameterError::positive("beta", beta)?;
        Ok(Self { policy: Policy::Variant(name.into()), reference: Policy::Backbone, beta, dispersion })
    }

    /// Replaces the reference by the variant `name`, such as the backbone under the opposite
    /// instruction.
    #[must_use]
    pub fn against(self, name: impl Into<Arc<str>>) -> Self {
        Self { reference: Policy::Variant(name.into()), ..self }
    }
}

impl Blade for ImplicitReward {
    fn score(&self, step: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError> {
        let reference = reading::of(step, &self.reference)?;
        let policy = reading::with(step, &self.policy, self.dispersion)?;
        let score = |candidate: usize, _| {
            let (k, b) = (&policy[candidate], &reference[candidate]);
            let ratios = k.log_probs.iter().zip(&b.log_probs).map(|(&k, &b)| f64::from(k) - f64::from(b));
            let mu = self.beta * ratios.clone().sum::<f64>() / k.log_probs.len() as f64;
            (mu, self.dispersion.sigma(k, self.beta, ratios))
        };
        reading::write(out, policy.len(), score)?;
        Ok(self.dispersion.complete(out)?)
    }

    fn policies(&self) -> Vec<Policy> {
        vec![self.reference.clone(), self.policy.clone()]
    }
}
