use std::sync::Arc;

use sk_core::{Batch, ParameterError, Real, Selector};

use crate::truncate::keep_likeliest;

/// An inner rule restricted to the fewest candidates that hold at least mass p up to rounding, the
/// likeliest first; among equals the lowest index is kept first. O(N log N) and the inner rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Nucleus<S> {
    mass: f64,
    inner: S,
}

impl<S> Nucleus<S> {
    /// The nucleus of mass `mass` of `inner`.
    ///
    /// # Errors
    /// When the mass is not in (0, 1].
    pub fn new(mass: f64, inner: S) -> Result<Self, ParameterError> {
        ParameterError::check(mass > 0.0 && mass <= 1.0, "top-p", mass, "in (0, 1]")?;
        Ok(Self { mass, inner })
    }
}

impl<F: Real, S: Selector<F>> Selector<F> for Nucleus<S> {
    fn distribution(&self, ratings: &[F], batch: &Batch<'_, F>, probabilities: &mut [F]) {
        self.inner.distribution(ratings, batch, probabilities);
        // A mass that is reached but for the rounding of N additions is reached.
        // They are of numbers that have been rounded to F, and are done in f64.
        let rounding = probabilities.len() as f64 * f64::EPSILON + F::epsilon().widen();
        let mass = self.mass * (1.0 - rounding);
        keep_likeliest(probabilities, |sorted| {
            let mut held = 0.0;
            // Those before the one that reaches the mass, and that one.
            let before = sorted.take_while(|&p| {
                held += p.widen();
                held < mass
            });
            before.count() + 1
        });
    }

    fn blades(&self) -> Vec<Arc<str>> {
        self.inner.blades()
    }
}
