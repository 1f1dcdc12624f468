use std::cmp::Ordering;

use sk_core::{Batch, Real};

/// The rule that breaks ties of rating in the pairing of a round. In the first round, where all
/// ratings are equal, it alone determines the pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Seeding {
    /// By score μ, then fluency ℓ_S, then the smaller dispersion. Candidates equal in all three
    /// share the mean of their ratings.
    ///
    /// This is the only seeding under which ratings do not depend on the input order (A1). They
    /// are then bit-identical for every order.
    #[default]
    Canonical,
    /// By score μ, then position in the batch: the published runs.
    Score,
    /// By position in the batch: permuting the candidates may then change the winner.
    Index,
}

impl Seeding {
    /// Writes the candidates in the order of their seeds, the strongest first.
    pub(super) fn order<F: Real>(self, batch: &Batch<'_, F>, order: &mut [usize]) {
        order.iter_mut().enumerate().for_each(|(i, candidate)| *candidate = i);
        match self {
            Self::Index => {}
            // Breaking ties by position makes the order stable, without the allocation of a stable
            // sort.
            Self::Score => order.sort_unstable_by(|&a, &b| descending(batch.mu(), a, b).then(a.cmp(&b))),
            Self::Canonical => order.sort_unstable_by(|&a, &b| strength(batch, a, b).then(a.cmp(&b))),
        }
    }

    /// Gives equal candidates the mean of their ratings, in seed order.
    pub(super) fn share<F: Real>(self, batch: &Batch<'_, F>, order: &[usize], rating: &mut [F]) {
        if self != Self::Canonical {
            return;
        }
        let mut start = 0;
        for alike in order.chunk_by(|&a, &b| strength(batch, a, b) == Ordering::Equal) {
            let group = &mut rating[start..start + alike.len()];
            if group.len() > 1 {
                let mean = group.iter().copied().sum::<F>() / F::of(group.len() as f64);
                group.fill(mean);
            }
            start += alike.len();
        }
    }
}

fn strength<F: Real>(batch: &Batch<'_, F>, a: usize, b: usize) -> Ordering {
    descending(batch.mu(), a, b)
        .then_with(|| batch.fluency().map_or(Ordering::Equal, |fluency| descending(fluency, a, b)))
        .then_with(|| descending(batch.sigma(), b, a))
}

/// Values are finite, so the order is total. Unlike `total_cmp`, it treats 0 and −0 as equal.
fn descending<F: Real>(values: &[F], a: usize, b: usize) -> Ordering {
    values[b].partial_cmp(&values[a]).unwrap_or(Ordering::Equal)
}
