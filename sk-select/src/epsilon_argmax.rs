use sk_core::{Batch, ParameterError, Real, Selector};

use crate::argmax::highest;

/// Selects the highest rating with probability 1 − ε, and otherwise any candidate uniformly.
///
/// ```text
/// P(i) = (1 − ε) [i = argmax R] + ε / N
/// ```
///
/// On ties, the lowest index counts as the highest. Every candidate has probability at least ε/N,
/// as required for off-policy estimates of other rules from the same samples. ε = 0 is
/// [`Argmax`](crate::Argmax), ε = 1 is [`Uniform`](crate::Uniform). O(N); no allocation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EpsilonArgmax {
    epsilon: f64,
}

impl EpsilonArgmax {
    /// Creates the rule that explores with probability ε.
    ///
    /// # Errors
    /// If ε is not in [0, 1].
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
