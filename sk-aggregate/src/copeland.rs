use sk_core::{Aggregator, Batch, Real, mid_ranks};

/// The Copeland score: the number of candidates with a lower score minus the number with a higher
/// one.
///
/// This is the limit of every bounded link with g(∞) = 1 as all dispersions vanish. Half of it plus
/// (N−1)/2 is the Borda count. Ignores σ. O(N log N); no allocation once the thread has processed a
/// batch of this size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Copeland;

impl<F: Real> Aggregator<F> for Copeland {
    fn rate(&self, batch: &Batch<'_, F>, ratings: &mut [F]) {
        let mu = batch.mu();
        assert_eq!(ratings.len(), mu.len(), "one rating per candidate");
        let highest = mu.len() as f64 - 1.0;
        mid_ranks(mu, |i, rank| ratings[i] = F::of(2.0 * rank - highest));
    }
}
