use sk_core::{Composite, Normalizer, Real, ScoreTable, Scratch, Simplex, Standardize, mid_ranks};

use crate::Propagation;
use crate::propagation::Scale;

/// Standardised ranks: μ̂_i is the rank of μ_i in its blade's batch, where ties share their mean
/// rank, standardised to mean 0 and sample standard deviation 1.
///
/// The result is invariant under any strictly increasing map of a blade's scores, provided that the
/// spread stays above rounding. An outlier therefore counts only by its rank. σ̂_i = σ_i /
/// std(**μ**), since a rank has no dispersion of its own, and std(**μ**) is the blade's average
/// change of score per unit of rank. A blade whose spread is at most rounding, and a batch of one,
/// contribute 0. O(K·N log N); no allocation once the thread has processed a batch of this size.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rank {
    /// How dispersions combine.
    pub propagation: Propagation,
}

impl<F: Real> Normalizer<F> for Rank {
    fn combine(&self, scores: &ScoreTable<F>, weights: &Simplex<F>, out: &mut Composite<F>) {
        let rule = Standardize::EXACT;
        let mut ranks = Scratch::filled(F::zero(), scores.candidates());
        self.propagation.combine(scores, weights, out, |k, add| {
            let of_scores = rule.moments(scores.mu(k));
            if of_scores.is_degenerate() {
                return Scale::zero();
            }
            mid_ranks(scores.mu(k), |i, rank| ranks[i] = F::of(rank));
            let moments = rule.moments(&ranks);
            for (i, &rank) in ranks.iter().enumerate() {
                add(i, rule.apply(&moments, rank));
            }
            Scale {
                factor: rule.rescale(&of_scores, F::one()),
                rounding: rule.rounding(&moments, scores.blades()),
                ..Scale::zero()
            }
        });
    }
}
