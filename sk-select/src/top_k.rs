use std::sync::Arc;

use sk_core::{Batch, ParameterError, Real, Selector};

use crate::truncate::keep_most_probable;

/// Top-k selection: an inner rule restricted to its k most probable candidates, on ties the lowest
/// index first. O(N log N) plus the inner rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TopK<S> {
    k: usize,
    inner: S,
}

impl<S> TopK<S> {
    /// Creates the rule that keeps the `k` most probable candidates of `inner`, or all if there are
    /// at most k.
    ///
    /// # Errors
    /// If k is zero.
    pub fn new(k: usize, inner: S) -> Result<Self, ParameterError> {
        ParameterError::check(k > 0, "top_k", k as f64, "at least 1")?;
        Ok(Self { k, inner })
    }
}

impl<F: Real, S: Selector<F>> Selector<F> for TopK<S> {
    fn distribution(&self, ratings: &[F], batch: &Batch<'_, F>, probabilities: &mut [F]) {
        self.inner.distribution(ratings, batch, probabilities);
        keep_most_probable(probabilities, |_| self.k);
    }

    fn blades(&self) -> Vec<Arc<str>> {
        self.inner.blades()
    }
}
