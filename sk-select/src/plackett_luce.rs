use rand::{Rng, RngExt};
use sk_core::{Batch, ParameterError, Real, Selector};

use crate::Softmax;
use crate::softmax::quotient;

/// A Plackett–Luce model of rankings: the first place is sampled with P(i) ∝ exp(R_i / T), the
/// second from the remaining candidates, and so on.
///
/// ```text
/// P(π) = Π_k exp(R_π(k) / T) / Σ_{l ≥ k} exp(R_π(l) / T)
/// ```
///
/// As a selection rule it is the [`Softmax`] of the first place. [`draw`](Self::draw) samples whole
/// rankings, for example the order in which to show alternatives, or synthetic preferences for an
/// experiment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlackettLuce {
    first: Softmax,
}

impl PlackettLuce {
    /// Creates the model at temperature T, in the unit of the ratings.
    ///
    /// # Errors
    /// If T is not positive and finite.
    pub fn new(temperature: f64) -> Result<Self, ParameterError> {
        let temperature = ParameterError::positive("temperature", temperature)?;
        Ok(Self { first: Softmax::new(temperature)? })
    }

    /// Returns T.
    pub fn temperature(&self) -> f64 {
        self.first.temperature()
    }

    /// Samples a ranking: the indices of the candidates, first place first.
    ///
    /// Uses the Gumbel trick: candidates are ordered by R_i + T·G_i with independent standard
    /// Gumbel variables, from one uniform 53-bit number per candidate in the order of the batch.
    /// O(N log N); allocates.
    ///
    /// ```
    /// use rand::SeedableRng;
    /// use sk_select::PlackettLuce;
    ///
    /// let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
    /// // A thousand temperatures apart, the order is certain.
    /// assert_eq!(PlackettLuce::new(0.001).unwrap().draw(&[1.0, 3.0, 2.0], &mut rng), [1, 2, 0]);
    /// ```
    pub fn draw<F: Real>(&self, ratings: &[F], rng: &mut dyn Rng) -> Vec<usize> {
        let mut keyed: Vec<(f64, f64, usize)> = ratings
            .iter()
            .enumerate()
            .map(|(i, rating)| {
                let gumbel = -(-(1.0 - rng.random::<f64>()).ln()).ln();
                (rating.widen() + self.temperature() * gumbel, gumbel, i)
            })
            .collect();
        // If T·G_i is lost in the rounding of the rating, equal ratings are still ordered at
        // random.
        keyed.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
        keyed.into_iter().map(|(_, _, i)| i).collect()
    }

    /// Returns log P(π) of a ranking, in nats, at most 0. O(N).
    ///
    /// # Panics
    /// If `ranking` is not a permutation of the indices of `ratings`.
    pub fn log_probability<F: Real>(&self, ratings: &[F], ranking: &[usize]) -> f64 {
        let mut seen = vec![false; ratings.len()];
        let permutation =
            ranking.len() == ratings.len() && ranking.iter().all(|&i| i < seen.len() && !std::mem::replace(&mut seen[i], true));
        assert!(permutation, "a ranking holds every candidate once");
        // From the last place to the first. `sum` is log Σ_{l ≥ k} exp((R_π(l) − peak) / T),
        // which is between 0 and log N for any ratings.
        let (mut peak, mut sum, mut log_probability) = (f64::NEG_INFINITY, 0.0f64, 0.0);
        for &i in ranking.iter().rev() {
            let rating = ratings[i].widen();
            let above = rating > peak;
            let gap = quotient(rating - peak, 0.5 * rating - 0.5 * peak, self.temperature()).abs();
            sum = if above { (sum - gap).exp().ln_1p() } else { sum + (-gap - sum).exp().ln_1p() };
            // −log of the probability of place k.
            log_probability -= if above { sum } else { sum + gap };
            peak = peak.max(rating);
        }
        log_probability
    }
}

impl<F: Real> Selector<F> for PlackettLuce {
    fn distribution(&self, ratings: &[F], batch: &Batch<'_, F>, probabilities: &mut [F]) {
        self.first.distribution(ratings, batch, probabilities);
    }
}
