mod bracket;
mod pairing;
mod seeding;

use sk_core::{Aggregator, Batch, OperatingPoint, ParameterError, Real, Scratch};

pub use bracket::{Bracket, Match, Round};
pub use seeding::Seeding;

use crate::Entry;
use crate::link::normal_cdf;
use pairing::Pairing;

/// R_i^(0): the initial rating of every candidate.
pub const START: f64 = 1500.0;

/// ε under the root of s₂: two certain candidates are compared on a scale of 1e-4 instead of 0.
const MATCH_EPSILON: f64 = 1e-8;

/// A Swiss-system Elo tournament with Thurstone win probabilities: the reference instantiation of
/// 𝓐.
///
/// ```text
/// Δ_ij = d_i − d_j                    s₂ = √(s_i² + s_j² + 1e-8)
/// S_ij = Φ(Δ_ij / s₂)                 E_ij = 1 / (1 + 10^((R_j − R_i)/400))
/// R_i ← R_i + K_r (S_ij − E_ij)       K_r = K_max (K_min / K_max)^(r/(R−1)),  r = 0 … R−1
/// ```
///
/// with the strength d_i and the dispersion s_i of a candidate from [`Entry`]. In each round the
/// candidates are ordered by rating, ties by [`Seeding`]. The first unpaired candidate meets the
/// next unpaired one that it has not met, or the next unpaired one if it has met all. If N is odd,
/// the candidate left over keeps its rating. A single round is played at K_max.
///
/// It is not a member of the pairwise family. Only R·⌊N/2⌋ of the N(N−1)/2 pairs are played, and
/// which ones depends on earlier results, so monotonicity (A4) and decomposability (A6) fail. For
/// the exact member use [`Fluent`](crate::Fluent) over a [`RoundRobin`](crate::RoundRobin).
///
/// O(R·N·(w² + log N)) with w = min(R, N − 1); no allocation once the thread has processed a batch
/// of this size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SwissElo {
    rounds: usize,
    k_max: f64,
    k_min: f64,
    entry: Entry,
    seeding: Seeding,
}

impl SwissElo {
    /// The most rounds of a tournament. The published ones have at most 7.
    pub const MAX_ROUNDS: usize = 1 << 16;

    /// Creates the published convention: [`Entry::paper`], seeded by score and then by input order,
    /// K from 40 to 10.
    ///
    /// # Errors
    /// If there is no round or more than [`MAX_ROUNDS`](Self::MAX_ROUNDS), or if α is not in [0,
    /// 1].
    pub fn paper(rounds: usize, alpha: f64) -> Result<Self, ParameterError> {
        Self::new(rounds, Entry::paper(alpha)?, Seeding::Score)
    }

    /// Creates the published equations without dependence on the input order: [`Entry::sound`],
    /// [`Seeding::Canonical`], K from 40 to 10.
    ///
    /// # Errors
    /// If there is no round or more than [`MAX_ROUNDS`](Self::MAX_ROUNDS), or if α is not in [0,
    /// 1].
    pub fn sound(rounds: usize, alpha: f64) -> Result<Self, ParameterError> {
        Self::new(rounds, Entry::sound(alpha)?, Seeding::Canonical)
    }

    /// Creates a tournament of `rounds` rounds with K from 40 to 10.
    ///
    /// # Errors
    /// If there is no round or more than [`MAX_ROUNDS`](Self::MAX_ROUNDS).
    pub fn new(rounds: usize, entry: Entry, seeding: Seeding) -> Result<Self, ParameterError> {
        let valid = (1..=Self::MAX_ROUNDS).contains(&rounds);
        ParameterError::check(valid, "rounds", rounds as f64, "between 1 and 65536")?;
        let OperatingPoint { k_max, k_min, .. } = OperatingPoint::HHH;
        Ok(Self { rounds, k_max, k_min, entry, seeding })
    }

    /// Sets the schedule K_r, from `k_max` in the first round to `k_min` in the last.
    ///
    /// # Errors
    /// If K is not in [10⁻⁶, 10⁶], or increases.
    pub fn with_schedule(self, k_max: f64, k_min: f64) -> Result<Self, ParameterError> {
        for (name, k) in [("k_max", k_max), ("k_min", k_min)] {
            ParameterError::check((1e-6..=1e6).contains(&k), name, k, "in [1e-6, 1e6]")?;
        }
        ParameterError::check(k_min <= k_max, "k_min", k_min, "positive and not above k_max")?;
        Ok(Self { k_max, k_min, ..self })
    }

    /// Returns K_r of round `r`, from 0. It goes on falling for an `r` after the last round.
    pub fn k(&self, r: usize) -> f64 {
        if self.rounds == 1 {
            return self.k_max;
        }
        self.k_max * (self.k_min / self.k_max).powf(r as f64 / (self.rounds - 1) as f64)
    }

    /// Plays the tournament and returns its record: the matches of each round, with S_ij and E_ij.
    ///
    /// The ratings are those of [`rate`](Aggregator::rate).
    pub fn bracket<F: Real>(&self, batch: &Batch<'_, F>) -> Bracket<F> {
        let mut ratings = vec![F::zero(); batch.len()];
        let mut rounds = Vec::with_capacity(self.rounds);
        self.play(batch, &mut ratings, Some(&mut rounds));
        Bracket { rounds, ratings }
    }

    fn play<F: Real>(&self, batch: &Batch<'_, F>, ratings: &mut [F], mut record: Option<&mut Vec<Round<F>>>) {
        let n = batch.len();
        assert_eq!(ratings.len(), n, "one rating per candidate");
        // From here on players are identified by their seed, so that nothing below depends on the
        // input order.
        let mut places = Scratch::filled(0, n + Pairing::size(n, self.rounds));
        let (order, places) = places.split_at_mut(n);
        self.seeding.order(batch, order);
        let mut numbers = Scratch::filled(F::zero(), 3 * n);
        let (entered, rating) = numbers.split_at_mut(2 * n);
        let (d, s) = entered.split_at_mut(n);
        self.entry.apply(&batch.without_blades().pick(order).batch(), d, s);
        rating.fill(F::of(START));
        let mut pairing = Pairing::new(n, self.rounds, places);
        for r in 0..self.rounds {
            let k = F::of(self.k(r));
            let (pairs, bye) = pairing.next(rating);
            let mut matches = Vec::new();
            for &[i, j] in pairs {
                let score = win_probability(d[i] - d[j], s[i], s[j]);
                let expected = expected_score(rating[i] - rating[j]);
                // Nobody plays twice in a round, so these are the ratings at its start.
                let gain = k * (score - expected);
                rating[i] = rating[i] + gain;
                rating[j] = rating[j] - gain;
                if record.is_some() {
                    matches.push(Match { i: order[i], j: order[j], score, expected });
                }
            }
            if let Some(rounds) = &mut record {
                let mut ratings = vec![F::zero(); n];
                order.iter().zip(&*rating).for_each(|(&candidate, &rating)| ratings[candidate] = rating);
                rounds.push(Round { k, matches, bye: bye.map(|p| order[p]), ratings });
            }
        }
        self.seeding.share(batch, order, rating);
        order.iter().zip(&*rating).for_each(|(&candidate, &rating)| ratings[candidate] = rating);
    }
}

impl<F: Real> Aggregator<F> for SwissElo {
    fn rate(&self, batch: &Batch<'_, F>, ratings: &mut [F]) {
        self.play(batch, ratings, None);
    }
}

/// Returns S_ij = Φ(Δ / √(s_i² + s_j² + 1e-8)).
fn win_probability<F: Real>(delta: F, s_i: F, s_j: F) -> F {
    let u = delta.widen() / (s_i.widen().powi(2) + s_j.widen().powi(2) + MATCH_EPSILON).sqrt();
    F::of(if u.is_nan() { 0.5 } else { normal_cdf(u) })
}

/// Returns E_ij = 1 / (1 + 10^(−(R_i − R_j)/400)).
fn expected_score<F: Real>(difference: F) -> F {
    let slope = std::f64::consts::LN_10 / 400.0;
    F::of(1.0 / (1.0 + (-slope * difference.widen()).exp()))
}
