use auto_impl::auto_impl;

use sk_core::{Aggregator, Batch, Divergence, ParameterError};

use crate::spread::REDUCTION;
use crate::{Copeland, DivergenceMixture, Fluent, Link, RoundRobin, Scores, Spread, SwissElo};

/// A bound on how far changes of scores move ratings apart: for every ‖δ‖_∞ ≤ D and every pair,
/// (R_i − R_l)(μ + δ) − (R_i − R_l)(μ) is at most [`sharpened`](Self::sharpened)·D.
///
/// All numbers are per unit of score. They are 0 for a single candidate.
///
/// # For implementors
/// The formulas of the fields are those of a [`RoundRobin`]. For any operator, `uniform` and
/// `sharpened` must bound the change of every difference of two ratings, and `published` that of
/// every rating or of every such difference, whatever the scores. `sharpened` must not be above
/// `uniform`; an operator with one bound on differences sets all three to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Modulus {
    /// 2(N−1)·L_g/s_min: the published bound on |R_i(μ + δ) − R_i(μ)|, for one rating
    /// (`thm:robust`).
    pub published: f64,
    /// 2N·L_g/s_min: a bound on the difference of two ratings from the smallest spread only.
    pub uniform: f64,
    /// 2·L_g·C(σ): a bound on the same difference from all spreads of the batch, at most `uniform`.
    pub sharpened: f64,
}

impl Modulus {
    /// The modulus of an operator that ignores the scores.
    pub const ZERO: Self = Self { published: 0.0, uniform: 0.0, sharpened: 0.0 };

    /// Returns the modulus of `rating`·R + `score`·μ, where this is the modulus of the ratings R
    /// and both factors are not negative. A score changes by at most D, and the difference of two
    /// scores by 2D.
    #[must_use]
    pub fn with_scores(self, rating: f64, score: f64) -> Self {
        Self {
            published: rating * self.published + score,
            uniform: rating * self.uniform + 2.0 * score,
            sharpened: rating * self.sharpened + 2.0 * score,
        }
    }
}

/// The reason why there is no bound.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum NoCertificate {
    /// T is not positive and finite.
    #[error(transparent)]
    Temperature(#[from] ParameterError),
    /// The pairing of a tournament, and the value of a win, jump with the scores.
    #[error(
        "the pairing of a tournament jumps with the scores, so an arbitrarily small change can move its ratings; use a round robin"
    )]
    Tournament,
    /// z-scores divide by the spread of the scores, which can be arbitrarily small.
    #[error(
        "scores are standardised on entry, and near a tie that magnifies any change without bound; use an entry that leaves them as they are \
         (standardize = false in a scheme)"
    )]
    Standardized,
    /// The ratings only count wins.
    #[error("the rating jumps where two scores tie, so an arbitrarily small change can move it; use a link with a finite slope")]
    Jump,
    /// L_g is unknown or infinite.
    #[error("the link has no known bound on its slope; implement Link::lipschitz for it")]
    UnboundedSlope,
    /// Two candidates are compared with a spread of zero. The message counts candidates from 1.
    #[error(
        "candidates {} and {} are compared on a spread of zero, where any difference decides; give one of them a dispersion",
        i + 1, j + 1
    )]
    NoSpread { i: usize, j: usize },
    /// Two candidates are compared with so small a spread that the slope of their ratings
    /// overflows.
    #[error(
        "candidates {} and {} are compared on a spread of {spread:e}, so small that the slope of their ratings overflows; measure scores \
         and dispersions in a smaller unit",
        i + 1, j + 1
    )]
    Overflow { i: usize, j: usize, spread: f64 },
}

/// Operators with a bound on how far scores move their ratings, or a reason why there is none.
#[auto_impl(&, Box, Arc)]
pub trait Certify: Aggregator {
    /// Returns the modulus of the ratings at the dispersions of `batch`. It does not depend on the
    /// scores.
    ///
    /// # Errors
    /// If no finite modulus exists or is known.
    fn modulus(&self, batch: &Batch<'_>) -> Result<Modulus, NoCertificate>;
}

impl<L: Link, S: Spread> Certify for RoundRobin<L, S> {
    /// Returns the modulus, with s_ij the spreads of the batch and
    ///
    /// ```text
    /// C(σ) = max_{i≠l} [ 2/s_il + Σ_{j≠i,l} max(1/s_ij, 1/s_lj) ]  ≤  N/s_min
    /// ```
    ///
    /// since rival j moves R_i − R_l by at most 2D·L_g·max(1/s_ij, 1/s_lj), and the pair itself by
    /// 4D·L_g/s_il. O(N³).
    fn modulus(&self, batch: &Batch<'_>) -> Result<Modulus, NoCertificate> {
        let slope = self.link.lipschitz().filter(|l| l.is_finite()).ok_or(NoCertificate::UnboundedSlope)?;
        let (sigma, n) = (batch.sigma(), batch.len());
        if n == 1 {
            return Ok(Modulus::ZERO);
        }
        let mut inverse = vec![0.0; n * n];
        for i in 0..n {
            for j in 0..i {
                let spread = self.spread.s(sigma[i], sigma[j]);
                if spread == 0.0 {
                    return Err(NoCertificate::NoSpread { i: j, j: i });
                }
                let reciprocal = if spread.is_finite() {
                    spread.recip()
                } else {
                    REDUCTION / self.spread.s(REDUCTION * sigma[i], REDUCTION * sigma[j])
                };
                // The largest of the numbers below, if this were the smallest spread.
                if !(2.0 * n as f64 * slope.max(1.0) * reciprocal).is_finite() {
                    return Err(NoCertificate::Overflow { i: j, j: i, spread });
                }
                inverse[i * n + j] = reciprocal;
                inverse[j * n + i] = reciprocal;
            }
        }
        let steepest = inverse.iter().fold(0.0f64, |m, &x| m.max(x));
        let mut contrast = 0.0f64;
        for i in 0..n {
            for l in 0..i {
                let rivals = (0..n).filter(|&j| j != i && j != l);
                let through: f64 = rivals.map(|j| inverse[i * n + j].max(inverse[l * n + j])).sum();
                contrast = contrast.max(2.0 * inverse[i * n + l] + through);
            }
        }
        let n = n as f64;
        Ok(Modulus {
            published: 2.0 * (n - 1.0) * slope * steepest,
            uniform: 2.0 * n * slope * steepest,
            sharpened: 2.0 * slope * contrast.min(n * steepest),
        })
    }
}

impl Certify for Scores {
    /// R_i − R_l changes by at most 2D, whatever the dispersions.
    fn modulus(&self, batch: &Batch<'_>) -> Result<Modulus, NoCertificate> {
        Ok(if batch.len() == 1 { Modulus::ZERO } else { Modulus::ZERO.with_scores(0.0, 1.0) })
    }
}

impl Certify for DivergenceMixture {
    /// The modulus of [`Scores`] under the reverse KL divergence. An error under the others, whose
    /// inverse gradient has unbounded slope.
    fn modulus(&self, batch: &Batch<'_>) -> Result<Modulus, NoCertificate> {
        if *self == Self::new(Divergence::ReverseKl) { Scores.modulus(batch) } else { Err(NoCertificate::UnboundedSlope) }
    }
}

impl Certify for Copeland {
    /// Always an error.
    fn modulus(&self, _: &Batch<'_>) -> Result<Modulus, NoCertificate> {
        Err(NoCertificate::Jump)
    }
}

impl Certify for SwissElo {
    /// Always an error.
    fn modulus(&self, _: &Batch<'_>) -> Result<Modulus, NoCertificate> {
        Err(NoCertificate::Tournament)
    }
}

impl<A: Certify> Certify for Fluent<A> {
    /// The inner modulus times 1 − α, at the dispersions that the inner operator sees. An error if
    /// scores are standardised.
    fn modulus(&self, batch: &Batch<'_>) -> Result<Modulus, NoCertificate> {
        if self.entry.standardizes() {
            return Err(NoCertificate::Standardized);
        }
        let (mut d, mut s) = (vec![0.0; batch.len()], vec![0.0; batch.len()]);
        self.entry.apply(batch, &mut d, &mut s);
        let alpha = if batch.fluency().is_some() { self.entry.alpha() } else { 0.0 };
        // At α = 1 the scores have no effect, and the dispersions are zero.
        if alpha == 1.0 {
            return Ok(Modulus::ZERO);
        }
        let mixture = Batch::trusted(&d, &s);
        let mixture = batch.blades().map_or(mixture, |blades| mixture.with_blades(blades));
        Ok(self.inner.modulus(&mixture)?.with_scores(1.0 - alpha, 0.0))
    }
}

/// A bound on how far a change of the scores of at most D can move a softmax selection, and the
/// largest D for a given tolerance (`thm:robust`, published and sharpened).
///
/// TV is the total variation between the selection probabilities softmax(R/T) before and after.
///
/// ```text
/// published   TV ≤ 2(N−1)·L_g·D / (T·s_min)
/// uniform     TV ≤ tanh( N·L_g·D / (2T·s_min) )
/// bound       TV ≤ tanh( L_g·D·C(σ) / (2T) )            the least of the three
/// radius      D_τ = 2T·atanh(τ) / (L_g·C(σ))
/// ```
///
/// The bounds hold for the selector `Softmax` at temperature T on the operator's unmodified ratings
/// only. They do not hold for the champion rule, whose logits are z-scored. (Without its
/// standardisation, the champion is a softmax of w_tour·R + w_blade·μ and a constant: see
/// [`Modulus::with_scores`].) The changed scores are those given to the operator, after
/// normalisation.
///
/// ```
/// use sk_aggregate::{NoCertificate, RoundRobin, StabilityCertificate, SwissElo};
/// use sk_core::Batch;
///
/// let batch = Batch::new(&[0.3, 0.1, -0.2], &[1.0, 0.5, 0.8])?;
/// let certificate = StabilityCertificate::new(&RoundRobin::thurstone(), &batch, 0.5)?;
/// let radius = certificate.radius(0.1)?;
/// assert!((radius - 0.083).abs() < 1e-3 && (certificate.bound(radius) - 0.1).abs() < 1e-12);
///
/// let refused = StabilityCertificate::new(&SwissElo::sound(5, 0.5)?, &batch, 0.5);
/// assert_eq!(refused, Err(NoCertificate::Tournament));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StabilityCertificate {
    modulus: Modulus,
    temperature: f64,
}

impl StabilityCertificate {
    /// Creates the certificate of `aggregator` on `batch`, under a softmax at temperature T in the
    /// unit of the ratings.
    ///
    /// # Errors
    /// If T is not positive and finite, or if the operator has no finite modulus there.
    pub fn new(aggregator: &dyn Certify, batch: &Batch<'_>, temperature: f64) -> Result<Self, NoCertificate> {
        Ok(Self::of(aggregator.modulus(batch)?, temperature)?)
    }

    /// Creates the certificate of softmax(x/T) for inputs x of known modulus, which need not be
    /// ratings.
    ///
    /// # Errors
    /// If T is not positive and finite.
    pub fn of(modulus: Modulus, temperature: f64) -> Result<Self, ParameterError> {
        ParameterError::positive("temperature", temperature)?;
        Ok(Self { modulus, temperature })
    }

    /// Returns T.
    pub fn temperature(&self) -> f64 {
        self.temperature
    }

    /// Returns the paper's bound on TV for ‖δ‖_∞ ≤ `delta`. It is vacuous above 1.
    pub fn published(&self, delta: f64) -> f64 {
        self.moved(self.modulus.published, delta)
    }

    /// Returns the bound on TV from N and s_min only, for ‖δ‖_∞ ≤ `delta`.
    pub fn uniform(&self, delta: f64) -> f64 {
        (0.25 * self.moved(self.modulus.uniform, delta)).tanh()
    }

    /// Returns the bound on TV from all dispersions of the batch, for ‖δ‖_∞ ≤ `delta`: the sharpest
    /// of the three.
    pub fn bound(&self, delta: f64) -> f64 {
        (0.25 * self.moved(self.modulus.sharpened, delta)).tanh()
    }

    /// Returns the largest change of logits with this slope, slope·|δ|/T; zero for a zero slope, even
    /// if `delta` is infinite. A result that underflows is rounded up.
    fn moved(&self, slope: f64, delta: f64) -> f64 {
        let (delta, temperature) = (delta.abs(), self.temperature);
        if slope == 0.0 || delta == 0.0 {
            return 0.0;
        }
        // The first order whose intermediate result is in range. If no quotient is, the product is,
        // unless the result underflows.
        let moved = if (delta / temperature).is_normal() {
            slope * (delta / temperature)
        } else if (slope / temperature).is_normal() {
            slope / temperature * delta
        } else {
            slope * delta / temperature
        };
        if moved < f64::MIN_POSITIVE { f64::MIN_POSITIVE } else { moved }
    }

    /// Returns D_τ: if every score changes by at most this, TV is at most `tolerance`. Infinite for
    /// a single candidate.
    ///
    /// # Errors
    /// If the tolerance is not in [0, 1).
    pub fn radius(&self, tolerance: f64) -> Result<f64, ParameterError> {
        self.allowed(tolerance, 4.0 * tolerance.atanh(), self.modulus.sharpened)
    }

    /// Returns the radius from N and s_min only, 2T·s_min·atanh(τ)/(N·L_g).
    ///
    /// # Errors
    /// If the tolerance is not in [0, 1).
    pub fn uniform_radius(&self, tolerance: f64) -> Result<f64, ParameterError> {
        self.allowed(tolerance, 4.0 * tolerance.atanh(), self.modulus.uniform)
    }

    /// Returns the radius from the published bound, τ·T·s_min/(2(N − 1)·L_g).
    ///
    /// # Errors
    /// If the tolerance is not in [0, 1).
    pub fn published_radius(&self, tolerance: f64) -> Result<f64, ParameterError> {
        self.allowed(tolerance, tolerance, self.modulus.published)
    }

    /// Returns the change that moves logits by `logits`, T·logits/slope. A zero slope allows any
    /// change. A result that overflows or underflows is rounded down.
    fn allowed(&self, tolerance: f64, logits: f64, slope: f64) -> Result<f64, ParameterError> {
        /// 2¹⁰⁰, by which subnormal numbers are scaled exactly.
        const SCALE: f64 = (1_u128 << 100) as f64;
        ParameterError::check((0.0..1.0).contains(&tolerance), "tolerance", tolerance, "in [0, 1)")?;
        if slope == 0.0 {
            return Ok(f64::INFINITY);
        }
        let temperature = self.temperature;
        let product = temperature * logits;
        let radius = if product.is_normal() {
            product / slope
        } else if product.is_infinite() {
            temperature / slope * logits
        } else {
            SCALE * temperature.min(logits) / slope * temperature.max(logits) / SCALE
        };
        Ok(if radius.is_subnormal() { 0.0 } else { radius.clamp(0.0, f64::MAX) })
    }
}
