mod expansion;

use std::f64::consts::PI;

use sk_core::{ParameterError, Real};

use self::expansion::Expansion;
use super::Link;
use crate::elementary;
use crate::lanes::{self, LANES, Wide};

/// g(u) = F_ν(u) − ½ for Student's t distribution with ν degrees of freedom: bounded like the
/// probit, with heavier tails, so that a large difference is discounted less sharply. L_g is the
/// density at 0. ν = 1 is the Cauchy link, ν → ∞ the probit.
///
/// For ν < 20, g is computed by the continued fraction of the regularised incomplete beta function,
/// and otherwise as the probit with a correction of order 1/ν². Just above the mean of the
/// distribution, the tail fraction is subtracted from one half, which loses digits for small ν.
/// Accuracy was tested against 40-digit values for 21 ν from 0.1 to 1e300, at 36 arguments from
/// 1e-300 to 4e307 and, for ν < 20, at 41 arguments around that point. The largest relative error
/// is 1.1e-14 at ν = 0.1, 4.2e-15 at 0.3 and 2e-15 from ν = 1 on; `tests/links.rs` allows 2e-14.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StudentT {
    nu: f64,
    form: Form,
}

/// The method that computes g.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(clippy::large_enum_variant)] // some hundred bytes, so that a link needs no memory of its own
enum Form {
    Fraction(Fraction),
    Expansion(Expansion),
}

impl StudentT {
    /// The fewest degrees of freedom. With half as many, no finite difference would reach the
    /// limit, and g of a small difference would be dominated by cancellation.
    pub const FEWEST: f64 = 0.1;

    /// Creates Student's t link with `nu` degrees of freedom.
    ///
    /// # Errors
    /// If ν is not finite, or below [`FEWEST`](Self::FEWEST).
    pub fn new(nu: f64) -> Result<Self, ParameterError> {
        ParameterError::check(nu.is_finite() && nu >= Self::FEWEST, "nu", nu, "finite and at least 0.1")?;
        let form = if nu < expansion::FROM { Form::Fraction(Fraction::new(nu)) } else { Form::Expansion(Expansion::new(nu)) };
        Ok(Self { nu, form })
    }
}

impl<F: Real> Link<F> for StudentT {
    fn g(&self, u: F) -> F {
        let mut one = [u];
        self.apply(&mut one);
        one[0]
    }
    fn apply(&self, u: &mut [F]) {
        match &self.form {
            Form::Fraction(fraction) => lanes::widest(Fractions { fraction, u }),
            Form::Expansion(expansion) => lanes::map(u, expansion),
        }
    }
    fn lipschitz(&self) -> Option<F> {
        let slope = match &self.form {
            Form::Fraction(fraction) => fraction.scale / self.nu.sqrt(),
            Form::Expansion(expansion) => expansion.slope(),
        };
        Some(F::of(slope))
    }
}

/// g of Student's t for ν < [`expansion::FROM`].
#[derive(Debug, Clone, Copy, PartialEq)]
struct Fraction {
    nu: f64,
    /// 1 / B(ν/2, ½).
    scale: f64,
    /// The number of terms of the continued fraction that suffices for any u.
    terms: usize,
    /// The numerators below and above the split, precomputed since computing them takes longer than
    /// using them.
    numerators: [[f64; 2]; MOST_TERMS],
}

/// The number of terms that ν < [`expansion::FROM`] needs.
const MOST_TERMS: usize = 48;

impl Fraction {
    fn new(nu: f64) -> Self {
        let (b, split) = (nu / 2.0, split(nu));
        let terms = terms(0.5, b, split).max(terms(b, 0.5, 1.0 - split));
        let numerators = std::array::from_fn(|k| [numerator(0.5, b, k + 1), numerator(b, 0.5, k + 1)]);
        Self { nu, scale: gamma_ratio(b) / PI.sqrt(), terms, numerators }
    }
}

/// The x = u²/(ν + u²) below which the fraction in x converges faster than that in 1 − x:
/// approximately the mean of the beta distribution.
fn split(nu: f64) -> f64 {
    1.5 / (nu / 2.0 + 2.5)
}

/// Returns Γ(b + ½) / Γ(b), for b in [0.05, 10).
fn gamma_ratio(b: f64) -> f64 {
    libm::tgamma(b + 0.5) / libm::tgamma(b)
}

/// Returns the k-th partial numerator of the continued fraction of the incomplete beta function,
/// divided by x: 1/(1 + d_1 x/(1 + d_2 x/(1 + …))).
fn numerator(a: f64, b: f64, k: usize) -> f64 {
    let m = (k / 2) as f64;
    if k.is_multiple_of(2) {
        m * (b - m) / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
    } else {
        -(a + m) * (a + b + m) / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
    }
}

/// Returns the number of terms that the fraction needs at x, which suffices for any smaller
/// argument; at most [`MOST_TERMS`].
fn terms(a: f64, b: f64, x: f64) -> usize {
    let (mut above, mut below) = ((1.0, 1.0), (0.0, 1.0));
    for k in 1..=MOST_TERMS {
        let d = numerator(a, b, k) * x;
        let before = above.1 / below.1;
        above = (above.1, above.1 + d * above.0);
        below = (below.1, below.1 + d * below.0);
        if (above.1 / below.1 / before - 1.0).abs() < f64::EPSILON {
            return k;
        }
    }
    MOST_TERMS
}

/// Replaces each u by P(|t| ≤ |u|) / 2 with its sign: evaluates the continued fraction by its
/// forward recurrence, which needs no division per term, with the same number of terms for all.
struct Fractions<'a, F> {
    fraction: &'a Fraction,
    u: &'a mut [F],
}

type Lanes = [f64; LANES];

impl<F: Real> Wide for Fractions<'_, F> {
    #[inline(always)]
    fn run(self) {
        let Self { fraction: &Fraction { nu, scale, terms, ref numerators }, u } = self;
        let (b, split) = (nu / 2.0, split(nu));
        let root = nu.sqrt();
        for u in u.chunks_mut(LANES) {
            let mut v = [1.0; LANES];
            v.iter_mut().zip(&*u).for_each(|(v, u)| *v = u.widen().abs() / root);
            let (mut front, mut z, mut lower) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
            for l in 0..LANES {
                // √x, y and log y for x = u²/(ν + u²) and y = 1 − x, without cancellation, and
                // without u² if it is not representable: w is the smaller of v and 1/v.
                let near = v[l] <= 1.0;
                let w = if near { v[l] } else { 1.0 / v[l] };
                let square = w * w;
                let (small, large) = (square / (1.0 + square), 1.0 / (1.0 + square));
                let (x, y) = if near { (small, large) } else { (large, small) };
                let root_x = large.sqrt() * if near { w } else { 1.0 };
                let w = if w > 1e-290 { w } else { 1e-290 };
                let log_y = if near { 0.0 } else { 2.0 * elementary::ln(w) } - elementary::ln_1p(square);
                // x^a y^b / B(a, b) for a = ½; the continued fraction converges fast on the side
                // of the mean.
                front[l] = scale * root_x * elementary::exp(b * log_y);
                lower[l] = if x < split { 1.0 } else { 0.0 };
                z[l] = if x < split { x } else { y };
            }
            let (above, below) = continuants(&numerators[..terms], &z, &lower);
            let mut mass = [0.0; LANES];
            for l in 0..LANES {
                let beta = front[l] * below[l] / above[l];
                mass[l] = if lower[l] > 0.0 { beta } else { 0.5 * (1.0 - beta / b) };
            }
            u.iter_mut().zip(mass).for_each(|(u, mass)| *u = F::of(mass.copysign(u.widen())));
        }
    }
}

/// Returns numerator and denominator of 1 + d_1 z/(1 + d_2 z/(1 + …)), with the d of the lower side
/// if `lower` is 1, and of the upper side if it is 0.
#[inline(always)]
fn continuants(d: &[[f64; 2]], z: &Lanes, lower: &Lanes) -> (Lanes, Lanes) {
    let (mut above, mut below) = (([1.0; LANES], [1.0; LANES]), ([0.0; LANES], [1.0; LANES]));
    for &[down, up] in d {
        for l in 0..LANES {
            let d = z[l] * if lower[l] > 0.0 { down } else { up };
            (above.0[l], above.1[l]) = (above.1[l], above.1[l] + d * above.0[l]);
            (below.0[l], below.1[l]) = (below.1[l], below.1[l] + d * below.0[l]);
        }
    }
    (above.1, below.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1/(1 + d_1 x/(1 + d_2 x/(1 + …))) with k numerators, from the inside.
    fn fraction(a: f64, b: f64, x: f64, k: usize) -> f64 {
        (1..=k).rev().fold(1.0, |inside, k| 1.0 + numerator(a, b, k) * x / inside).recip()
    }

    /// a = 1, b = 3: −(1 · 4)/(1 · 2), 1 · 2/(2 · 3), −(2 · 5)/(3 · 4), 2 · 1/(4 · 5).
    #[test]
    fn numerators_by_hand() {
        let found = [1, 2, 3, 4].map(|k| numerator(1.0, 3.0, k));
        for (found, expected) in found.into_iter().zip([-2.0, 1.0 / 3.0, -5.0 / 6.0, 0.1]) {
            assert!((found - expected).abs() < 1e-15, "{found} {expected}");
        }
        // (a + 1)/(a + b + 2) for a = ½ and b = ν/2.
        assert_eq!([split(1.0), split(3.0)], [0.5, 0.375]);
    }

    /// Γ(x + 1) = x Γ(x): from b to b + 1 the ratio grows by (b + ½)/b.
    #[test]
    fn the_ratio_of_gammas_follows_its_recurrence() {
        for b in [0.05, 0.1, 0.5, 1.7, 3.0, 8.9] {
            let step = gamma_ratio(b + 1.0) / gamma_ratio(b) / ((b + 0.5) / b);
            // Two roundings of each of four Γ, and a few.
            assert!((step - 1.0).abs() <= 8.0 * f64::EPSILON, "{b}: {step}");
        }
        // Γ(1)/Γ(½) and Γ(3/2)/Γ(1).
        assert!((gamma_ratio(0.5) - PI.sqrt().recip()).abs() < 1e-15 && (gamma_ratio(1.0) - PI.sqrt() / 2.0).abs() < 1e-15);
    }

    /// The number of terms suffices: sixty more give the same value, six fewer do not, and the
    /// maximum is never too small.
    #[test]
    fn terms_are_as_many_as_are_needed() {
        /// Roundings of either value.
        const ROUNDING: f64 = 4.0 * f64::EPSILON;
        for nu in [StudentT::FEWEST, 0.5, 1.0, 2.0, 3.5, 8.0, 15.0, 0.999 * expansion::FROM] {
            let (b, split) = (nu / 2.0, split(nu));
            for (a, b, x) in [(0.5, b, split), (b, 0.5, 1.0 - split)] {
                let error = |k: usize, more: usize| (fraction(a, b, x, k) / fraction(a, b, x, k + more) - 1.0).abs();
                let k = terms(a, b, x);
                assert!(k < MOST_TERMS && error(k, 60) <= ROUNDING, "{nu}: {k} are too few");
                assert!(k <= 6 || error(k - 6, 64) > ROUNDING, "{nu}: {k} are too many");
            }
        }
        // The more of either side.
        assert_eq!(Fraction::new(2.0).terms, terms(0.5, 1.0, split(2.0)).max(terms(1.0, 0.5, 1.0 - split(2.0))));
    }
}
