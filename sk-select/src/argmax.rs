use sk_core::{Batch, Real, Selector};

/// Selects the highest rating with probability 1; on ties, the lowest index. O(N).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Argmax;

impl<F: Real> Selector<F> for Argmax {
    fn distribution(&self, ratings: &[F], _: &Batch<'_, F>, probabilities: &mut [F]) {
        assert_eq!(ratings.len(), probabilities.len(), "one probability per candidate");
        point_mass(highest(ratings), probabilities);
    }
}

/// Returns the lowest index of the largest value.
pub(crate) fn highest<F: Real>(values: &[F]) -> usize {
    (1..values.len()).fold(0, |best, i| if values[i] > values[best] { i } else { best })
}

/// Writes probability one at `index`, and zero elsewhere.
pub(crate) fn point_mass<F: Real>(index: usize, probabilities: &mut [F]) {
    probabilities.fill(F::zero());
    probabilities[index] = F::one();
}
