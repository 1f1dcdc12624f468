//! Correlation matrices of the errors of blades that are named by their numbers.

use sk_normalize::{Correlation, Propagation};

/// The names of `blades` blades.
pub(crate) fn names(blades: usize) -> Vec<String> {
    (0..blades).map(|k| k.to_string()).collect()
}

/// Propagation by the matrix of these entries, of which those above the diagonal count.
pub(crate) fn correlated(blades: usize, rho: impl Fn(usize, usize) -> f64) -> Propagation {
    let (names, rho) = (&names(blades), &rho);
    let pairs = (0..blades).flat_map(|k| (0..k).map(move |l| (&*names[l], &*names[k], rho(l, k))));
    Propagation::Correlated(Correlation::of_pairs(pairs).expect("a correlation matrix"))
}
