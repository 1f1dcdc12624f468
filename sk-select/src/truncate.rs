use std::cmp::Ordering;

use sk_core::{Real, Scratch};

/// Keeps the `count(sorted)` most probable candidates, on ties the lowest index first, and
/// renormalises.
///
/// `count` takes the probabilities in descending order. At least one candidate is kept.
pub(crate) fn keep_most_probable<F: Real>(probabilities: &mut [F], count: impl FnOnce(&mut dyn Iterator<Item = F>) -> usize) {
    let mut order: Scratch<Vec<usize>> = (0..probabilities.len()).collect();
    // Breaking ties by index makes the order stable, without the allocation of a stable sort.
    order.sort_unstable_by(|&a, &b| probabilities[b].partial_cmp(&probabilities[a]).unwrap_or(Ordering::Equal).then(a.cmp(&b)));
    let kept = count(&mut order.iter().map(|&i| probabilities[i])).clamp(1, order.len());
    for &dropped in &order[kept..] {
        probabilities[dropped] = F::zero();
    }
    let mass: f64 = probabilities.iter().map(|p| p.widen()).sum();
    for p in probabilities {
        *p = F::of(p.widen() / mass);
    }
}
