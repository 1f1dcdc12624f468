use sk_core::{Blade, BoxError, Observation, Policy, Score};

use crate::reading;

/// The score of contrastive decoding: the log-probability under a strong model minus that under a
/// weak model.
///
/// ```text
/// μ_i = 1/L_i Σ_t [ log π_B(y_t | x, y_<t) − log π_S(y_t | x, y_<t) ],   σ_i = 0
/// ```
///
/// in nats per token, with the backbone as expert and the proposal as amateur. The plausibility
/// constraint of contrastive decoding restricts the candidates and therefore belongs to the
/// proposal. O(L) per candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExpertAmateur;

impl Blade for ExpertAmateur {
    fn score(&self, step: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError> {
        let expert = reading::of(step, &Policy::Backbone)?;
        let mu = |i: usize| reading::mean(&expert[i].log_probs) - reading::mean(&step.candidates[i].log_probs);
        Ok(reading::write(out, expert.len(), |candidate, _| (mu(candidate), 0.0))?)
    }

    fn policies(&self) -> Vec<Policy> {
        vec![Policy::Backbone]
    }
}
