//! Links with a finite limit g(∞), which bounds the effect of a single comparison.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use sk_core::Real;

use super::Link;
use crate::elementary;
use crate::lanes::{self, Function};

link! {
    /// g(u) = Φ(u) − ½, the probit link: Thurstone's Case V with the Euclidean spread
    /// (`cor:family`). L_g = 1/√(2π).
    ///
    /// Computed as ½ erf(u/√2), which keeps the relative error small near u = 0. Compared with
    /// 40-digit values at 310 arguments from 1e-300 to 4e307, the largest relative error is
    /// 6.7e-16; `tests/links.rs` allows 2e-15.
    Probit,
    slope: (2.0 * PI).sqrt().recip(),
    g: |a| 0.5 * elementary::erf(a * FRAC_1_SQRT_2),
}

/// Returns Φ(u), accurate in both tails.
pub(crate) fn normal_cdf(u: f64) -> f64 {
    0.5 * libm::erfc(-u * FRAC_1_SQRT_2)
}

link! {
    /// g(u) = 1/(1 + e^−u) − ½, the logistic link: Bradley–Terry with the additive spread
    /// (`cor:family`). L_g = ¼.
    ///
    /// Computed as ½ tanh(u/2), which cannot overflow.
    Logistic,
    slope: 0.25,
    g: |a| 0.5 * elementary::tanh(0.5 * a),
}

link! {
    /// g(u) = tanh(u). L_g = 1.
    Tanh,
    slope: 1.0,
    g: |a| elementary::tanh(a),
}

link! {
    /// g(u) = F(u) − ½ for the Laplace distribution of scale 1: ½ sign(u) (1 − e^−|u|). L_g = ½.
    Laplace,
    slope: 0.5,
    g: |a| -0.5 * elementary::exp_m1_of_negative(-a),
}
