use sk_core::{Batch, ParameterError, Real, Selector};

/// P(i) ∝ exp(R_i / T), T in the units of the ratings: the first choice of a Plackett–Luce model
/// with those worths. O(N).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Softmax {
    temperature: f64,
}

impl Softmax {
    /// Softmax at temperature T.
    ///
    /// # Errors
    /// When T is not positive and finite; its limit T → 0 is [`Argmax`](crate::Argmax).
    pub fn new(temperature: f64) -> Result<Self, ParameterError> {
        let valid = temperature.is_finite() && temperature > 0.0;
        ParameterError::check(valid, "temperature", temperature, "positive and finite")?;
        Ok(Self { temperature })
    }

    /// T.
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

/// Replaces logits times T by their softmax, for finite logits and T ≥ 0, which stands for its
/// limit.
pub(crate) fn softmax<F: Real>(values: &mut [F], temperature: f64) {
    let peak = values.iter().fold(F::neg_infinity(), |m, v| m.max(*v)).widen();
    let mut total = F::zero();
    for value in &mut *values {
        *value = F::of(quotient(value.widen() - peak, 0.5 * value.widen() - 0.5 * peak, temperature).exp());
        total = total + *value;
    }
    for value in values {
        *value = *value / total;
    }
}

/// A difference of logits over T, from it and its half.
///
/// The difference first: a ratio of large ratings and a small temperature may overflow, this only
/// underflows.
fn quotient(difference: f64, half: f64, temperature: f64) -> f64 {
    if difference == 0.0 {
        0.0
    } else if difference.is_finite() {
        difference / temperature
    } else {
        half / temperature * 2.0
    }
}
