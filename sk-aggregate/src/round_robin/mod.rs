mod blocks;
mod pairs;

use sk_core::{Aggregator, Batch, Real};

use self::blocks::Comparison;
use self::pairs::Players;
use crate::{Asinh, Link, Logistic, PNorm, Probit, Spread};

/// Every candidate against every other: R_i = Σ_{j≠i} g((μ_i − μ_j) / s(σ_i, σ_j)) (`eq:rep`,
/// `thm:rep`).
///
/// Ratings sum to zero. A pair with s = 0 takes the limit, u = ±∞ by the sign of the difference and
/// 0 for an exact tie. For a bounded link the pair then counts ±g(∞), so that a batch without
/// dispersion is rated g(∞) times its Copeland score. |u| is limited to MAX/4N, which no bounded or
/// slowly growing link distinguishes from ∞, so that ratings are finite for any finite scores and
/// any link.
///
/// Costs N(N−1)/2 evaluations of g and s, with the widest vectors of the processor, and with all
/// cores from 512 candidates on with the feature `parallel`. The ratings are bit-identical for any
/// number of threads and equal for equal candidates. They are those of [`Link::g`] and
/// [`Spread::s`], pair by pair, up to a few rounding errors per pair. No allocation.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RoundRobin<L, S> {
    /// g.
    pub link: L,
    /// s.
    pub spread: S,
}

impl<L, S> RoundRobin<L, S> {
    /// Creates the member of the family with link g and spread s.
    pub fn new(link: L, spread: S) -> Self {
        Self { link, spread }
    }
}

impl RoundRobin<Probit, PNorm> {
    /// Returns (Φ − ½, p = 2), Thurstone's Case V: the win probability for independent normal
    /// errors.
    pub fn thurstone() -> Self {
        Self::new(Probit, PNorm::EUCLIDEAN)
    }

    /// Returns (Φ − ½, p = ∞): the less certain of two candidates alone sets the scale.
    pub fn weakest_link() -> Self {
        Self::new(Probit, PNorm::MAXIMUM)
    }
}

impl RoundRobin<Logistic, PNorm> {
    /// Returns (logistic − ½, p = 1), Bradley–Terry with additive dispersion.
    pub fn bradley_terry() -> Self {
        Self::new(Logistic, PNorm::SUM)
    }
}

impl RoundRobin<Asinh, PNorm> {
    /// Returns (asinh, p = 2): a member for which a less certain score always moves its rating less
    /// (A5).
    pub fn asinh() -> Self {
        Self::new(Asinh, PNorm::EUCLIDEAN)
    }
}

impl<F: Real, L: Link<F>, S: Spread<F>> Aggregator<F> for RoundRobin<L, S> {
    fn rate(&self, batch: &Batch<'_, F>, ratings: &mut [F]) {
        let players = Players { mu: batch.mu(), sigma: batch.sigma() };
        assert_eq!(ratings.len(), players.len(), "one rating per candidate");
        ratings.fill(F::zero());
        // A sum of N identity links stays finite.
        let limit = F::max_value() / F::of(4.0 * players.len() as f64);
        Comparison { link: &self.link, spread: &self.spread, limit }.all(players, ratings);
    }
}
