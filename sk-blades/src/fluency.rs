use sk_core::{Blade, BoxError, Observation, Score};

use crate::reading;

/// b₀, the fluency blade: the proposal's own length-normalised log-probability, without dispersion.
///
/// ```text
/// μ_i = ℓ_S(c_i) = 1/L_i Σ_t log π_S(y_t | x, y_<t),   σ_i = 0
/// ```
///
/// in nats per token, at temperature 1 and before truncation, as reported by the proposal. Reads no
/// policy; O(L) per candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fluency;

impl Blade for Fluency {
    fn score(&self, step: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError> {
        let mu = |candidate: usize| reading::mean(&step.candidates[candidate].log_probs);
        Ok(reading::write(out, step.candidates.len(), |candidate, _| (mu(candidate), 0.0))?)
    }
}
