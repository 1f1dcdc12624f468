use sk_core::{Batch, ParameterError, Real, Selector};

/// P(i) ∝ exp(R_i / T), with T in the unit of the ratings: the first place of a Plackett–Luce
/// model. O(N).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Softmax {
    temperature: f64,
}

impl Softmax {
    /// Creates a softmax at temperature T. T = 0 is the limit: all candidates with the highest
    /// rating are equally probable.
    ///
    /// # Errors
    /// If T is negative or not finite.
    pub fn new(temperature: f64) -> Result<Self, ParameterError> {
        // Without the sign of −0, by which a quotient would be +∞.
        let temperature = ParameterError::not_negative("temperature", temperature)?.abs();
        Ok(Self { temperature })
    }

    /// Returns T.
    pub fn temperature(&self) -> f64 {
        self.temperature
    }
}

impl<F: Real> Selector<F> for Softmax {
    fn distribution(&self, ratings: &[F], _: &Batch<'_, F>, probabilities: &mut [F]) {
        probabilities.copy_from_slice(ratings);
        softmax(probabilities, self.temperature);
    }
}

/// Replaces T·logits by their softmax, for finite logits and T ≥ 0, where T = 0 means the limit.
pub(crate) fn softmax<F: Real>(values: &mut [F], temperature: f64) {
    let peak = values.iter().fold(F::neg_infinity(), |m, v| m.max(*v)).widen();
    // In f64, since the error of a sum of N terms in f32 is larger than a probability.
    let mut total = 0.0;
    for value in &mut *values {
        *value = F::of(quotient(value.widen() - peak, 0.5 * value.widen() - 0.5 * peak, temperature).exp());
        total += value.widen();
    }
    for value in values {
        *value = F::of(value.widen() / total);
    }
}

/// Returns a difference of logits over T, given the difference and half of it.
///
/// The difference is taken before the division: a large rating over a small temperature can
/// overflow, while a difference to the maximum only underflows in the softmax.
pub(crate) fn quotient(difference: f64, half: f64, temperature: f64) -> f64 {
    if difference == 0.0 {
        0.0
    } else if difference.is_finite() {
        difference / temperature
    } else {
        half / temperature * 2.0
    }
}
