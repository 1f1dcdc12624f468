use auto_impl::auto_impl;
use sk_core::{ParameterError, Real};

use crate::elementary;
use crate::lanes::{self, Function, LANES};

/// s, the spread of a pairwise operator: the scale on which two scores are compared, from their
/// dispersions (`thm:rep`).
///
/// # For implementors
/// s must be symmetric, homogeneous of degree 1, and non-decreasing and unbounded in each argument.
/// Homogeneity implies s(0, 0) = 0; operators define their ratings there as the limit. Only one
/// method is required; [`apply`](Self::apply) is for spreads that are faster on many values at
/// once.
#[auto_impl(&, Box, Arc)]
pub trait Spread<F: Real = f64>: Send + Sync {
    /// Returns s(a, b), for finite a, b ≥ 0.
    fn s(&self, a: F, b: F) -> F;

    /// Replaces each a by s(a, b), for finite a, b ≥ 0.
    ///
    /// For p other than 1, 2 and ∞, [`PNorm`] uses the widest vectors of the processor, with a
    /// relative error within 2e-15 in f64.
    ///
    /// # Panics
    /// May panic if the slices differ in length.
    fn apply(&self, a: &mut [F], b: &[F]) {
        a.iter_mut().zip(b).for_each(|(a, &b)| *a = self.s(*a, b));
    }
}

const _: Option<&dyn Spread<f64>> = None;

/// A power of two by which scores and dispersions are multiplied if s overflows. s is homogeneous,
/// and what small numbers lose beside such a spread is below rounding.
pub(crate) const REDUCTION: f64 = 1.0 / 18_446_744_073_709_551_616.0; // 2^−64

/// s_p(a, b) = (a^p + b^p)^(1/p) for p in [1, ∞], with max(a, b) at p = ∞ (`cor:family`).
///
/// Evaluated relative to the larger argument, so that it neither overflows nor underflows if the
/// result is representable.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PNorm {
    p: f64,
}

impl PNorm {
    /// p = 1: a + b.
    pub const SUM: Self = Self { p: 1.0 };
    /// p = 2: √(a² + b²).
    pub const EUCLIDEAN: Self = Self { p: 2.0 };
    /// p = ∞: max(a, b), the weakest link.
    pub const MAXIMUM: Self = Self { p: f64::INFINITY };

    /// Creates the spread of exponent `p`, which may be infinite.
    ///
    /// # Errors
    /// If p is below 1 or NaN.
    pub fn new(p: f64) -> Result<Self, ParameterError> {
        ParameterError::check(p >= 1.0, "p", p, "at least 1; it may be infinite")?;
        Ok(Self { p })
    }
}

impl<F: Real> Spread<F> for PNorm {
    fn s(&self, a: F, b: F) -> F {
        if self.p == 2.0 {
            return euclidean(a, b);
        }
        if self.p == 1.0 {
            return a + b;
        }
        if self.p.is_infinite() {
            return a.max(b);
        }
        F::of(self.at([a.widen(), b.widen()]))
    }

    fn apply(&self, a: &mut [F], b: &[F]) {
        let pairs = a.iter_mut().zip(b);
        if self.p == 2.0 {
            let ((chunks, rest), (others, other_rest)) = (a.as_chunks_mut(), b.as_chunks());
            chunks.iter_mut().zip(others).for_each(|(a, b)| euclidean_lanes(a, b));
            rest.iter_mut().zip(other_rest).for_each(|(a, &b)| *a = euclidean(*a, b));
        } else if self.p == 1.0 {
            pairs.for_each(|(a, &b)| *a = *a + b);
        } else if self.p.is_infinite() {
            pairs.for_each(|(a, &b)| *a = if *a < b { b } else { *a });
        } else {
            lanes::zip(a, b, self);
        }
    }
}

impl Function<2> for PNorm {
    /// 1 < p < ∞.
    #[inline(always)]
    fn at(&self, [a, b]: [f64; 2]) -> f64 {
        let (small, large) = if a < b { (a, b) } else { (b, a) };
        let ratio = small / large;
        // Below this (and if both are zero), the smaller argument adds nothing for any p.
        let ratio = if ratio > 1e-300 { ratio } else { 1e-300 };
        let power = elementary::exp(self.p * elementary::ln(ratio));
        large * elementary::exp(elementary::ln_1p(power) / self.p)
    }
}

#[inline]
fn euclidean<F: Real>(a: F, b: F) -> F {
    let square = a * a + b * b;
    if has_root(square) { square.sqrt() } else { a.hypot(b) }
}

/// Replaces each a by √(a² + b²): all directly, or one by one if one needs special treatment.
#[inline]
fn euclidean_lanes<F: Real>(a: &mut [F; LANES], b: &[F; LANES]) {
    let (mut roots, mut direct) = ([F::zero(); LANES], true);
    for k in 0..LANES {
        let square = a[k] * a[k] + b[k] * b[k];
        direct &= has_root(square);
        roots[k] = square.sqrt();
    }
    if direct {
        *a = roots;
    } else {
        a.iter_mut().zip(b).for_each(|(a, &b)| *a = euclidean(*a, b));
    }
}

/// Returns whether no square in this sum overflowed or lost precision to underflow.
#[inline]
fn has_root<F: Real>(square: F) -> bool {
    (square < F::infinity()) & (square > F::min_positive_value() / F::epsilon())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_by_hand() {
        assert_eq!(PNorm::SUM.s(3.0, 4.0), 7.0);
        assert_eq!(PNorm::EUCLIDEAN.s(3.0, 4.0), 5.0);
        assert_eq!(PNorm::MAXIMUM.s(3.0, 4.0), 4.0);
        // 3³ + 4³ + … = 6³ − 5³ = 91.
        assert!((PNorm::new(3.0).unwrap().s(3.0f64, 4.0) - 91f64.cbrt()).abs() < 1e-14);
        for p in [1.0, 1.5, 2.0, 7.0, 1e9, f64::INFINITY] {
            assert_eq!(PNorm::new(p).unwrap().s(0.0, 0.0), 0.0);
            assert_eq!(PNorm::new(p).unwrap().s(0.0, 2.5), 2.5);
        }
    }

    #[test]
    fn an_exponent_below_one_is_refused() {
        for p in [0.999, 0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
            assert!(PNorm::new(p).is_err());
        }
        assert_eq!(PNorm::new(0.5).unwrap_err().to_string(), "p is 0.5; it must be at least 1; it may be infinite");
    }

    #[test]
    fn no_overflow_or_underflow_on_the_way() {
        for scale in [1e-320, 1e-300, 1e-160, 1e160, 1e300] {
            for p in [1.5, 2.0, 3.0, 100.0] {
                let spread = PNorm::new(p).unwrap();
                let expected = scale * 2f64.powf(1.0 / p);
                // Subnormal numbers have few digits.
                let tolerance = if scale < 1e-310 { 1e-3 } else { 1e-14 };
                assert!((spread.s(scale, scale) / expected - 1.0).abs() < tolerance, "p {p} scale {scale}");
            }
        }
        assert_eq!(PNorm::EUCLIDEAN.s(1e30f32, 0.0), 1e30);
    }
}
