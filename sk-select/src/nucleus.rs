use std::sync::Arc;

use sk_core::{Batch, ParameterError, Real, Selector};

use crate::truncate::keep_most_probable;

/// Top-p selection: an inner rule restricted to the fewest candidates with a total probability of
/// at least p up to rounding. The most probable are kept first, on ties the lowest index. O(N log
/// N) plus the inner rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Nucleus<S> {
    mass: f64,
    inner: S,
}

impl<S> Nucleus<S> {
    /// Creates the rule that keeps probability `mass` of `inner`.
    ///
    /// # Errors
    /// If the mass is not in (0, 1].
    pub fn new(mass: f64, inner: S) -> Result<Self, ParameterError> {
        ParameterError::check(mass > 0.0 && mass <= 1.0, "top_p", mass, "in (0, 1]")?;
        Ok(Self { mass, inner })
    }
}

impl<F: Real, S: Selector<F>> Selector<F> for Nucleus<S> {
    fn distribution(&self, ratings: &[F], batch: &Batch<'_, F>, probabilities: &mut [F]) {
        self.inner.distribution(ratings, batch, probabilities);
        // The comparison allows for the rounding of N additions in f64, and of the probabilities to
        // F.
        let rounding = probabilities.len() as f64 * f64::EPSILON + F::epsilon().widen();
        let mass = self.mass * (1.0 - rounding);
        keep_most_probable(probabilities, |sorted| {
            let mut held = 0.0;
            // Counts the candidates up to and including the one that reaches the mass.
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
