use sk_core::{Batch, Real, Selector};

/// Selects every candidate with probability 1/N: the behaviour of the proposal without alignment,
/// and the control arm for any selection rule. O(N).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Uniform;

impl<F: Real> Selector<F> for Uniform {
    fn distribution(&self, _: &[F], _: &Batch<'_, F>, probabilities: &mut [F]) {
        let n = F::of(probabilities.len() as f64);
        probabilities.fill(n.recip());
    }
}
