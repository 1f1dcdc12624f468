/// Defines a link by its greatest slope, and g of a magnitude in functions that vectorise.
macro_rules! link {
    ($(#[$doc:meta])* $name:ident, slope: $slope:expr, g: |$magnitude:ident| $g:expr,) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name;

        impl<F: Real> Link<F> for $name {
            fn g(&self, u: F) -> F {
                F::of(self.at([u.widen()]))
            }
            fn apply(&self, u: &mut [F]) {
                lanes::map(u, self);
            }
            fn lipschitz(&self) -> Option<F> {
                Some(F::of($slope))
            }
        }

        impl Function<1> for $name {
            #[inline(always)]
            fn at(&self, [u]: [f64; 1]) -> f64 {
                let $magnitude = u.abs();
                ($g).copysign(u)
            }
        }
    };
}

mod bounded;
mod slow;
mod student_t;

use auto_impl::auto_impl;
use sk_core::Real;

pub use bounded::{Laplace, Logistic, Probit, Tanh};
pub use slow::{Asinh, Identity, SignedLog};
pub use student_t::StudentT;

pub(crate) use bounded::normal_cdf;

/// g, the link of a pairwise operator: the value of a standardised difference u = Δ/s (`thm:rep`).
///
/// # For implementors
/// g must be odd, strictly increasing (before it saturates), and finite for finite u.
/// [`RoundRobin`](crate::RoundRobin) evaluates it once per pair and uses −g(u) for the rival. Only
/// one method is required; [`apply`](Self::apply) is for links that are faster on many values at
/// once.
///
/// Theorem 1 as corrected in the book requires more: g must be uniformly continuous, so that a
/// rating changes little with a score wherever the score is. u + u³ is not, which A5′ of the axiom
/// kit (feature `axioms`) detects.
#[auto_impl(&, Box, Arc)]
pub trait Link<F: Real = f64>: Send + Sync {
    /// Returns g(u), for finite u.
    fn g(&self, u: F) -> F;

    /// Replaces each u by g(u), for finite u.
    ///
    /// The links of this crate use the widest vectors of the processor, and return the bits of
    /// [`g`](Self::g). In f64, their relative error is within 2e-15, or 2e-14 for Student's t.
    fn apply(&self, u: &mut [F]) {
        u.iter_mut().for_each(|u| *u = self.g(*u));
    }

    /// Returns L_g = sup |g′|, which the stability bounds need (`thm:robust`); `None` if it is
    /// unknown or infinite.
    fn lipschitz(&self) -> Option<F> {
        None
    }
}

const _: Option<&dyn Link<f64>> = None;
