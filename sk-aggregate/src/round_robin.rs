use sk_core::{Aggregator, Batch, Real};

use crate::{Asinh, Link, Logistic, PNorm, Probit, Spread};

/// Every candidate against every other: R_i = Σ_{j≠i} g((μ_i − μ_j) / s(σ_i, σ_j)) (`eq:rep`, `thm:rep`).
///
/// Ratings sum to zero. A pair with s = 0 counts as its limit, u = ±∞ by the sign of the difference and 0 for an exact tie: for a bounded
/// link that is g(±∞), the Copeland score. |u| is kept at most MAX/4N, which no bounded or slowly growing link can tell from ∞, so that
/// ratings are finite for any finite scores and any link. N(N−1)/2 evaluations of g and s; no allocation.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RoundRobin<L, S> {
    /// g.
    pub link: L,
    /// s.
    pub spread: S,
}

impl<L, S> RoundRobin<L, S> {
    /// The member of the family with link g and spread s.
    pub fn new(link: L, spread: S) -> Self {
        Self { link, spread }
    }
}

impl RoundRobin<Probit, PNorm> {
    /// (Φ − ½, p = 2), Thurstone's Case V: the win probability when errors are normal and independent.
    pub fn thurstone() -> Self {
        Self::new(Probit, PNorm::EUCLIDEAN)
    }

    /// (Φ − ½, p = ∞): the less certain of two candidates alone sets the scale.
    pub fn weakest_link() -> Self {
        Self::new(Probit, PNorm::MAXIMUM)
    }
}

impl RoundRobin<Logistic, PNorm> {
    /// (logistic − ½, p = 1), Bradley–Terry with additive dispersion.
    pub fn bradley_terry() -> Self {
        Self::new(Logistic, PNorm::SUM)
    }
}

impl RoundRobin<Asinh, PNorm> {
    /// (asinh, p = 2): a member for which the less certain score always moves its rating less (A5).
    pub fn asinh() -> Self {
        Self::new(Asinh, PNorm::EUCLIDEAN)
    }
}

impl<F: Real, L: Link<F>, S: Spread<F>> Aggregator<F> for RoundRobin<L, S> {
    fn rate(&self, batch: &Batch<'_, F>, ratings: &mut [F]) {
        let (mu, sigma) = (batch.mu(), batch.sigma());
        assert_eq!(ratings.len(), mu.len(), "one rating per candidate");
        // So that a sum of N identity links stays finite.
        let limit = F::max_value() / F::of(4.0 * mu.len() as f64);
        ratings.fill(F::zero());
        for i in 0..mu.len() {
            let mut own = F::zero();
            for j in i + 1..mu.len() {
                let u = standardized_difference(&self.spread, (mu[i], sigma[i]), (mu[j], sigma[j]));
                let g = self.link.g(u.max(-limit).min(limit));
                own = own + g;
                ratings[j] = ratings[j] - g;
            }
            ratings[i] = ratings[i] + own;
        }
    }
}

/// Δ/s, with ±∞ for s = 0 and 0 for equal scores.
#[inline]
fn standardized_difference<F: Real>(spread: &impl Spread<F>, (mu_i, sigma_i): (F, F), (mu_j, sigma_j): (F, F)) -> F {
    let s = spread.s(sigma_i, sigma_j);
    let u = (mu_i - mu_j) / s;
    if u.is_finite() && s.is_finite() { u } else { at_the_edge(spread, (mu_i, sigma_i), (mu_j, sigma_j)) }
}

/// Ties, vanishing spreads, and differences or spreads that overflow: s is homogeneous, so halving everything changes nothing else.
#[cold]
fn at_the_edge<F: Real>(spread: &impl Spread<F>, (mu_i, sigma_i): (F, F), (mu_j, sigma_j): (F, F)) -> F {
    if mu_i == mu_j {
        return F::zero();
    }
    let half = F::of(0.5);
    (half * mu_i - half * mu_j) / spread.s(half * sigma_i, half * sigma_j)
}
