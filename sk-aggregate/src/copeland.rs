use sk_core::{Aggregator, Batch, Real, Scratch};

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
        let mut order: Scratch<Vec<usize>> = (0..mu.len()).collect();
        // Scores are finite, so the order is total.
        order.sort_unstable_by(|&a, &b| mu[a].widen().total_cmp(&mu[b].widen()));
        let mut below = 0;
        for tied in order.chunk_by(|&a, &b| mu[a] == mu[b]) {
            let above = mu.len() - below - tied.len();
            for &i in tied {
                ratings[i] = F::of(below as f64 - above as f64);
            }
            below += tied.len();
        }
    }
}
