//! Links with a finite limit g(∞), which bounds the effect of a single comparison.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use sk_core::Real;

use super::Link;
use crate::elementary;
use crate::lanes::{self, Function};

/// g(u) = Φ(u) − ½, the probit link: Thurstone's Case V with the Euclidean spread (`cor:family`).
/// L_g = 1/√(2π).
///
/// Computed as ½ erf(u/√2), which keeps the relative error small near u = 0. Compared with 40-digit
/// values at 310 arguments from 1e-300 to 4e307, the largest relative error is 2.3e-16 for the
/// scalar function and 6.7e-16 for the vectorised one; `tests/links.rs` allows 4.5e-16 and
/// `tests/vectors.rs` 2e-15.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Probit;

impl<F: Real> Link<F> for Probit {
    fn g(&self, u: F) -> F {
        F::of(0.5 * libm::erf(u.widen() * FRAC_1_SQRT_2))
    }
    fn apply(&self, u: &mut [F]) {
        lanes::map(u, self);
    }
    fn lipschitz(&self) -> Option<F> {
        Some(F::of((2.0 * PI).sqrt().recip()))
    }
}

impl Function<1> for Probit {
    #[inline(always)]
    fn at(&self, [u]: [f64; 1]) -> f64 {
        (0.5 * elementary::erf(u.abs() * FRAC_1_SQRT_2)).copysign(u)
    }
}

/// Returns Φ(u), accurate in both tails.
pub(crate) fn normal_cdf(u: f64) -> f64 {
    0.5 * libm::erfc(-u * FRAC_1_SQRT_2)
}

/// g(u) = 1/(1 + e^−u) − ½, the logistic link: Bradley–Terry with the additive spread
/// (`cor:family`). L_g = ¼.
///
/// Computed as ½ tanh(u/2), which cannot overflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Logistic;

impl<F: Real> Link<F> for Logistic {
    fn g(&self, u: F) -> F {
        let half = F::of(0.5);
        half * (half * u).tanh()
    }
    fn apply(&self, u: &mut [F]) {
        lanes::map(u, self);
    }
    fn lipschitz(&self) -> Option<F> {
        Some(F::of(0.25))
    }
}

impl Function<1> for Logistic {
    #[inline(always)]
    fn at(&self, [u]: [f64; 1]) -> f64 {
        (0.5 * elementary::tanh(0.5 * u.abs())).copysign(u)
    }
}

/// g(u) = tanh(u). L_g = 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tanh;

impl<F: Real> Link<F> for Tanh {
    fn g(&self, u: F) -> F {
        u.tanh()
    }
    fn apply(&self, u: &mut [F]) {
        lanes::map(u, self);
    }
    fn lipschitz(&self) -> Option<F> {
        Some(F::one())
    }
}

impl Function<1> for Tanh {
    #[inline(always)]
    fn at(&self, [u]: [f64; 1]) -> f64 {
        elementary::tanh(u.abs()).copysign(u)
    }
}

/// g(u) = F(u) − ½ for the Laplace distribution of scale 1: ½ sign(u) (1 − e^−|u|). L_g = ½.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Laplace;

impl<F: Real> Link<F> for Laplace {
    fn g(&self, u: F) -> F {
        let magnitude = -F::of(0.5) * (-u.abs()).exp_m1();
        magnitude.copysign(u)
    }
    fn apply(&self, u: &mut [F]) {
        lanes::map(u, self);
    }
    fn lipschitz(&self) -> Option<F> {
        Some(F::of(0.5))
    }
}

impl Function<1> for Laplace {
    #[inline(always)]
    fn at(&self, [u]: [f64; 1]) -> f64 {
        (-0.5 * elementary::exp_m1_of_negative(-u.abs())).copysign(u)
    }
}
