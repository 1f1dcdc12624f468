use sk_core::{ParameterError, Reading, Score};

use crate::{BladeError, reading};

/// Where a blade's σ comes from.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub enum Dispersion {
    /// Mean per-token Rényi min-entropy of the policy's next-token distribution, in nats
    /// (`eq:sigma`, `eq:minent`).
    ///
    /// It measures how sharp the distribution is, not how wrong the reward is, and it is not in the
    /// units of μ.
    #[default]
    MinEntropy,
    /// Standard error of μ as a mean over tokens: β·s/√L, with s the sample standard deviation of
    /// the per-token log-ratio.
    ///
    /// In the units of μ. A single token shows no spread, so σ = 0 there.
    StandardError,
    /// The distance of μ from its mean over the candidates of the step, |μ_i − μ̄|, in the units of μ.
    ///
    /// Where a reward knows little, its extremes are mostly error: the further a score stands out, the
    /// less of that is due. A property of the step, unlike the others, and blind to the model.
    Deviation,
    /// The same σ for every candidate; 0 makes the blade a plain scorer.
    Constant(f64),
}

impl Dispersion {
    /// σ = 0.
    pub const ZERO: Self = Self::Constant(0.0);

    /// Refuses a constant that is not a dispersion.
    pub(crate) fn checked(self) -> Result<Self, ParameterError> {
        if let Self::Constant(sigma) = self {
            ParameterError::check(sigma.is_finite() && sigma >= 0.0, "dispersion", sigma, "finite and not negative")?;
        }
        Ok(self)
    }

    /// σ of a candidate whose μ is `scale` times the mean of `terms`, one per token.
    pub(crate) fn sigma(self, reading: &Reading, scale: f64, terms: impl ExactSizeIterator<Item = f64> + Clone) -> f64 {
        match self {
            Self::MinEntropy => reading::mean(&reading.min_entropy),
            Self::StandardError => scale * standard_error(terms),
            // Known once all candidates are scored.
            Self::Deviation => 0.0,
            Self::Constant(sigma) => sigma,
        }
    }

    /// Completes the scores of a step, whose μ are known.
    pub(crate) fn complete(self, scores: &mut [Score]) -> Result<(), BladeError> {
        if self == Self::Deviation {
            let mean = scores.iter().map(|score| score.mu() / scores.len() as f64).sum::<f64>();
            for (candidate, score) in scores.iter_mut().enumerate() {
                *score = reading::score(candidate, score.mu(), (score.mu() - mean).abs())?;
            }
        }
        Ok(())
    }
}

/// Sample standard deviation over √L; 0 for one term.
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
