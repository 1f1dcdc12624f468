use std::sync::Arc;

use auto_impl::auto_impl;
use rand::{Rng, RngExt};

use crate::{Batch, Real};

/// 𝓢: maps ratings to a distribution over candidates.
#[auto_impl(&, Box, Arc)]
pub trait Selector<F: Real = f64>: Send + Sync {
    /// Writes the probability of candidate i to `probabilities[i]`, overwriting its contents.
    /// Probabilities are not negative and sum to one up to rounding. A step fails if they do not.
    ///
    /// `ratings` and `probabilities` have N entries. The rated batch is passed too, since a rule
    /// may use more than the ratings, as the champion rule does.
    ///
    /// # Panics
    /// May panic if the slices differ in length.
    fn distribution(&self, ratings: &[F], batch: &Batch<'_, F>, probabilities: &mut [F]);

    /// Returns the names of the seated blades whose scores [`distribution`](Self::distribution)
    /// uses.
    ///
    /// A step reads them even at weight zero, and passes their scores in [`Batch::blades`]. It
    /// fails if one is not seated. A selector that wraps another one returns the inner one's blades
    /// too.
    fn blades(&self) -> Vec<Arc<str>> {
        Vec::new()
    }
}

/// Samples an index from a distribution with one uniform 53-bit number: the first index whose
/// cumulative probability exceeds it.
///
/// If one index has all the probability, it is always returned. An index of probability zero is
/// never returned.
///
/// # Panics
/// If no probability is positive.
pub fn draw<F: Real>(probabilities: &[F], rng: &mut dyn Rng) -> usize {
    draw_at(probabilities, rng.random())
}

/// As [`draw`], with a given `uniform` number in [0, 1). Draws from similar distributions with the
/// same number are mostly equal.
///
/// # Panics
/// If no probability is positive.
pub fn draw_at<F: Real>(probabilities: &[F], uniform: f64) -> usize {
    let total: f64 = probabilities.iter().map(|p| p.widen()).sum();
    let target = uniform * total;
    let mut cumulative = 0.0;
    let mut last = None;
    for (index, p) in probabilities.iter().enumerate() {
        let p = p.widen();
        if p > 0.0 {
            cumulative += p;
            last = Some(index);
            if target < cumulative {
                return index;
            }
        }
    }
    // By rounding, the target can equal the total.
    last.expect("a distribution has an index of positive probability")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn draws_follow_the_distribution_and_never_hit_a_zero() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let p = [0.0, 0.25, 0.0, 0.75, 0.0];
        let draws = 40_000;
        let mut counts = [0usize; 5];
        for _ in 0..draws {
            counts[draw(&p, &mut rng)] += 1;
        }
        assert_eq!((counts[0], counts[2], counts[4]), (0, 0, 0));
        // Six standard errors of a binomial proportion at p = 1/4.
        let tolerance = 6.0 * (0.25f64 * 0.75 / f64::from(draws)).sqrt();
        assert!((counts[1] as f64 / f64::from(draws) - 0.25).abs() < tolerance);
    }

    #[test]
    fn shares_count_and_not_their_sum() {
        // The same uniform number selects the same index, whatever the sum.
        let drawn = |p: [f64; 3]| {
            let mut rng = ChaCha8Rng::seed_from_u64(2);
            (0..1000).map(|_| draw(&p, &mut rng)).collect::<Vec<_>>()
        };
        let expected = drawn([0.25, 0.5, 0.25]);
        assert_eq!((drawn([2.0, 4.0, 2.0]), drawn([0.03125, 0.0625, 0.03125])), (expected.clone(), expected));
    }

    /// A generator that always returns the same number.
    struct Always(u64);

    impl rand::TryRng for Always {
        type Error = std::convert::Infallible;
        fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
            Ok((self.0 >> 32) as u32)
        }
        fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
            Ok(self.0)
        }
        fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
            bytes.fill((self.0 >> 56) as u8);
            Ok(())
        }
    }

    #[test]
    fn the_cumulative_probability_must_exceed_the_number_drawn() {
        // Exactly one half, which the first cumulative probability equals but does not exceed.
        assert_eq!(draw(&[0.5, 0.0, 0.5], &mut Always(1 << 63)), 2);
        assert_eq!(draw(&[0.0, 0.5, 0.5], &mut Always(0)), 1);
        assert_eq!(draw(&[0.5, 0.5, 0.0], &mut Always(u64::MAX)), 1);
    }

    #[test]
    fn draws_are_pinned_to_the_seed() {
        let mut rng = ChaCha8Rng::seed_from_u64(42);
        let p = [0.2f64; 5];
        let drawn: Vec<usize> = (0..12).map(|_| draw(&p, &mut rng)).collect();
        assert_eq!(drawn, [3, 4, 2, 3, 1, 0, 1, 4, 3, 1, 2, 4]);
    }
}
