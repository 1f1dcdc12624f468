use auto_impl::auto_impl;
use sk_core::{Aggregator, Batch, Real};

use crate::lanes;

/// ψ, the kernel of a pairwise operator: the value that candidate i gets from meeting candidate j
/// (A6).
///
/// # For implementors
/// Unlike a [`Link`](crate::Link) over a [`Spread`](crate::Spread), a kernel may be any function.
/// [`Pairwise`] guarantees A6 only; test the other axioms with the `axioms` feature. A candidate
/// without dispersion may meet another one; the kernel defines the value.
#[auto_impl(&, Box, Arc)]
pub trait Kernel<F: Real = f64>: Send + Sync {
    /// Returns ψ(μ_i, σ_i; μ_j, σ_j), for finite scores and finite dispersions that are not
    /// negative.
    fn psi(&self, own: (F, F), rival: (F, F)) -> F;
}

const _: Option<&dyn Kernel<f64>> = None;

/// The operator of a kernel: R_i = Σ_{j≠i} ψ(μ_i, σ_i; μ_j, σ_j) (A6).
///
/// Costs N(N−1) evaluations of ψ, split among all cores from 512 candidates on with the feature
/// `parallel`; no allocation.
///
/// ```
/// use sk_aggregate::{Kernel, Pairwise};
/// use sk_core::{Aggregator, Batch};
///
/// /// A win is worth the odds of a Bradley–Terry match.
/// struct Odds;
/// impl Kernel for Odds {
///     fn psi(&self, own: (f64, f64), rival: (f64, f64)) -> f64 {
///         ((own.0 - rival.0) / (own.1 + rival.1)).exp()
///     }
/// }
///
/// let mut ratings = [0.0; 2];
/// Pairwise(Odds).rate(&Batch::new(&[1.0, 0.0], &[0.5, 0.5]).unwrap(), &mut ratings);
/// assert!(ratings[0] > 1.0 && ratings[1] < 1.0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pairwise<K>(pub K);

impl<F: Real, K: Kernel<F>> Aggregator<F> for Pairwise<K> {
    fn rate(&self, batch: &Batch<'_, F>, ratings: &mut [F]) {
        let (mu, sigma) = (batch.mu(), batch.sigma());
        assert_eq!(ratings.len(), mu.len(), "one rating per candidate");
        lanes::each(ratings, mu.len(), |i, rating| {
            let rivals = (0..mu.len()).filter(|&j| j != i);
            *rating = rivals.map(|j| self.0.psi((mu[i], sigma[i]), (mu[j], sigma[j]))).fold(F::zero(), |sum, psi| sum + psi);
        });
    }
}
