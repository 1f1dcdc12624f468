use sk_core::{Batch, ParameterError, Real, Selector};

use crate::argmax::highest;

/// The highest rating, but for one choice in 1/ε that falls on any candidate alike.
///
/// ```text
/// P(i) = (1 − ε) [i = argmax R] + ε / N
/// ```
///
/// Among equal ratings the lowest index is the highest. No candidate is less likely than ε/N, which
/// is what off-policy estimates of other rules from the same draws need. ε = 0 is
/// [`Argmax`](crate::Argmax), ε = 1 [`Uniform`](crate::Uniform). O(N); no allocation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EpsilonArgmax {
    epsilon: f64,
}

impl EpsilonArgmax {
    /// The rule that explores with probability ε.
    ///
    /// # Errors
    /// When ε is not in [0, 1].
    pub fn new(epsilon: f64) -> Result<Self, ParameterError> {
        ParameterError::check((0.0..=1.0).contains(&epsilon), "epsilon", epsilon, "in [0, 1]")?;
        Ok(Self { epsilon })
    }
}

impl<F: Real> Selector<F> for EpsilonArgmax {
    fn distribution(&self, ratings: &[F], _: &Batch<'_, F>, probabilities: &mut [F]) {
        assert_eq!(ratings.len(), probabilities.len(), "one probability per candidate");
        probabilities.fill(F::of(self.epsilon / ratings.len() as f64));
        let best = &mut probabilities[highest(ratings)];
        *best = *best + F::of(1.0 - self.epsilon);
    }
}
