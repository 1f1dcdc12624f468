use sk_core::{Aggregator, Batch, Divergence, Real};

/// 𝓐 of multi-objective decoding: converts a weighted mean of f′ back to a log-probability.
///
/// ```text
/// R_i = ℓ_i + ln (f′)⁻¹(μ_i)
/// ```
///
/// where ℓ is the backbone's log-probability from the fluency blade, zero if none is seated. It
/// ignores pairs and dispersions. Under the reverse KL divergence and without a fluency blade it is
/// the identity. At the end of the range of f′, where the ratio is infinite, the rating is half of
/// the largest number, so that ratings stay finite. O(N); no allocation. Shi et al. 2024, eq. 6.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DivergenceMixture {
    divergence: Divergence,
}

impl DivergenceMixture {
    /// Creates the mixture for blades that score with the derivative of the same divergence.
    pub fn new(divergence: Divergence) -> Self {
        Self { divergence }
    }
}

impl<F: Real> Aggregator<F> for DivergenceMixture {
    fn rate(&self, batch: &Batch<'_, F>, ratings: &mut [F]) {
        assert_eq!(ratings.len(), batch.len(), "one rating per candidate");
        // Half of the largest number leaves room for adding a log-probability.
        let most = F::max_value().widen() / 2.0;
        for (rating, &mu) in ratings.iter_mut().zip(batch.mu()) {
            *rating = F::of(self.divergence.log_ratio(mu.widen()).clamp(-most, most));
        }
        if let Some(fluency) = batch.fluency() {
            for (rating, &log_prob) in ratings.iter_mut().zip(fluency) {
                *rating = *rating + log_prob;
            }
        }
    }
}
