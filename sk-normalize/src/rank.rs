use sk_core::{Composite, Normalizer, Real, ScoreTable, Scratch, Simplex, Standardize, tied_runs};

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
            mid_ranks(scores.mu(k), &mut ranks);
            let moments = rule.moments(&ranks);
            for (i, &rank) in ranks.iter().enumerate() {
                add(i, rule.apply(&moments, rank));
            }
            Scale { factor: rule.rescale(&of_scores, F::one()), rounding: rule.rounding(&moments, scores.blades()) }
        });
    }
}

/// Writes the rank of each value from 0; ties share their mean rank.
fn mid_ranks<F: Real>(values: &[F], ranks: &mut [F]) {
    tied_runs(values, |tied, below| {
        let mean = F::of(below as f64 + (tied.len() - 1) as f64 / 2.0);
        tied.iter().for_each(|&i| ranks[i] = mean);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_share_their_mean_rank() {
        let mut ranks = [f64::NAN; 5];
        mid_ranks(&[3.0, -0.0, 3.0, 0.0, 9.0], &mut ranks);
        assert_eq!(ranks, [2.5, 0.5, 2.5, 0.5, 4.0]);
    }
}
