//! Random draws and means that the studies share.

use rand::{Rng, RngExt};
use sk_core::{Composite, Deviation, Moments, Normalizer, ScoreTable, Simplex};

use crate::stats;

/// Draws from the standard normal distribution (Box–Muller).
pub(super) fn normal(rng: &mut dyn Rng) -> f64 {
    // 1 − u is never 0.
    let (radius, angle): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// Returns the index of the largest value, the first one on ties.
///
/// # Panics
/// If `values` is empty.
pub(super) fn largest(values: &[f64]) -> usize {
    let all = (0..values.len()).reduce(|best, i| if values[i] > values[best] { i } else { best });
    all.expect("a batch is not empty")
}

/// Returns std(μ^(k)), the sample standard deviation of a blade's scores.
pub(super) fn spread(table: &ScoreTable, k: usize) -> f64 {
    Moments::of(table.mu(k), Deviation::Sample).std()
}

/// Combines the scores of a table.
pub(super) fn composite(normalizer: &dyn Normalizer, table: &ScoreTable, weights: &Simplex) -> Composite {
    let mut out = Composite::default();
    normalizer.combine(table, weights, &mut out);
    out
}

/// A mean and its standard error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// The standard error, from the sample standard deviation.
    pub error: f64,
}

impl Mean {
    /// Computes the mean of independent values.
    ///
    /// # Panics
    /// If there are fewer than two values.
    pub fn of(values: &[f64]) -> Self {
        assert!(values.len() > 1, "a standard error needs two values");
        let count = values.len() as f64;
        let mean = stats::mean(values);
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        Self { mean, error: (variance / count).sqrt() }
    }

    /// Returns the distance to `value` in standard errors; infinity if the standard error is zero
    /// and the mean differs.
    pub fn distance(&self, value: f64) -> f64 {
        let difference = (self.mean - value).abs();
        if difference == 0.0 { 0.0 } else { difference / self.error }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn means_by_hand() {
        let mean = Mean::of(&[1.0, 2.0, 3.0, 6.0]);
        // Squares about 3: 4 + 1 + 0 + 9 = 14; 14/3/4.
        assert_eq!((mean.mean, mean.error), (3.0, (14.0_f64 / 12.0).sqrt()));
        assert_eq!((Mean { mean: 1.0, error: 0.25 }.distance(0.0), Mean { mean: 1.0, error: 0.0 }.distance(1.0)), (4.0, 0.0));
        assert_eq!(Mean { mean: 1.0, error: 0.0 }.distance(0.0), f64::INFINITY);
        assert_eq!(largest(&[1.0, 3.0, 3.0]), 1);
    }

    #[test]
    fn normals_are_normal() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let draws: Vec<f64> = (0..40_000).map(|_| normal(&mut rng)).collect();
        assert!(Mean::of(&draws).distance(0.0) < 4.0);
        let squares: Vec<f64> = draws.iter().map(|x| x * x).collect();
        assert!(Mean::of(&squares).distance(1.0) < 4.0);
        let within = draws.iter().filter(|x| x.abs() < 1.0).count() as f64 / draws.len() as f64;
        // P(|x| < 1) = 0.6827, with a standard error of 0.0023.
        assert!((within - 0.6827).abs() < 0.01, "{within}");
    }
}
