use sk_core::{Batch, Real, Selector};

/// All probability on the highest rating; among equal ratings, on the lowest index. O(N).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Argmax;

impl<F: Real> Selector<F> for Argmax {
    fn distribution(&self, ratings: &[F], _: &Batch<'_, F>, probabilities: &mut [F]) {
        assert_eq!(ratings.len(), probabilities.len(), "one probability per candidate");
        point_mass(highest(ratings), probabilities);
    }
}

/// The lowest index of the largest value.
pub(crate) fn highest<F: Real>(values: &[F]) -> usize {
    (1..values.len()).fold(0, |best, i| if values[i] > values[best] { i } else { best })
}

/// Probability one at `index`.
pub(crate) fn point_mass<F: Real>(index: usize, probabilities: &mut [F]) {
    probabilities.fill(F::zero());
    probabilities[index] = F::one();
}
