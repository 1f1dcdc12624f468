//! Links without a limit. They grow at least like log u, so that the sensitivity of a rating falls
//! with the dispersion everywhere, not only in its envelope.

use sk_core::Real;

use super::Link;
use crate::elementary;
use crate::lanes::{self, Function};

link! {
    /// g(u) = asinh(u). L_g = 1. It is the identity near zero and logarithmic for large u. u·g′(u)
    /// increases, so attenuation (A5) is exact.
    Asinh,
    slope: 1.0,
    g: |a| elementary::asinh(a),
}

link! {
    /// g(u) = sign(u) · log(1 + |u|). L_g = 1. Attenuation (A5) is exact.
    SignedLog,
    slope: 1.0,
    g: |a| elementary::ln_1p(a),
}

/// g(u) = u. L_g = 1.
///
/// This is the only link here whose ratings need not approach the order of μ as all dispersions
/// vanish: with unequal dispersions, the most certain pairs dominate the sum at any scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Identity;

impl<F: Real> Link<F> for Identity {
    fn g(&self, u: F) -> F {
        u
    }
    fn apply(&self, _: &mut [F]) {}
    fn lipschitz(&self) -> Option<F> {
        Some(F::one())
    }
}
