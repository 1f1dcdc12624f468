//! Scalarisation of several objectives, with new weights for every proposal.

use rand::{Rng, RngExt};

/// Weight of the sum over all objectives, relative to the worst one. It decides between two points
/// with the same worst objective. The value is that of Knowles (2006).
const AUGMENTATION: f64 = 0.05;

/// Converts the scores of trials (greater is better) to losses of a single objective, with the
/// augmented Chebyshev function of ParEGO:
///
/// ℓ(y) = max_k λ_k y_k + 0.05·Σ_k λ_k y_k, with y_k the distance of score k from the best seen, in
/// units of the range seen.
///
/// If λ is drawn from the simplex for each proposal, the proposed points spread along the Pareto
/// front. With one objective, the losses preserve the order of its scores. An objective whose
/// scores are all equal has no effect.
///
/// # Panics
/// If the number of scores of a trial differs from the number of weights.
pub(super) fn losses(scores: &[&[f64]], weights: &[f64]) -> Vec<f64> {
    let ranges: Vec<(f64, f64)> = (0..weights.len())
        .map(|k| scores.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), s| (low.min(s[k]), high.max(s[k]))))
        .collect();
    let loss = |scores: &&[f64]| {
        assert_eq!(scores.len(), weights.len(), "one score per objective");
        let terms = scores
            .iter()
            .zip(&ranges)
            .zip(weights)
            .map(|((score, (low, high)), weight)| if high > low { weight * (high - score) / (high - low) } else { 0.0 });
        let (worst, sum) = terms.fold((0.0_f64, 0.0), |(worst, sum), term| (worst.max(term), sum + term));
        worst + AUGMENTATION * sum
    };
    scores.iter().map(loss).collect()
}

/// Draws weights uniformly from the simplex.
pub(super) fn simplex(k: usize, rng: &mut dyn Rng) -> Vec<f64> {
    // Normalised exponential variables are uniform on the simplex. 1 − u is never 0.
    let spacings: Vec<f64> = (0..k).map(|_| -(1.0 - rng.random::<f64>()).ln()).collect();
    let sum: f64 = spacings.iter().sum();
    if sum > 0.0 { spacings.iter().map(|spacing| spacing / sum).collect() } else { vec![1.0 / k as f64; k] }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn losses_by_hand() {
        let scores: [&[f64]; 3] = [&[1.0, 10.0], &[0.0, 30.0], &[0.5, 20.0]];
        // Distances from (1, 30) in units of the ranges 1 and 20: (0, 1), (1, 0), (½, ½).
        let expected = [0.25 * 1.05, 0.75 * 1.05, 0.375 + 0.05 * 0.5];
        for (loss, expected) in losses(&scores, &[0.75, 0.25]).iter().zip(expected) {
            assert!((loss - expected).abs() < 1e-15, "{loss} {expected}");
        }
        assert_eq!(losses(&[&[3.0], &[3.0]], &[1.0]), [0.0, 0.0], "no range, no loss");
    }

    proptest! {
        /// A point that is at least as good on every objective has no greater loss. With one
        /// objective, losses preserve the order.
        #[test]
        fn dominated_points_lose(scores in vec(vec(-5.0f64..5.0, 3), 2..12), seed in any::<u64>()) {
            let weights = simplex(3, &mut ChaCha8Rng::seed_from_u64(seed));
            prop_assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12 && weights.iter().all(|w| *w >= 0.0));
            let all: Vec<&[f64]> = scores.iter().map(Vec::as_slice).collect();
            let found = losses(&all, &weights);
            let one: Vec<&[f64]> = scores.iter().map(|s| &s[..1]).collect();
            let alone = losses(&one, &[1.0]);
            for (i, a) in scores.iter().enumerate() {
                for (j, b) in scores.iter().enumerate() {
                    if a.iter().zip(b).all(|(a, b)| a >= b) {
                        prop_assert!(found[i] <= found[j] + 1e-12);
                    }
                    prop_assert_eq!(a[0] > b[0], alone[i] < alone[j]);
                }
            }
        }
    }
}
