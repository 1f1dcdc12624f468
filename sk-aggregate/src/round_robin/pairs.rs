use sk_core::Real;

use crate::{Link, Spread};

/// Pairs that are evaluated together: enough to keep vectors busy, few enough to stay in the first cache.
pub(super) const PAIRS: usize = 128;

/// Candidates by columns: μ and σ.
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

    /// (μ, σ) of one of them.
    pub(super) fn at(&self, i: usize) -> (F, F) {
        (self.mu[i], self.sigma[i])
    }
}

/// Up to `CAPACITY` pairs, each of one candidate and a rival, and g of each.
pub(super) struct Pairs<F, const CAPACITY: usize> {
    difference: [F; CAPACITY],
    rival_sigma: [F; CAPACITY],
    /// σ of the candidate, then s, then u, then g.
    value: [F; CAPACITY],
    len: usize,
}

impl<F: Real, const CAPACITY: usize> Pairs<F, CAPACITY> {
    pub(super) fn new() -> Self {
        let zeros = [F::zero(); CAPACITY];
        Self { difference: zeros, rival_sigma: zeros, value: zeros, len: 0 }
    }

    /// The pairs of one candidate with each of `rivals`.
    pub(super) fn row(&mut self, (mu, sigma): (F, F), rivals: Players<'_, F>) {
        self.len = rivals.len();
        self.difference[..self.len].iter_mut().zip(rivals.mu).for_each(|(difference, &rival)| *difference = mu - rival);
        self.value[..self.len].fill(sigma);
        self.rival_sigma[..self.len].copy_from_slice(rivals.sigma);
    }

    /// The pairs of all of `players`, each with those after it.
    pub(super) fn triangle(&mut self, players: Players<'_, F>) {
        self.len = 0;
        for i in 0..players.len() {
            // One at a time: these rows are too short for vectors.
            for j in i + 1..players.len() {
                self.difference[self.len] = players.mu[i] - players.mu[j];
                self.value[self.len] = players.sigma[i];
                self.rival_sigma[self.len] = players.sigma[j];
                self.len += 1;
            }
        }
    }

    /// g(Δ/s) of each pair in the order in which they were put in, with |Δ/s| at most `limit`. `pairs` are they once more, as (μ, σ) of
    /// the candidate and of the rival, for those that take care.
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
            // Also false where either is not a number.
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

/// Δ/s within ±`limit`, with ±`limit` for s = 0 and 0 for equal scores.
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

/// Ties, vanishing spreads, and differences or spreads that overflow: s is homogeneous, so halving everything changes nothing else.
#[cold]
fn at_the_edge<F: Real>(spread: &impl Spread<F>, (mu_i, sigma_i): (F, F), (mu_j, sigma_j): (F, F)) -> F {
    if mu_i == mu_j {
        return F::zero();
    }
    let half = F::of(0.5);
    (half * mu_i - half * mu_j) / spread.s(half * sigma_i, half * sigma_j)
}
