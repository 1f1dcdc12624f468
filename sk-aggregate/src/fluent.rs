use sk_core::{Aggregator, Batch, Real, Scratch};

use crate::Entry;

/// Any aggregator with the fluency blade mixed in: the inner operator rates (d_i, s_i) of [`Entry`]
/// instead of (μ_i, σ_i).
///
/// `Fluent::new(Entry::sound(0.5)?, RoundRobin::thurstone())` is the exact member of the family
/// that the tournament [`SwissElo`](crate::SwissElo) samples. Costs the inner operator plus
/// O(N log N); no allocation once the thread has processed a batch of this size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fluent<A> {
    /// The mixture of fluency and scores.
    pub entry: Entry,
    /// The operator that rates the mixture.
    pub inner: A,
}

impl<A> Fluent<A> {
    /// Creates an operator that applies `inner` to the mixture of `entry`.
    pub fn new(entry: Entry, inner: A) -> Self {
        Self { entry, inner }
    }
}

impl<F: Real, A: Aggregator<F>> Aggregator<F> for Fluent<A> {
    fn rate(&self, batch: &Batch<'_, F>, ratings: &mut [F]) {
        let mut entered = Scratch::filled(F::zero(), 2 * batch.len());
        let (d, s) = entered.split_at_mut(batch.len());
        self.entry.apply(batch, d, s);
        let mixture = Batch::trusted(d, s);
        self.inner.rate(&batch.blades().map_or(mixture, |blades| mixture.with_blades(blades)), ratings);
    }
}
