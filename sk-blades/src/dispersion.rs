use sk_core::{Reading, Score};

use crate::{BladeError, reading};

/// The source of a blade's σ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Dispersion {
    /// The mean per-token Rényi min-entropy of the policy's next-token distribution, in nats
    /// (`eq:sigma`, `eq:minent`).
    ///
    /// It measures the sharpness of the distribution, not the error of the reward, and does not
    /// have the unit of μ.
    #[default]
    MinEntropy,
    /// The standard error of μ as a mean over tokens: β·s/√L, where s is the sample standard
    /// deviation of the per-token log-ratio. Of a likelihood: s/√L of the log-probabilities.
    ///
    /// It has the unit of μ. It is 0 for a single token.
    StandardError,
    /// The distance of μ from its mean over the candidates of the step, |μ_i − μ̄|, in the unit of
    /// μ.
    ///
    /// If a reward is noisy, its extreme values are mostly error, so that a score deserves less
    /// trust the further it is from the mean. Unlike the other sources, it depends on the whole
    /// batch and not on the model.
    Deviation,
    /// σ = 0: scores without dispersion.
    Zero,
}

impl Dispersion {
    /// Returns σ of a candidate whose μ is `scale` times the mean of `terms`, one per token.
    pub(crate) fn sigma(self, reading: &Reading, scale: f64, terms: impl ExactSizeIterator<Item = f64> + Clone) -> f64 {
        match self {
            Self::MinEntropy => reading::mean(&reading.min_entropy),
            Self::StandardError => scale * standard_error(terms),
            // A deviation is set by `complete` once all candidates are scored.
            Self::Deviation | Self::Zero => 0.0,
        }
    }

    /// Completes σ once μ of all candidates is known.
    pub(crate) fn complete(self, scores: &mut [Score]) -> Result<(), BladeError> {
        if self == Self::Deviation {
            let n = scores.len();
            let mean = scores.iter().map(|score| score.mu() / n as f64).sum::<f64>();
            reading::write(scores, n, |_, score| (score.mu(), (score.mu() - mean).abs()))?;
        }
        Ok(())
    }
}

/// Returns the sample standard deviation over √L; 0 for one term.
fn standard_error(terms: impl ExactSizeIterator<Item = f64> + Clone) -> f64 {
    let length = terms.len() as f64;
    if length < 2.0 {
        return 0.0;
    }
    let mean = terms.clone().sum::<f64>() / length;
    let variance = terms.map(|t| (t - mean).powi(2)).sum::<f64>() / (length - 1.0);
    (variance / length).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviation_by_hand() {
        let mut scores = [1.0, 2.0, 6.0].map(|mu| Score::new(mu, 0.0).unwrap());
        Dispersion::Deviation.complete(&mut scores).unwrap();
        assert_eq!(scores.map(|score| (score.mu(), score.sigma())), [(1.0, 2.0), (2.0, 1.0), (6.0, 3.0)]);
    }

    #[test]
    fn standard_error_by_hand() {
        // 1 2 3 4: sample variance 5/3 over L = 4.
        let error = standard_error([1.0, 2.0, 3.0, 4.0].into_iter());
        assert!((error - (5.0f64 / 12.0).sqrt()).abs() < 1e-15);
        assert_eq!(standard_error([7.0].into_iter()), 0.0);
    }
}
