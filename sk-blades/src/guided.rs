use sk_core::{Blade, BoxError, Observation, ParameterError, Policy, Score};

use crate::reading;

/// The likelihood term ℓ_i of a [`Guided`] score. At token granularity the first two are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Length {
    /// ℓ_i = Σ_t log π_B(y_t | x, y_<t), in nats: the log-probability of the candidate.
    #[default]
    Summed,
    /// ℓ_i = 1/L_i Σ_t log π_B(y_t | x, y_<t), in nats per token, which does not favour short
    /// candidates.
    PerToken,
    /// ℓ_i = Σ_t [ log π_B(y_t | x, y_<t) − log π_S(y_t | x, y_<t) ], in nats: the log importance
    /// weight of a candidate sampled from the proposal instead of the backbone (GSI, Geuter et al.
    /// 2025). It is a sum and not normalised by length.
    Ratio,
}

/// A reward plus the backbone's log-probability: the score of ARGS (Khanov et al. 2024) and, for a
/// reward log P(a | x, y), the log-posterior of FUDGE (Yang & Klein 2021).
///
/// ```text
/// μ_i = ℓ_i + λ·μ_i^inner,   σ_i = λ·σ_i^inner
/// ```
///
/// where the [`Length`] gives ℓ_i, by default log π_B(c_i | x) in nats.
///
/// Simplex weights do not change the likelihood term if scores are not normalised and every blade
/// of positive weight is guided with the same [`Length`]: Σ_k w_k μ_k = ℓ + Σ_k w_k λ_k μ_k^inner
/// for every candidate. FUDGE with K attributes, ℓ + Σ_k log P(a_k | x, y), is then λ = K at equal
/// weights. O(L) per candidate plus the inner blade.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guided<B> {
    inner: B,
    lambda: f64,
    length: Length,
}

impl<B> Guided<B> {
    /// Creates a guided blade from `inner` with strength λ.
    ///
    /// # Errors
    /// If λ is negative or not finite.
    pub fn new(inner: B, lambda: f64, length: Length) -> Result<Self, ParameterError> {
        ParameterError::not_negative("lambda", lambda)?;
        Ok(Self { inner, lambda, length })
    }
}

impl<B: Blade> Blade for Guided<B> {
    fn score(&self, step: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError> {
        let backbone = reading::of(step, &Policy::Backbone)?;
        self.inner.score(step, out)?;
        let score = |candidate: usize, inner: Score| {
            let log_probs = &backbone[candidate].log_probs;
            let mean = reading::mean(log_probs);
            let log_prob = match self.length {
                Length::Summed => mean * log_probs.len() as f64,
                Length::PerToken => mean,
                Length::Ratio => {
                    let proposal = &step.candidates[candidate].log_probs;
                    (mean - reading::mean(proposal)) * proposal.len() as f64
                }
            };
            (log_prob + self.lambda * inner.mu(), self.lambda * inner.sigma())
        };
        Ok(reading::write(out, backbone.len(), score)?)
    }

    fn policies(&self) -> Vec<Policy> {
        let inner = self.inner.policies().into_iter().filter(|policy| *policy != Policy::Backbone);
        std::iter::once(Policy::Backbone).chain(inner).collect()
    }
}
