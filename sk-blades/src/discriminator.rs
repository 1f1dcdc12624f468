use std::sync::Arc;

use sk_core::{Blade, BoxError, Observation, Policy, Score};

use crate::reading;

/// The source of a [`Discriminator`]'s σ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LabelSpread {
    /// √(p(1−p)), the standard deviation of the label under the discriminator's own p. It is
    /// largest at p = ½.
    ///
    /// It is a probability in [0, ½] and does not have the unit of μ. It measures the
    /// discriminator's uncertainty, not its error.
    Bernoulli,
    /// σ = 0: scores without dispersion.
    #[default]
    Zero,
}

/// The log-probability that the finished text has an attribute, given the text up to the candidate:
/// the future discriminator of FUDGE (Yang & Klein 2021).
///
/// ```text
/// μ_i = log P(a | x, y_≤L) = log sigmoid(v_L),   σ_i from a LabelSpread
/// ```
///
/// in nats, at most 0, where v_L is the log-odds from a head on the backbone after the candidate's
/// last token. At token granularity, [`Guided`](crate::Guided) adds the backbone's log-probability,
/// which gives the posterior log P(y | x, a) up to a constant. Reads one head; O(1) per candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discriminator {
    head: Policy,
    spread: LabelSpread,
}

impl Discriminator {
    /// Creates the discriminator of the backbone's head `name`.
    pub fn new(name: impl Into<Arc<str>>, spread: LabelSpread) -> Self {
        Self { head: Policy::Head(name.into()), spread }
    }
}

impl Blade for Discriminator {
    fn score(&self, step: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError> {
        let values = reading::last_values(step, &self.head)?;
        let score = |candidate: usize, _| {
            let log_odds = values[candidate];
            let sigma = match self.spread {
                // √(p(1−p)) = √(sigmoid(v)·sigmoid(−v)), which stays precise if p is close to 1.
                LabelSpread::Bernoulli => (0.5 * (log_sigmoid(log_odds) + log_sigmoid(-log_odds))).exp(),
                LabelSpread::Zero => 0.0,
            };
            (log_sigmoid(log_odds), sigma)
        };
        Ok(reading::write(out, values.len(), score)?)
    }

    fn policies(&self) -> Vec<Policy> {
        vec![self.head.clone()]
    }
}

/// log 1/(1 + e^{−v}), without overflow or cancellation near 0.
fn log_sigmoid(v: f64) -> f64 {
    v.min(0.0) - (-v.abs()).exp().ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A few roundings of f64.
    const TOLERANCE: f64 = 1e-15;

    #[test]
    fn log_sigmoid_by_hand() {
        assert!((log_sigmoid(0.0) + 2f64.ln()).abs() < TOLERANCE);
        // Odds of 3 to 1.
        assert!((log_sigmoid(3f64.ln()) - 0.75f64.ln()).abs() < TOLERANCE);
        assert!((log_sigmoid(-(3f64.ln())) - 0.25f64.ln()).abs() < TOLERANCE);
        // Far out, where 1/(1 + e^{−v}) is 1 or 0.
        assert_eq!(log_sigmoid(-800.0), -800.0);
        assert!(log_sigmoid(40.0) < 0.0 && log_sigmoid(40.0) > -1e-17);
    }
}
