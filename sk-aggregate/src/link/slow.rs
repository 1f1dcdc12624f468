//! Links without a limit. They grow at least like log u, which is what makes the sensitivity of a rating fall with the dispersion
//! everywhere and not only in its envelope.

use sk_core::Real;

use super::Link;

/// g(u) = asinh(u). L_g = 1. Near zero it is the identity, far out a logarithm; u·g′(u) increases, so attenuation (A5) is exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asinh;

impl<F: Real> Link<F> for Asinh {
    fn g(&self, u: F) -> F {
        u.asinh()
    }
    fn lipschitz(&self) -> Option<F> {
        Some(F::one())
    }
}

/// g(u) = sign(u) · log(1 + |u|). L_g = 1. Attenuation (A5) is exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SignedLog;

impl<F: Real> Link<F> for SignedLog {
    fn g(&self, u: F) -> F {
        let magnitude = u.abs().ln_1p();
        if u < F::zero() { -magnitude } else { magnitude }
    }
    fn lipschitz(&self) -> Option<F> {
        Some(F::one())
    }
}

/// g(u) = u. L_g = 1.
///
/// The one link here whose ratings need not approach the order of μ as all dispersions vanish: with unequal dispersions the most certain
/// pairs dominate the sum at any scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Identity;

impl<F: Real> Link<F> for Identity {
    fn g(&self, u: F) -> F {
        u
    }
    fn lipschitz(&self) -> Option<F> {
        Some(F::one())
    }
}
