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

impl<F> Players<'_, F> {
    pub(super) fn len(&self) -> usize {
        self.mu.len()
    }

    pub(super) fn slice(&self, range: std::ops::Range<usize>) -> Self {
        Self { mu: &self.mu[range.clone()], sigma: &self.sigma[range] }
    }
}

/// Up to [`PAIRS`] pairs, each of one candidate and a rival, and g of each.
pub(super) struct Pairs<F> {
    mu: [F; PAIRS],
    sigma: [F; PAIRS],
    rival_mu: [F; PAIRS],
    rival_sigma: [F; PAIRS],
    /// s, then u, then g.
    value: [F; PAIRS],
    len: usize,
}

impl<F: Real> Pairs<F> {
    pub(super) fn new() -> Self {
        let zeros = [F::zero(); PAIRS];
        Self { mu: zeros, sigma: zeros, rival_mu: zeros, rival_sigma: zeros, value: zeros, len: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds one candidate's pairs with each of `rivals`.
    pub(super) fn push(&mut self, mu: F, sigma: F, rivals: Players<'_, F>) {
        let range = self.len..self.len + rivals.len();
        self.mu[range.clone()].fill(mu);
        self.sigma[range.clone()].fill(sigma);
        self.rival_mu[range.clone()].copy_from_slice(rivals.mu);
        self.rival_sigma[range.clone()].copy_from_slice(rivals.sigma);
        self.len = range.end;
    }

    /// g(Δ/s) of each pair in the order in which they were added, with |Δ/s| at most `limit`.
    pub(super) fn evaluate(&mut self, link: &impl Link<F>, spread: &impl Spread<F>, limit: F) -> &[F] {
        let (mu, sigma) = (&self.mu[..self.len], &self.sigma[..self.len]);
        let (rival_mu, rival_sigma) = (&self.rival_mu[..self.len], &self.rival_sigma[..self.len]);
        let value = &mut self.value[..self.len];
        value.copy_from_slice(sigma);
        spread.apply(value, rival_sigma);
        let mut regular = true;
        for ((value, &own), &rival) in value.iter_mut().zip(mu).zip(rival_mu) {
            let s = *value;
            *value = (own - rival) / s;
            // Also false where either is not a number.
            regular &= (value.abs() <= limit) & (s <= F::max_value());
        }
        if !regular {
            for (k, value) in value.iter_mut().enumerate() {
                *value = standardized_difference(spread, (mu[k], sigma[k]), (rival_mu[k], rival_sigma[k]), limit);
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
