use std::sync::Arc;

use sk_core::{Blade, BoxError, Observation, ParameterError, Policy, Reading, Score, Scratch};

use crate::reading;

/// The implicit reward of M adapters trained for one objective: their mean, with their disagreement
/// as σ.
///
/// ```text
/// r_im = β/L_i Σ_t [ log π_m(y_t | x, y_<t) − log π_B(y_t | x, y_<t) ]
/// μ_i  = mean_m r_im,   σ_i = sample std_m r_im
/// ```
///
/// σ has the unit of μ and estimates the error of a single member's reward. Reads the backbone and
/// M variants; O(M·L) per candidate.
#[derive(Debug, Clone, PartialEq)]
pub struct Ensemble {
    policies: Vec<Policy>,
    beta: f64,
}

impl Ensemble {
    /// Creates the ensemble of the variants `names`, with the β of their training.
    ///
    /// # Errors
    /// If there are fewer than two variants, or β is not positive and finite.
    pub fn new<N: Into<Arc<str>>>(names: impl IntoIterator<Item = N>, beta: f64) -> Result<Self, ParameterError> {
        ParameterError::positive("beta", beta)?;
        let policies: Vec<Policy> = names.into_iter().map(|name| Policy::Variant(name.into())).collect();
        ParameterError::check(policies.len() > 1, "the number of adapters", policies.len() as f64, "at least 2")?;
        Ok(Self { policies, beta })
    }
}

impl Blade for Ensemble {
    fn score(&self, step: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError> {
        let backbone = reading::of(step, &Policy::Backbone)?;
        // Row m for member m.
        let mut rewards = Scratch::empty();
        for policy in &self.policies {
            let reward = |(own, anchor): (&Reading, &Reading)| {
                self.beta * (reading::mean(&own.log_probs) - reading::mean(&anchor.log_probs))
            };
            rewards.extend(reading::of(step, policy)?.iter().zip(backbone).map(reward));
        }
        let m = self.policies.len() as f64;
        let score = |candidate, _| {
            let rewards = rewards.iter().skip(candidate).step_by(backbone.len());
            let mu = rewards.clone().sum::<f64>() / m;
            let variance = rewards.map(|r| (r - mu).powi(2)).sum::<f64>() / (m - 1.0);
            (mu, variance.sqrt())
        };
        Ok(reading::write(out, backbone.len(), score)?)
    }

    fn policies(&self) -> Vec<Policy> {
        std::iter::once(Policy::Backbone).chain(self.policies.iter().cloned()).collect()
    }
}
