//! Candidates that tie in exact arithmetic also tie in floating point, so a choice does not depend
//! on the order of the candidates.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use sk_aggregate::{Copeland, Entry, Fluent, RoundRobin, SwissElo};
use sk_core::{Aggregator, Batch, Composite, Normalizer, OperatingPoint, ScoreTable, Selector, Simplex};
use sk_normalize::{CandidateBatch, Rank, Robust};
use sk_select::Champion;

/// A permutation reorders sums of a few numbers of order 1; the rest is their rounding, divided by
/// the champion's temperature of 8.
const TOLERANCE: f64 = 1e-12;

const POINT: OperatingPoint = OperatingPoint::HHH;

/// Every operator that compares pairs of candidates, under the sound convention.
fn aggregators() -> Vec<(&'static str, Box<dyn Aggregator>)> {
    let entry = || Entry::sound(POINT.alpha).unwrap();
    vec![
        ("Swiss–Elo", Box::new(SwissElo::sound(POINT.rounds, POINT.alpha).unwrap())),
        ("Thurstone", Box::new(Fluent::new(entry(), RoundRobin::thurstone()))),
        ("Bradley–Terry", Box::new(Fluent::new(entry(), RoundRobin::bradley_terry()))),
        ("weakest link", Box::new(Fluent::new(entry(), RoundRobin::weakest_link()))),
        ("asinh", Box::new(Fluent::new(entry(), RoundRobin::asinh()))),
        ("Copeland", Box::new(Fluent::new(entry(), Copeland))),
    ]
}

/// The champion's distribution over candidates with these composites and fluency.
fn champion(aggregator: &dyn Aggregator, mu: &[f64], sigma: &[f64], fluency: &[f64]) -> Vec<f64> {
    let batch = Batch::new(mu, sigma).unwrap().with_fluency(fluency).unwrap();
    let (mut ratings, mut probabilities) = (vec![f64::NAN; mu.len()], vec![f64::NAN; mu.len()]);
    aggregator.rate(&batch, &mut ratings);
    Champion::sound(&POINT).unwrap().distribution(&ratings, &batch, &mut probabilities);
    probabilities
}

/// N = 2, with ℓ opposed to μ at α = ½: both candidates enter the rating with 0, so the ratings tie
/// and μ alone decides. The candidate with the lower μ has the probability 1/(1 +
/// e^(w_blade·√2/T)), since z(μ) = ±1/√2.
#[test]
fn opposing_fluency_leaves_the_choice_to_the_scores() {
    let lower = 1.0 / (1.0 + (POINT.w_blade * 2f64.sqrt() / POINT.temperature).exp());
    for (name, aggregator) in aggregators() {
        for (mu, fluency) in [([0.1, 0.7], [-1.3, -2.2]), ([-3.0, 0.3], [-0.7, -0.9]), ([0.1, 0.3], [0.3, 0.1])] {
            let forwards = champion(&*aggregator, &mu, &[0.5; 2], &fluency);
            let backwards = champion(&*aggregator, &[mu[1], mu[0]], &[0.5; 2], &[fluency[1], fluency[0]]);
            assert!((forwards[0] - lower).abs() < TOLERANCE, "{name}: {forwards:?} and not {lower}");
            assert!((backwards[1] - lower).abs() < TOLERANCE, "{name}: {backwards:?} and not {lower}");
        }
    }
}

/// One candidate against three equal ones, with a fluency that cancels the difference.
#[test]
fn a_group_of_equals_ties_with_the_one_that_fluency_brings_level() {
    let (mu, sigma, fluency) = ([0.2, 0.0, 0.0, 0.0], [0.5; 4], [-1.1, -1.0, -1.0, -1.0]);
    for (name, aggregator) in aggregators() {
        let mut ratings = [f64::NAN; 4];
        let batch = Batch::new(&mu, &sigma).unwrap().with_fluency(&fluency).unwrap();
        aggregator.rate(&batch, &mut ratings);
        assert!(ratings.iter().all(|rating| *rating == ratings[0]), "{name}: {ratings:?}");
    }
}

#[test]
fn equal_candidates_tie_in_a_batch_of_any_size() {
    let noise = |i: usize, k: usize| (((i * 2_654_435_761 + k * 40_503) % 1_000_003) as f64 / 1_000_003.0).sqrt();
    for n in [2, 7, 16, 17, 24, 64, 200, 300] {
        for (name, aggregator) in aggregators() {
            let (mut mu, mut sigma) =
                ((0..n).map(|i| noise(i, 1)).collect::<Vec<_>>(), (0..n).map(|i| noise(i, 2)).collect::<Vec<_>>());
            let equal = [n / 5, n / 2, n - 1];
            equal.iter().for_each(|&i| (mu[i], sigma[i]) = (0.9, 0.3));
            let mut ratings = vec![f64::NAN; n];
            aggregator.rate(&Batch::new(&mu, &sigma).unwrap(), &mut ratings);
            assert!(equal.iter().all(|&i| ratings[i] == ratings[equal[0]]), "{name}, N = {n}: {:?}", equal.map(|i| ratings[i]));
        }
    }
}

#[test]
fn a_large_batch_in_single_precision_keeps_distinct_scores_apart() {
    // The scores 3u² − 1 are dense at u = 0, where the rounding of f32 ties about one in a hundred.
    let n = 20_000;
    let mu: Vec<f32> = (0..n).map(|i| 3.0 * (i as f32 / n as f32).powi(2) - 1.0).collect();
    let sigma = vec![1.0; n];
    let (mut d, mut s) = (vec![f32::NAN; n], vec![f32::NAN; n]);
    Entry::sound(0.0).unwrap().apply(&Batch::new(&mu, &sigma).unwrap(), &mut d, &mut s);
    d.dedup();
    assert!(d.len() > n / 100 * 98, "{}", d.len());
}

#[test]
fn scores_that_are_only_centred_stay_apart() {
    // std = 1e-9 is below 1e-8, the least that the published convention scales.
    let batch = Batch::new(&[1.0, 1.0 + 1e-9, 1.0 + 2e-9], &[0.0; 3]).unwrap();
    let (mut d, mut s) = ([f64::NAN; 3], [f64::NAN; 3]);
    Entry::paper(0.0).unwrap().apply(&batch, &mut d, &mut s);
    // A few units in the last place of 1.
    assert!(d.iter().zip([-1e-9, 0.0, 1e-9]).all(|(d, expected)| (d - expected).abs() < 1e-15), "{d:?}");
}

/// A batch in which many candidates tie, and a permutation of it: a few distinct rows, repeated,
/// with blades and a fluency that oppose or repeat each other.
#[derive(Debug, Clone)]
struct Tied {
    blades: Vec<(Vec<f64>, Vec<f64>)>,
    weights: Vec<f64>,
    fluency: Vec<f64>,
    order: Vec<usize>,
}

fn tied() -> impl Strategy<Value = Tied> {
    // Few values, so that ties are common, and no dyadic fractions, so that sums round.
    let score = || prop::sample::select(vec![-1.1, -0.3, -0.1, 0.0, 0.1, 0.2, 0.3, 0.7]);
    let row =
        (score(), score(), score(), prop::sample::select(vec![0.1, 0.3, 0.5])).prop_map(|(a, b, c, sigma)| [a, b, c, sigma]);
    (prop::collection::vec(row, 1..9), 2usize..9, 0u8..4)
        .prop_flat_map(|(rows, n, kind)| (prop::collection::vec(0..rows.len(), n), Just(rows), Just(kind)))
        .prop_flat_map(|(picks, rows, kind)| {
            let n = picks.len();
            let column = |k: usize| picks.iter().map(|&i| rows[i][k]).collect::<Vec<f64>>();
            let [a, b, c, sigma] = std::array::from_fn(column);
            let opposed = |x: &[f64]| x.iter().map(|v| 3.0 - 1.7 * v).collect::<Vec<f64>>();
            let (blades, weights, fluency) = match kind {
                // A fluency opposed to the only blade.
                0 => (vec![a.clone()], vec![1.0], opposed(&a)),
                // Two opposed blades.
                1 => (vec![a.clone(), opposed(&a)], vec![0.5, 0.5], c),
                // Three blades with equal weights.
                2 => (vec![a.clone(), b.clone(), c.clone()], vec![1.0 / 3.0; 3], opposed(&b)),
                _ => (vec![a.clone(), b, opposed(&a)], vec![0.4, 0.2, 0.4], c),
            };
            let blades: Vec<_> = blades.into_iter().map(|mu| (mu, sigma.clone())).collect();
            (Just((blades, weights, fluency)), Just((0..n).collect::<Vec<usize>>()).prop_shuffle())
        })
        .prop_map(|((blades, weights, fluency), order)| Tied { blades, weights, fluency, order })
}

fn distribution(normalizer: &dyn Normalizer, aggregator: &dyn Aggregator, batch: &Tied, order: &[usize]) -> Vec<f64> {
    let take = |values: &[f64]| order.iter().map(|&i| values[i]).collect::<Vec<f64>>();
    let scores = ScoreTable::new(batch.blades.iter().map(|(mu, sigma)| (take(mu), take(sigma)))).unwrap();
    let mut composite = Composite::default();
    normalizer.combine(&scores, &Simplex::normalized(batch.weights.clone()).unwrap(), &mut composite);
    champion(aggregator, &composite.mu, &composite.sigma, &take(&batch.fluency))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn the_distribution_follows_the_permutation(batch in tied()) {
        let straight: Vec<usize> = (0..batch.order.len()).collect();
        let normalizers: [(&str, Box<dyn Normalizer>); 3] = [
            ("CBN", Box::new(CandidateBatch::sound())), ("rank", Box::new(Rank::default())), ("robust", Box::new(Robust::default())),
        ];
        for (normalizer_name, normalizer) in &normalizers {
            for (name, aggregator) in aggregators() {
                let before = distribution(&**normalizer, &*aggregator, &batch, &straight);
                let after = distribution(&**normalizer, &*aggregator, &batch, &batch.order);
                for (place, &candidate) in batch.order.iter().enumerate() {
                    let (p, q) = (before[candidate], after[place]);
                    if (p - q).abs() >= TOLERANCE {
                        let reason = format!("{normalizer_name}, {name}: candidate {candidate} has {p}, and {q} in the other order");
                        return Err(TestCaseError::fail(reason));
                    }
                }
            }
        }
    }
}
