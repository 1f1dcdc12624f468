use std::sync::Arc;

use sk_core::{Blade, BoxError, Observation, Policy, Score};

use crate::reading;

/// The reward that a trained head gives to the text so far, as ARGS (Khanov et al. 2024) scores a
/// candidate token.
///
/// ```text
/// μ_i = r(x, y_≤L) = v_L,   σ_i = 0
/// ```
///
/// where v_L is the output of the head after the candidate's last token. Its unit is that of the
/// training: under the Bradley–Terry loss, a difference of μ is the log-odds of being preferred. It
/// is not length-normalised, since it is a value of the whole text and not a sum over tokens. Reads
/// one head; O(1) per candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RewardHead {
    head: Policy,
}

impl RewardHead {
    /// Creates the reward of the backbone's head `name`.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { head: Policy::Head(name.into()) }
    }
}

impl Blade for RewardHead {
    fn score(&self, step: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError> {
        let values = reading::last_values(step, &self.head)?;
        Ok(reading::write(out, values.len(), |candidate, _| (values[candidate], 0.0))?)
    }

    fn policies(&self) -> Vec<Policy> {
        vec![self.head.clone()]
    }
}
