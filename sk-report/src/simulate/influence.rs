//! Which blade decides when one blade is rescaled (`thm:cbn` i and ii).
//!
//! Training leaves the scale of an implicit reward undetermined. Without CBN, the influence of a
//! blade is its weight times its spread, so that the blade with the larger scale decides. With CBN,
//! the influence is the weight.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sk_core::{Normalizer, ScoreTable, Simplex};
use sk_normalize::influence_shares;

use super::Contradiction;
use super::sampling::{composite, largest, normal, spread};

const COEFFICIENTS: &str = "Theorem 3(i) (thm:cbn): raw composites weigh blade k by w_k·std(μ^(k))";
const INVARIANCE: &str = "Theorem 3(ii) (thm:cbn): CBN composites do not change under μ ↦ aμ + b, σ ↦ aσ of a blade";

/// The rounding error of a share, a quotient of sums of N numbers.
const ROUNDING: f64 = 1e-12;
/// The rounding error of a composite, in standard deviations, when a blade is scaled by up to 10⁴
/// and shifted by as much.
const CANCELLATION: f64 = 1e-9;

/// The spreads std(μ^(k)) that the paper reports of its blades: harmlessness, helpfulness, honesty.
pub const PUBLISHED_SPREADS: [f64; 3] = [0.0050, 0.0035, 0.0008];

/// The settings of the study.
#[derive(Debug, Clone, PartialEq)]
pub struct InfluenceSettings {
    /// N, candidates per batch.
    pub candidates: usize,
    /// The number of batches.
    pub batches: usize,
    /// The standard deviation of each blade's scores.
    pub spreads: Vec<f64>,
    /// The blade that is rescaled.
    pub rescaled: usize,
    /// The factors of its scores and dispersions.
    pub scales: Vec<f64>,
    /// The seed of the batches.
    pub seed: u64,
}

/// The influence of a blade at one scale under one normaliser: means over the batches.
#[derive(Debug, Clone, PartialEq)]
pub struct Voice {
    /// a, the factor of the rescaled blade.
    pub scale: f64,
    /// The blade.
    pub blade: usize,
    /// Its share of the composite (see [`influence_shares`]).
    pub share: f64,
    /// The share of batches in which the blade's best candidate has the highest composite.
    pub decides: f64,
}

/// Draws the batches of a study: each blade's scores are normal with its spread, its dispersions
/// half-normal with it.
fn tables(settings: &InfluenceSettings) -> Vec<Vec<(Vec<f64>, Vec<f64>)>> {
    let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
    let mut blade = |&spread: &f64| {
        let mu = (0..settings.candidates).map(|_| spread * normal(&mut rng)).collect();
        let sigma = (0..settings.candidates).map(|_| spread * normal(&mut rng).abs()).collect();
        (mu, sigma)
    };
    (0..settings.batches).map(|_| settings.spreads.iter().map(&mut blade).collect()).collect()
}

/// Builds the score table of a batch, with one blade rescaled by `a` and shifted by `a` times its
/// first dispersion.
fn rescaled(rows: &[(Vec<f64>, Vec<f64>)], blade: usize, a: f64) -> ScoreTable {
    let row = |(k, (mu, sigma)): (usize, &(Vec<f64>, Vec<f64>))| {
        let (a, b) = if k == blade { (a, a * sigma[0]) } else { (1.0, 0.0) };
        (mu.iter().map(|x| a * x + b).collect::<Vec<_>>(), sigma.iter().map(|x| a * x).collect::<Vec<_>>())
    };
    ScoreTable::new(rows.iter().enumerate().map(row)).expect("finite scores, dispersions that are not negative")
}

/// Computes the shares at equal weights without normalisation.
///
/// # Errors
/// If the shares are not proportional to w_k·std(μ^(k)).
///
/// # Panics
/// Without blades or candidates.
pub fn raw(normalizer: &dyn Normalizer, settings: &InfluenceSettings) -> Result<Vec<Voice>, Contradiction> {
    voices(normalizer, settings, |_, table, weights, shares, label| {
        let coefficients: Vec<f64> = weights.as_slice().iter().enumerate().map(|(k, w)| w * spread(table, k)).collect();
        let total: f64 = coefficients.iter().sum();
        for (k, (share, coefficient)) in shares.iter().zip(&coefficients).enumerate() {
            let expected = coefficient / total;
            Contradiction::unless((share - expected).abs() <= ROUNDING, COEFFICIENTS, || {
                format!("{label}, blade {k}: a share of {share:.12} where weight times spread gives {expected:.12}")
            })?;
        }
        Ok(())
    })
}

/// Computes the shares at equal weights under candidate-batch normalisation.
///
/// # Errors
/// If a share differs from its weight, or if a composite depends on the scale.
///
/// # Panics
/// As [`raw`].
pub fn normalized(normalizer: &dyn Normalizer, settings: &InfluenceSettings) -> Result<Vec<Voice>, Contradiction> {
    voices(normalizer, settings, |before, table, weights, shares, label| {
        let [before, after] = [before, table].map(|table| composite(normalizer, table, weights));
        let pairs = before.mu.iter().zip(&after.mu).chain(before.sigma.iter().zip(&after.sigma));
        let moved = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        Contradiction::unless(moved <= CANCELLATION, INVARIANCE, || format!("{label}: a composite moves by {moved:e}"))?;
        for (k, (share, weight)) in shares.iter().zip(weights.as_slice()).enumerate() {
            Contradiction::unless((share - weight).abs() <= ROUNDING, INVARIANCE, || {
                format!("{label}, blade {k}: a share of {share:.12} at a weight of {weight:.12}")
            })?;
        }
        Ok(())
    })
}

/// Computes the shares. `check` takes the scores of a batch before and after the blade is rescaled,
/// the weights, the shares after it, and the label of the batch.
fn voices(
    normalizer: &dyn Normalizer,
    settings: &InfluenceSettings,
    check: impl Fn(&ScoreTable, &ScoreTable, &Simplex, &[f64], &str) -> Result<(), Contradiction>,
) -> Result<Vec<Voice>, Contradiction> {
    let blades = settings.spreads.len();
    let weights = Simplex::uniform(blades).expect("there is a blade");
    let tables = tables(settings);
    let mut voices = Vec::with_capacity(settings.scales.len() * blades);
    for &scale in &settings.scales {
        let (mut shares, mut decides) = (vec![0.0; blades], vec![0.0; blades]);
        for (number, rows) in tables.iter().enumerate() {
            let [before, table] = [1.0, scale].map(|scale| rescaled(rows, settings.rescaled, scale));
            let found = influence_shares(normalizer, &table, &weights);
            let label = format!("batch {number}, blade {} scaled by {scale}", settings.rescaled);
            check(&before, &table, &weights, &found, &label)?;
            let best = largest(&composite(normalizer, &table, &weights).mu);
            for k in 0..blades {
                shares[k] += found[k];
                decides[k] += f64::from(u8::from(largest(table.mu(k)) == best));
            }
        }
        let count = tables.len() as f64;
        let voice = |blade| Voice { scale, blade, share: shares[blade] / count, decides: decides[blade] / count };
        voices.extend((0..blades).map(voice));
    }
    Ok(voices)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sk_core::Standardize;
    use sk_normalize::{CandidateBatch, Raw};

    use super::*;

    fn settings(seed: u64) -> InfluenceSettings {
        let scales = vec![1e-2, 1.0, 6.25, 1e4];
        InfluenceSettings { candidates: 7, batches: 8, spreads: PUBLISHED_SPREADS.to_vec(), rescaled: 2, scales, seed }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn the_theorem_holds_from_any_seed(seed in any::<u64>(), rescaled in 0usize..3) {
            let settings = InfluenceSettings { rescaled, ..settings(seed) };
            let raw = raw(&Raw::default(), &settings).unwrap();
            let even = normalized(&CandidateBatch::sound(), &settings).unwrap();
            // At a factor of 10⁴ the blade dominates without CBN; with CBN nothing changes.
            let loud = |voices: &[Voice]| voices.iter().find(|v| v.scale == 1e4 && v.blade == rescaled).cloned().unwrap();
            // Another blade decides only if the two best candidates differ by at most a thousandth
            // of the rescaled blade's standard deviation: one batch in two thousand.
            prop_assert!(loud(&raw).share > 0.99 && loud(&raw).decides > 0.5);
            prop_assert!((loud(&even).share - 1.0 / 3.0).abs() < 1e-12);
        }
    }

    #[test]
    fn published_spreads_give_published_shares() {
        let settings = InfluenceSettings { batches: 4000, scales: vec![1.0], ..settings(3) };
        let shares: Vec<f64> = raw(&Raw::default(), &settings).unwrap().iter().map(|voice| voice.share).collect();
        // .0050 : .0035 : .0008 is 53.8 : 37.6 : 8.6 per cent. Means over batches of seven
        // candidates are slightly closer to equal shares.
        for (share, expected) in shares.iter().zip([0.538, 0.376, 0.086]) {
            assert!((share - expected).abs() < 0.015, "{shares:?}");
        }
    }

    #[test]
    fn a_broken_normaliser_is_caught_with_the_datum() {
        // The published ε of 1e-6 is not negligible beside a spread of .0008 scaled by a hundredth.
        let broken = CandidateBatch { standardize: Standardize::PAPER_CBN, ..CandidateBatch::sound() };
        let found = normalized(&broken, &settings(1)).unwrap_err();
        assert_eq!(found.theorem, INVARIANCE);
        assert!(found.datum.starts_with("batch 0, blade 2 scaled by 0.01"), "{found}");
        let found = raw(&CandidateBatch::sound(), &settings(1)).unwrap_err();
        assert_eq!(found.theorem, COEFFICIENTS);
    }
}
