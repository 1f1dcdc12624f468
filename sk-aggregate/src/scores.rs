use sk_core::{Aggregator, Batch, Real};

/// 𝓐 = id: the rating is the composite score, as in Best-of-N, ARGS, FUDGE, MOD and contrastive
/// decoding (`prop:embed`).
///
/// The limit σ → 0 of the pairwise family with a bounded link orders candidates in the same way. O(N);
/// no allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scores;

impl<F: Real> Aggregator<F> for Scores {
    fn rate(&self, batch: &Batch<'_, F>, ratings: &mut [F]) {
        ratings.copy_from_slice(batch.mu());
    }
}
