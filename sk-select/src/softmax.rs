use sk_core::{Batch, ParameterError, Real, Selector};

/// P(i) ∝ exp(R_i / T), T in the units of the ratings: the first choice of a Plackett–Luce model with those worths. O(N).
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
        softmax(probabilities, F::of(self.temperature));
    }
}

/// Replaces logits times T by their softmax.
pub(crate) fn softmax<F: Real>(values: &mut [F], temperature: F) {
    let peak = values.iter().fold(F::neg_infinity(), |m, v| m.max(*v));
    let mut total = F::zero();
    for value in &mut *values {
        // The difference first: a ratio of large ratings and a small temperature may overflow, this only underflows.
        *value = ((*value - peak) / temperature).exp();
        total = total + *value;
    }
    for value in values {
        *value = *value / total;
    }
}
