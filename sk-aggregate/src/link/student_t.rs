use std::f64::consts::PI;

use sk_core::{ParameterError, Real};

use super::Link;
use crate::elementary;
use crate::lanes::{self, LANES, Wide};

/// g(u) = F_ν(u) − ½ for Student's t distribution with ν > 0 degrees of freedom: bounded like the probit, with heavier tails, so that a
/// large difference is discounted less sharply. L_g is the density at 0. ν = 1 is the Cauchy link, ν → ∞ the probit.
///
/// Evaluated through the regularised incomplete beta function; relative error below 1e-12 for ν in [0.1, 1e4].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StudentT {
    nu: f64,
    /// 1 / B(ν/2, ½).
    scale: f64,
    /// Terms of the continued fraction that suffice for any u, where that is not too many.
    terms: Option<usize>,
}

/// Fractions of more terms are evaluated one by one, as far as each needs.
const MOST_TERMS: usize = 64;

impl StudentT {
    /// Student's t with `nu` degrees of freedom.
    ///
    /// # Errors
    /// When ν is not positive and finite.
    pub fn new(nu: f64) -> Result<Self, ParameterError> {
        ParameterError::check(nu.is_finite() && nu > 0.0, "degrees of freedom", nu, "positive and finite")?;
        let (b, split) = (nu / 2.0, split(nu));
        let terms = terms(0.5, b, split).zip(terms(b, 0.5, 1.0 - split)).map(|(lower, upper)| lower.max(upper));
        Ok(Self { nu, scale: gamma_ratio(b) / PI.sqrt(), terms })
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
        if x < split(self.nu) {
            0.5 * front * beta_fraction(a, b, x) / a
        } else {
            0.5 * (1.0 - front * beta_fraction(b, a, y) / b)
        }
    }
}

/// x = u²/(ν + u²) below which the fraction of x converges faster than that of 1 − x: the mean of the beta distribution, nearly.
fn split(nu: f64) -> f64 {
    1.5 / (nu / 2.0 + 2.5)
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
        magnitude.copysign(u)
    }
    fn apply(&self, u: &mut [F]) {
        match self.terms {
            Some(terms) => lanes::widest(Fractions { link: self, terms, u }),
            None => u.iter_mut().for_each(|u| *u = self.g(*u)),
        }
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

/// The k-th partial numerator of the continued fraction of the incomplete beta function, over x: 1/(1 + d_1 x/(1 + d_2 x/(1 + …))).
fn numerator(a: f64, b: f64, k: usize) -> f64 {
    let m = (k / 2) as f64;
    if k.is_multiple_of(2) {
        m * (b - m) / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
    } else {
        -(a + m) * (a + b + m) / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
    }
}

/// How many terms the fraction needs at x, and so at anything less, if [`MOST_TERMS`] are enough.
fn terms(a: f64, b: f64, x: f64) -> Option<usize> {
    let (mut above, mut below) = ((1.0, 1.0), (0.0, 1.0));
    for k in 1..=MOST_TERMS {
        let d = numerator(a, b, k) * x;
        let before = above.1 / below.1;
        above = (above.1, above.1 + d * above.0);
        below = (below.1, below.1 + d * below.0);
        if (above.1 / below.1 / before - 1.0).abs() < f64::EPSILON {
            return Some(k);
        }
    }
    None
}

/// [`StudentT`] on many values: the continued fraction by its forward recurrence, which takes no division per term, with as many terms for
/// all.
struct Fractions<'a, F> {
    link: &'a StudentT,
    terms: usize,
    u: &'a mut [F],
}

type Lanes = [f64; LANES];

impl<F: Real> Wide for Fractions<'_, F> {
    #[inline(always)]
    fn run(self) {
        let Self { link, terms, u } = self;
        let (b, split) = (link.nu / 2.0, split(link.nu));
        let root = link.nu.sqrt();
        // Below the split and above it.
        let mut d = [[0.0; 2]; MOST_TERMS];
        for (k, d) in d[..terms].iter_mut().enumerate() {
            *d = [numerator(0.5, b, k + 1), numerator(b, 0.5, k + 1)];
        }
        for u in u.chunks_mut(LANES) {
            let mut v = [1.0; LANES];
            v.iter_mut().zip(&*u).for_each(|(v, u)| *v = u.widen().abs() / root);
            let (mut front, mut z, mut lower) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
            for l in 0..LANES {
                // As `half_mass`, with w the smaller of v and 1/v.
                let near = v[l] <= 1.0;
                let w = if near { v[l] } else { 1.0 / v[l] };
                let square = w * w;
                let (small, large) = (square / (1.0 + square), 1.0 / (1.0 + square));
                let (x, y) = if near { (small, large) } else { (large, small) };
                let root_x = large.sqrt() * if near { w } else { 1.0 };
                let w = if w > 1e-290 { w } else { 1e-290 };
                let log_y = if near { 0.0 } else { 2.0 * elementary::ln(w) } - elementary::ln_1p(square);
                front[l] = link.scale * root_x * elementary::exp(b * log_y);
                lower[l] = if x < split { 1.0 } else { 0.0 };
                z[l] = if x < split { x } else { y };
            }
            let (above, below) = continuants(&d[..terms], &z, &lower);
            let mut mass = [0.0; LANES];
            for l in 0..LANES {
                let beta = front[l] * below[l] / above[l];
                mass[l] = if lower[l] > 0.0 { beta } else { 0.5 * (1.0 - beta / b) };
            }
            u.iter_mut().zip(mass).for_each(|(u, mass)| *u = F::of(mass.copysign(u.widen())));
        }
    }
}

/// Numerator and denominator of 1 + d_1 z/(1 + d_2 z/(1 + …)), with the d of the lower side where `lower` is 1, of the upper where 0.
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

    /// Γ(x + 1) = x Γ(x): from b to b + 1 the ratio grows by (b + ½)/b, on either side of where the series takes over and across it.
    #[test]
    fn the_ratio_of_gammas_follows_its_recurrence() {
        for (b, tolerance) in
            [(0.5, 1e-14), (3.0, 1e-14), (98.0, 1e-12), (99.5, 1e-12), (100.0, 1e-15), (140.0, 1e-15), (1e3, 1e-15), (1e6, 1e-15)]
        {
            let step = gamma_ratio(b + 1.0) / gamma_ratio(b) / ((b + 0.5) / b);
            // Below, the logarithms of Γ are rounded at some hundreds; above, a few roundings.
            assert!((step - 1.0).abs() <= f64::max(tolerance, 8.0 * f64::EPSILON), "{b}: {step}");
        }
        // Γ(1)/Γ(½) and Γ(3/2)/Γ(1).
        assert!((gamma_ratio(0.5) - PI.sqrt().recip()).abs() < 1e-15 && (gamma_ratio(1.0) - PI.sqrt() / 2.0).abs() < 1e-15);
    }

    /// With so many terms the fraction is what it is with sixty more, with four fewer it is not, and none is given where even the most do not
    /// suffice.
    #[test]
    fn terms_are_as_many_as_are_needed() {
        /// Roundings of either value.
        const ROUNDING: f64 = 2.0 * f64::EPSILON;
        for nu in [0.1, 0.5, 1.0, 2.0, 3.5, 8.0, 30.0, 1e3, 1e4, 1e6] {
            let (b, split) = (nu / 2.0, split(nu));
            for (a, b, x) in [(0.5, b, split), (b, 0.5, 1.0 - split)] {
                let error = |k: usize, more: usize| (fraction(a, b, x, k) / fraction(a, b, x, k + more) - 1.0).abs();
                match terms(a, b, x) {
                    Some(k) => {
                        assert!(error(k, 60) <= ROUNDING, "{nu}: {k} are too few");
                        assert!(k <= 4 || error(k - 4, 64) > ROUNDING, "{nu}: {k} are too many");
                    }
                    None => assert!(error(MOST_TERMS, 200) > ROUNDING, "{nu}: {MOST_TERMS} are enough"),
                }
            }
        }
        // Up to thirty degrees of freedom many values at once have few enough, and past a thousand not.
        assert!([0.1, 1.0, 30.0].iter().all(|&nu| StudentT::new(nu).unwrap().terms.is_some()));
        assert_eq!(StudentT::new(1e3).unwrap().terms, None);
        // The more of either side.
        assert_eq!(StudentT::new(2.0).unwrap().terms, terms(1.0, 0.5, 1.0 - split(2.0)));
    }
}
