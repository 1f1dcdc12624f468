use std::f64::consts::PI;

use sk_core::{ParameterError, Real};

use super::Link;

/// g(u) = F_ν(u) − ½ for Student's t distribution with ν > 0 degrees of freedom: bounded like the probit, with heavier tails, so that a
/// large difference is discounted less sharply. L_g is the density at 0. ν = 1 is the Cauchy link, ν → ∞ the probit.
///
/// Evaluated through the regularised incomplete beta function; relative error below 1e-12 for ν in [0.1, 1e4].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StudentT {
    nu: f64,
    /// 1 / B(ν/2, ½).
    scale: f64,
}

impl StudentT {
    /// Student's t with `nu` degrees of freedom.
    ///
    /// # Errors
    /// When ν is not positive and finite.
    pub fn new(nu: f64) -> Result<Self, ParameterError> {
        ParameterError::check(nu.is_finite() && nu > 0.0, "degrees of freedom", nu, "positive and finite")?;
        Ok(Self { nu, scale: gamma_ratio(nu / 2.0) / PI.sqrt() })
    }

    /// ν.
    pub fn nu(&self) -> f64 {
        self.nu
    }

    /// P(|t| ≤ |u|) / 2.
    fn half_mass(&self, u: f64) -> f64 {
        // √x, y and log y for x = u²/(ν + u²) and y = 1 − x, without cancellation, and without u² where it is not representable.
        let v = u.abs() / self.nu.sqrt();
        let (root_x, y, log_y) = if v <= 1.0 {
            let y = 1.0 / (1.0 + v * v);
            (v * y.sqrt(), y, -(v * v).ln_1p())
        } else {
            let w = v.recip();
            let x = 1.0 / (1.0 + w * w);
            (x.sqrt(), w * w * x, 2.0 * w.ln() + x.ln())
        };
        let x = root_x * root_x;
        let (a, b) = (0.5, self.nu / 2.0);
        // x^a y^b / B(a, b); the continued fraction converges fast on the side of the mean.
        let front = self.scale * root_x * (b * log_y).exp();
        if x < (a + 1.0) / (a + b + 2.0) {
            0.5 * front * beta_fraction(a, b, x) / a
        } else {
            0.5 * (1.0 - front * beta_fraction(b, a, y) / b)
        }
    }
}

/// Γ(b + ½) / Γ(b).
fn gamma_ratio(b: f64) -> f64 {
    /// From here on the first six terms of the asymptotic series are exact to rounding, and the logarithms of Γ no longer are.
    const LARGE: f64 = 100.0;
    if b < LARGE {
        return (libm::lgamma(b + 0.5) - libm::lgamma(b)).exp();
    }
    let terms = [1.0, -1.0 / 8.0, 1.0 / 128.0, 5.0 / 1024.0, -21.0 / 32_768.0, -399.0 / 262_144.0];
    b.sqrt() * terms.iter().rev().fold(0.0, |sum, term| sum / b + term)
}

impl<F: Real> Link<F> for StudentT {
    fn g(&self, u: F) -> F {
        let magnitude = F::of(self.half_mass(u.widen()));
        if u < F::zero() { -magnitude } else { magnitude }
    }
    fn lipschitz(&self) -> Option<F> {
        Some(F::of(self.scale / self.nu.sqrt()))
    }
}

/// The continued fraction of the incomplete beta function at x, by Lentz's method.
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    /// Keeps a vanishing denominator away from zero.
    const TINY: f64 = 1e-300;
    /// Terms needed grow like √max(a, b): enough for ν up to 1e8.
    const TERMS: u32 = 20_000;
    let guard = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = guard(1.0 - (a + b) * x / (a + 1.0)).recip();
    let mut value = d;
    for m in 1..TERMS {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut step = 1.0;
        for term in [even, odd] {
            d = guard(1.0 + term * d).recip();
            c = guard(1.0 + term / c);
            step *= c * d;
        }
        value *= step;
        if (step - 1.0).abs() < f64::EPSILON {
            break;
        }
    }
    value
}
