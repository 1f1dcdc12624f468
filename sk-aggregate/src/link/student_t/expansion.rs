//! Student's t with many degrees of freedom: the probit plus a series in 1/(ν − ½)².

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use crate::elementary;
use crate::lanes::Function;

/// The degrees of freedom from which the omitted terms are below 3e-17 of g.
pub(super) const FROM: f64 = 20.0;

/// h_k of √((t/2)/sinh(t/2)) = Σ h_k t^2k, which converges for |t| < 2π.
const SERIES: [f64; 8] = [
    1.0,
    -1.0 / 48.0,
    1.0 / 2560.0,
    -61.0 / 7_741_440.0,
    1261.0 / 7_431_782_400.0,
    -79.0 / 20_761_804_800.0,
    66_643.0 / 761_775_532_277_760.0,
    -16_820_653.0 / 8_227_175_748_599_808_000.0,
];

/// The number of powers of z² in the correction: two for each term of the series after the first.
const POWERS: usize = 2 * (SERIES.len() - 1);

/// The z beyond which every g rounds to ½, including the correction.
const SATURATED: f64 = 10.0;

/// The u²/ν below which ln(1 + u²/ν) is not computed from it, since so small a square may have lost
/// precision.
const SQUARES_FROM: f64 = 1e-200;

/// g of Student's t for ν ≥ [`FROM`].
///
/// With a = ν − ½ and z² = a·ln(1 + u²/ν), the density in z is e^(−z²/2)·h(z²/a) up to a factor,
/// and h(t) = √((t/2)/sinh(t/2)) is even. Its series therefore contains only powers of z⁴/a². Its
/// integral up to z is a share of the normal integral plus polynomials in z²:
///
/// ```text
/// g(u) = ½ erf(z/√2) − z e^(−z²/2) Σ_j c_j z^2j
/// ```
///
/// with c_j of order 1/a². Each term is at most its value at z = ∞, h_k·(4k−1)!!/a^2k, so the error
/// is small for every u.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Expansion {
    root_nu: f64,
    a: f64,
    /// √(a/ν), the slope of z at 0.
    stretch: f64,
    /// Σ_k h_k (4k−1)!!/a^2k: the mean of h under the normal distribution.
    mean: f64,
    c: [f64; POWERS],
}

impl Expansion {
    /// Creates the expansion for `nu` degrees of freedom, at least [`FROM`].
    pub(super) fn new(nu: f64) -> Self {
        let a = nu - 0.5;
        let inverse_square = a.recip() * a.recip();
        // h_k (4k−1)!!/a^2k is the mean of h_k z^4k/a^2k for a standard normal z.
        let (mut moments, mut moment) = (SERIES, 1.0);
        for (k, term) in moments.iter_mut().enumerate().skip(1) {
            moment *= (4 * k - 1) as f64 * (4 * k - 3) as f64 * inverse_square;
            *term *= moment;
        }
        let mean = moments.iter().rev().sum::<f64>();
        // ∫₀^z x^4k e^(−x²/2) dx leaves z^(2j+1) (4k−1)!!/(2j+1)!! for each j < 2k.
        let (mut c, mut odd) = ([0.0; POWERS], mean * (2.0 * PI).sqrt());
        for (j, c) in c.iter_mut().enumerate() {
            odd *= (2 * j + 1) as f64;
            *c = moments[j / 2 + 1..].iter().rev().sum::<f64>() / odd;
        }
        Self { root_nu: nu.sqrt(), a, stretch: (a / nu).sqrt(), mean, c }
    }

    /// Returns g′(0).
    pub(super) fn slope(&self) -> f64 {
        self.stretch / ((2.0 * PI).sqrt() * self.mean)
    }
}

impl Function<1> for Expansion {
    #[inline(always)]
    fn at(&self, [u]: [f64; 1]) -> f64 {
        let v = u.abs() / self.root_nu;
        let square = v * v;
        let far = (self.a * elementary::ln_1p(square)).sqrt();
        let z = if square > SQUARES_FROM { far } else { u.abs() * self.stretch };
        let z = if z < SATURATED { z } else { SATURATED };
        let correction = z * elementary::exp(-0.5 * z * z) * elementary::polynomial(&self.c, z * z);
        (0.5 * elementary::erf(z * FRAC_1_SQRT_2) - correction).copysign(u)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (sinh(t/2)/(t/2))·h(t)² = 1, so the squares of the series times 1/((2k+1)! 4^k) are 1, 0, 0,
    /// …
    #[test]
    fn the_series_is_that_of_the_density() {
        let convolve =
            |a: &[f64; 8], b: &[f64; 8]| -> [f64; 8] { std::array::from_fn(|n| (0..=n).map(|k| a[k] * b[n - k]).sum()) };
        let mut factorial = 1.0;
        let sinh: [f64; 8] = std::array::from_fn(|k| {
            factorial *= if k == 0 { 1.0 } else { (8 * k * (2 * k + 1)) as f64 };
            1.0 / factorial
        });
        let product = convolve(&convolve(&SERIES, &SERIES), &sinh);
        for (k, &value) in product.iter().enumerate().skip(1) {
            // Each sum has terms of the size of the last of the series.
            assert!((value / SERIES[k]).abs() < 1e-13, "{k}: {value}");
        }
        assert_eq!(product[0], 1.0);
    }

    /// The first omitted term: h_8 = 4.8e-14, and 31!! = 1.9e17.
    #[test]
    fn what_is_left_out_is_below_rounding() {
        assert!(4.83e-14 * 1.92e17 / (FROM - 0.5).powi(16) < 3e-17);
    }
}
