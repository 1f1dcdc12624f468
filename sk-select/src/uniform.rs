use sk_core::{Batch, Real, Selector};

/// Every candidate alike, P(i) = 1/N: what the proposal does without alignment, the control arm for
/// any selection. O(N).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Uniform;

impl<F: Real> Selector<F> for Uniform {
    fn distribution(&self, _: &[F], _: &Batch<'_, F>, probabilities: &mut [F]) {
        let n = F::of(probabilities.len() as f64);
        probabilities.fill(n.recip());
    }
}
