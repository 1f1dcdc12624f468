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
        assert_eq!(out.len(), expert.len(), "one score per candidate");
        for (index, (score, candidate)) in out.iter_mut().zip(step.candidates.iter()).enumerate() {
            let mu = reading::mean(&expert[index].log_probs) - reading::mean(&candidate.log_probs);
            *score = reading::score(index, mu, 0.0)?;
        }
        Ok(())
    }

    fn policies(&self) -> Vec<Policy> {
        vec![Policy::Backbone]
    }
}
