use sk_core::Real;

use crate::spread::REDUCTION;
use crate::{Link, Spread};

/// The number of pairs that are evaluated together: enough to keep vectors busy, few enough for the
/// L1 cache.
pub(super) const PAIRS: usize = 128;

/// Candidates as columns: μ and σ.
#[derive(Clone, Copy)]
pub(super) struct Players<'a, F> {
    pub(super) mu: &'a [F],
    pub(super) sigma: &'a [F],
}

impl<F: Copy> Players<'_, F> {
    pub(super) fn len(&self) -> usize {
        self.mu.len()
    }

    pub(super) fn slice(&self, range: std::ops::Range<usize>) -> Self {
        Self { mu: &self.mu[range.clone()], sigma: &self.sigma[range] }
    }

    /// Returns (μ, σ) of a candidate.
    pub(super) fn at(&self, i: usize) -> (F, F) {
        (self.mu[i], self.sigma[i])
    }
}

/// A buffer of up to `CAPACITY` pairs of a candidate and a rival, with g of each.
pub(super) struct Pairs<F, const CAPACITY: usize> {
    difference: [F; CAPACITY],
    rival_sigma: [F; CAPACITY],
    /// In turn σ of the candidate, s, u and g.
    value: [F; CAPACITY],
    len: usize,
}

impl<F: Real, const CAPACITY: usize> Pairs<F, CAPACITY> {
    pub(super) fn new() -> Self {
        let zeros = [F::zero(); CAPACITY];
        Self { difference: zeros, rival_sigma: zeros, value: zeros, len: 0 }
    }

    /// Adds the pairs of one candidate with each of `rivals`.
    pub(super) fn row(&mut self, (mu, sigma): (F, F), rivals: Players<'_, F>) {
        self.len = rivals.len();
        self.difference[..self.len].iter_mut().zip(rivals.mu).for_each(|(difference, &rival)| *difference = mu - rival);
        self.value[..self.len].fill(sigma);
        self.rival_sigma[..self.len].copy_from_slice(rivals.sigma);
    }

    /// Adds all pairs of `players`, each with those after it.
    pub(super) fn triangle(&mut self, players: Players<'_, F>) {
        self.len = 0;
        for i in 0..players.len() {
            // Added one by one, since these rows are too short for vectors.
            for j in i + 1..players.len() {
                self.difference[self.len] = players.mu[i] - players.mu[j];
                self.value[self.len] = players.sigma[i];
                self.rival_sigma[self.len] = players.sigma[j];
                self.len += 1;
            }
        }
    }

    /// Computes g(Δ/s) of each pair in the order of insertion, with |Δ/s| at most `limit`. `pairs`
    /// yields the same pairs again, as (μ, σ) of candidate and rival, for those that need special
    /// treatment.
    pub(super) fn evaluate<I: Iterator<Item = [(F, F); 2]>>(
        &mut self,
        link: &impl Link<F>,
        spread: &impl Spread<F>,
        limit: F,
        pairs: impl FnOnce() -> I,
    ) -> &[F] {
        let value = &mut self.value[..self.len];
        spread.apply(value, &self.rival_sigma[..self.len]);
        let mut regular = true;
        for (value, &difference) in value.iter_mut().zip(&self.difference) {
            let s = *value;
            *value = difference / s;
            // Also false if a value is NaN.
            regular &= (value.abs() <= limit) & (s <= F::max_value());
        }
        if !regular {
            for (value, [own, rival]) in value.iter_mut().zip(pairs()) {
                *value = standardized_difference(spread, own, rival, limit);
            }
        }
        link.apply(value);
        value
    }
}

/// Returns Δ/s limited to ±`limit`: ±`limit` for s = 0, and 0 for equal scores.
#[inline]
pub(super) fn standardized_difference<F: Real>(
    spread: &impl Spread<F>,
    (mu_i, sigma_i): (F, F),
    (mu_j, sigma_j): (F, F),
    limit: F,
) -> F {
    let s = spread.s(sigma_i, sigma_j);
    let u = (mu_i - mu_j) / s;
    let u = if u.is_finite() && s.is_finite() { u } else { at_the_edge(spread, (mu_i, sigma_i), (mu_j, sigma_j)) };
    u.max(-limit).min(limit)
}

/// Handles ties, vanishing spreads, and overflow of differences or spreads.
#[cold]
fn at_the_edge<F: Real>(spread: &impl Spread<F>, (mu_i, sigma_i): (F, F), (mu_j, sigma_j): (F, F)) -> F {
    if mu_i == mu_j {
        return F::zero();
    }
    let s = spread.s(sigma_i, sigma_j);
    if s == F::zero() {
        // Scores are compared directly, since the smallest have no representable half.
        return if mu_i > mu_j { F::infinity() } else { F::neg_infinity() };
    }
    if s.is_finite() {
        // The difference overflowed, or u does.
        let half = F::of(0.5);
        return (half * mu_i - half * mu_j) / s / half;
    }
    let small = F::of(REDUCTION);
    (small * mu_i - small * mu_j) / spread.s(small * sigma_i, small * sigma_j)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PNorm;

    fn u<F: Real>(spread: &impl Spread<F>, mu: [f64; 2], sigma: [f64; 2]) -> F {
        let player = |k: usize| (F::of(mu[k]), F::of(sigma[k]));
        standardized_difference(spread, player(0), player(1), F::max_value())
    }

    /// The higher of two scores wins however small they are, and even without spread.
    #[test]
    fn the_smallest_scores_have_the_right_sign() {
        for p in [1.0, 2.0, 3.0, f64::INFINITY] {
            let spread = PNorm::new(p).unwrap();
            for (high, low) in [(5e-324, 0.0), (0.0, -5e-324), (1e-323, 5e-324), (f64::MAX, f64::MIN)] {
                assert_eq!(u::<f64>(&spread, [high, low], [0.0; 2]), f64::MAX);
                assert_eq!(u::<f64>(&spread, [low, high], [0.0; 2]), f64::MIN);
            }
            assert_eq!(u::<f32>(&spread, [1e-45, 0.0], [0.0; 2]), f32::MAX);
            assert_eq!(u::<f32>(&spread, [0.0, 1e-45], [0.0; 2]), f32::MIN);
        }
    }

    /// ±MAX on a spread of 2: u overflows. On MAX/4: 8. MAX/4 and its negative on a spread of twice
    /// MAX, which does: ¼.
    #[test]
    fn differences_and_spreads_may_overflow() {
        let (max, quarter) = (f64::MAX, f64::MAX / 4.0);
        assert_eq!(u::<f64>(&PNorm::SUM, [max, -max], [1.0, 1.0]), max);
        assert_eq!(u::<f64>(&PNorm::SUM, [-max, max], [quarter, 0.0]), -8.0);
        assert_eq!(u::<f64>(&PNorm::SUM, [quarter, -quarter], [max, max]), 0.25);
    }

    /// A spread that overflows when halved as well: 1e308/(3 · 2e308) = 1/6.
    #[test]
    fn a_spread_of_others_may_overflow_by_far() {
        struct Triple;
        impl Spread for Triple {
            fn s(&self, a: f64, b: f64) -> f64 {
                3.0 * (a + b)
            }
        }
        assert!((u::<f64>(&Triple, [1e308, 0.0], [1e308; 2]) - 1.0 / 6.0).abs() < 1e-15);
        assert!((u::<f64>(&Triple, [1e308, -1e308], [1e308; 2]) - 1.0 / 3.0).abs() < 1e-15);
    }
}
