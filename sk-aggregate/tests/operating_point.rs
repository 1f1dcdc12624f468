//! What the second standardisation and the published temperature do to a choice (E12, E13), on
//! random batches of the reference instantiation: seven candidates, three blades and a fluency
//! blade.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sk_aggregate::{Entry, Fluent, RoundRobin, SwissElo};
use sk_core::{Aggregator, Batch, Composite, Normalizer, OperatingPoint, ScoreTable, Selector, Simplex, Standardize};
use sk_normalize::CandidateBatch;
use sk_select::Champion;

const N: usize = 7;
const BATCHES: usize = 4000;
const POINT: OperatingPoint = OperatingPoint::HHH;
const VERTEX: [f64; 3] = [1.0, 0.0, 0.0];
const CENTROID: [f64; 3] = [1.0 / 3.0; 3];

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0
}

/// Composites of independent blades after CBN, and standardised ℓ_S.
fn batches(weights: [f64; 3]) -> Vec<(Composite, Vec<f64>)> {
    let weights = Simplex::new(weights).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(12);
    let mut batch = || {
        let mut blade = || -> ([f64; N], [f64; N]) {
            (std::array::from_fn(|_| normal(&mut rng)), std::array::from_fn(|_| 2.0 * rng.random::<f64>()))
        };
        let scores = ScoreTable::new([blade(), blade(), blade()]).unwrap();
        let mut composite = Composite::default();
        CandidateBatch::sound().combine(&scores, &weights, &mut composite);
        let fluency: Vec<f64> = (0..N).map(|_| normal(&mut rng)).collect();
        let moments = Standardize::EXACT.moments(&fluency);
        (composite, fluency.iter().map(|&l| Standardize::EXACT.apply(&moments, l)).collect())
    };
    (0..BATCHES).map(|_| batch()).collect()
}

fn deviation(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0)).sqrt()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

fn top(aggregator: &dyn Aggregator, (composite, fluency): &(Composite, Vec<f64>)) -> usize {
    let mut ratings = [f64::NAN; N];
    aggregator.rate(&Batch::trusted(&composite.mu, &composite.sigma).with_trusted_fluency(fluency), &mut ratings);
    (0..N).max_by(|&a, &b| ratings[a].total_cmp(&ratings[b])).unwrap()
}

/// E12: the composite of one blade already has a standard deviation of 1; that of three has about
/// 3^−½. Scaling it back to 1 changes which candidate wins.
#[test]
fn the_second_standardisation_changes_the_ranking_and_the_effective_alpha() {
    let spread = |weights| mean(batches(weights).iter().map(|(composite, _)| deviation(&composite.mu)));
    assert!((spread(VERTEX) - 1.0).abs() < 1e-12);
    // E[(1 + 2(ρ₁ + ρ₂ + ρ₃)/3)^½]/√3, a little less than .577: the correlations of seven
    // candidates are of order 6^−½.
    let centroid = spread(CENTROID);
    assert!((centroid - 0.56).abs() < 0.01, "{centroid}");
    // α z(ℓ) + (1 − α) μ/std(μ) weighs ℓ as α′ = α·std/(α·std + 1 − α) would without the division:
    // .5 at a vertex, .36 at the centroid.
    let alpha = POINT.alpha * centroid / (POINT.alpha * centroid + 1.0 - POINT.alpha);
    assert!((alpha - 0.36).abs() < 0.01, "{alpha}");

    let twice = Fluent::new(Entry::sound(POINT.alpha).unwrap(), RoundRobin::thurstone());
    let once = Fluent::new(Entry::plain(POINT.alpha).unwrap(), RoundRobin::thurstone());
    let changed = |weights| mean(batches(weights).iter().map(|batch| f64::from(top(&twice, batch) != top(&once, batch))));
    assert_eq!(changed(VERTEX), 0.0);
    let share = changed(CENTROID);
    println!("std {centroid:.3}, effective α {alpha:.3}, another top candidate in {share:.3} of batches");
    assert!((share - 0.22).abs() < 0.05, "{share}");
}

/// E13: at the published temperature, with and without fluency, and at T = ½. Measures the
/// champion's normalised entropy, its gain over a uniform draw in standard deviations of the batch
/// (divisor N), and how often it has the highest μ. The best of seven is 1.5 above their mean.
#[test]
fn the_published_temperature_is_close_to_a_uniform_draw() {
    let tournament = SwissElo::sound(POINT.rounds, POINT.alpha).unwrap();
    let batches = batches(CENTROID);
    let at = |temperature: f64, fluent: bool| {
        let champion = Champion::sound(&OperatingPoint { temperature, ..POINT }).unwrap();
        let mut sums = [0.0; 3];
        for (composite, fluency) in &batches {
            let batch = Batch::trusted(&composite.mu, &composite.sigma);
            let batch = if fluent { batch.with_trusted_fluency(fluency) } else { batch };
            let (mut ratings, mut p) = ([f64::NAN; N], [f64::NAN; N]);
            tournament.rate(&batch, &mut ratings);
            champion.distribution(&ratings, &batch, &mut p);
            let unit = deviation(&composite.mu) * (6.0f64 / 7.0).sqrt();
            let best = (0..N).max_by(|&a, &b| composite.mu[a].total_cmp(&composite.mu[b])).unwrap();
            sums[0] -= p.iter().map(|p| p * p.max(f64::MIN_POSITIVE).ln()).sum::<f64>() / (N as f64).ln();
            sums[1] += p.iter().zip(&composite.mu).map(|(p, m)| p * m).sum::<f64>() / unit;
            sums[2] += p[best];
        }
        sums.map(|sum| sum / BATCHES as f64)
    };
    // A uniform draw has an entropy of 1, gains nothing, and is the best in 14% of batches.
    for (temperature, fluent, expected) in
        [(8.0, true, [0.977, 0.28, 0.21]), (8.0, false, [0.971, 0.33, 0.23]), (0.5, false, [0.14, 1.49, 0.86])]
    {
        let found = at(temperature, fluent);
        println!("T = {temperature}, fluency {fluent}: entropy, gain and share of the best {found:.3?}");
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.02), "{found:?}");
    }
}
