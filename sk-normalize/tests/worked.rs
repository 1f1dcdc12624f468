//! Each normaliser on batches that are small enough to work out by hand.

mod correlated;

use correlated::{correlated, names};
use sk_core::{Composite, Deviation, Normalizer, ScoreTable, Simplex, Standardize};
use sk_normalize::{CandidateBatch, Correlation, DispersionUnit, Propagation, Rank, Raw, Robust};

/// Rounding of some operations on values of order 1.
const TOLERANCE: f64 = 1e-12;

type Rows = Vec<(Vec<f64>, Vec<f64>)>;

fn combine(normalizer: &dyn Normalizer, rows: &Rows, weights: &[f64]) -> Composite {
    let scores = ScoreTable::new(rows.iter().map(|(mu, sigma)| (mu, sigma))).unwrap().with_names(names(rows.len())).unwrap();
    // A stale buffer of another size. All of it must be overwritten.
    let mut out = Composite { mu: vec![f64::NAN; 9], sigma: vec![f64::NAN] };
    normalizer.combine(&scores, &Simplex::new(weights).unwrap(), &mut out);
    out
}

#[track_caller]
fn assert_close(got: &[f64], expected: &[f64]) {
    assert_eq!(got.len(), expected.len());
    assert!(got.iter().zip(expected).all(|(a, b)| (a - b).abs() < TOLERANCE), "{got:?} is not {expected:?}");
}

/// Blade 0: μ has mean 2 and sample std 1, σ has sample std 1. Blade 1: μ has mean 10 and sample
/// std 6, σ has sample std 2.
fn rows() -> Rows {
    vec![(vec![1.0, 2.0, 3.0], vec![1.0, 2.0, 3.0]), (vec![16.0, 10.0, 4.0], vec![2.0, 4.0, 6.0])]
}

#[test]
fn cbn_in_each_convention() {
    let w = [0.75, 0.25];
    // μ̂: (−1 0 1) and (1 0 −1).
    let sound = combine(&CandidateBatch::sound(), &rows(), &w);
    assert_close(&sound.mu, &[-0.5, 0.0, 0.5]);
    // σ̂ in units of μ: (1 2 3) and (1/3 2/3 1).
    assert_close(&sound.sigma, &[0.75 + 0.25 / 3.0, 1.5 + 0.5 / 3.0, 2.25 + 0.25]);

    // σ̂ in units of its own spread: (1 2 3) for both; and ε = 1e-6 in each divisor.
    let paper = combine(&CandidateBatch::paper(), &rows(), &w);
    let e = 1e-6;
    let mu = 0.75 / (1.0 + e) - 0.25 * 6.0 / (6.0 + e);
    assert_close(&paper.mu, &[-mu, 0.0, mu]);
    let sigma = |i: f64| 0.75 * i / (1.0 + e) + 0.25 * 2.0 * i / (2.0 + e);
    assert_close(&paper.sigma, &[sigma(1.0), sigma(2.0), sigma(3.0)]);

    let population = CandidateBatch {
        standardize: Standardize::new(Deviation::Population, 0.0, 0.0).unwrap(),
        dispersion: DispersionUnit::Own,
        propagation: Propagation::Linear,
    };
    let population = combine(&population, &rows(), &w);
    assert_close(&population.mu, &[-0.5 * 1.5f64.sqrt(), 0.0, 0.5 * 1.5f64.sqrt()]);
    assert_close(&population.sigma, &[1.5f64.sqrt(), 2.0 * 1.5f64.sqrt(), 3.0 * 1.5f64.sqrt()]);
}

#[test]
fn a_blade_without_spread_contributes_nothing_when_epsilon_is_zero() {
    let rows = vec![(vec![0.1; 3], vec![0.3; 3]), (vec![1.0, 2.0, 3.0], vec![1.0, 2.0, 3.0])];
    for normalizer in [&CandidateBatch::sound() as &dyn Normalizer, &Rank::default()] {
        let out = combine(normalizer, &rows, &[0.5, 0.5]);
        assert_close(&out.mu, &[-0.5, 0.0, 0.5]);
        assert_close(&out.sigma, &[0.5, 1.0, 1.5]);
    }
    // In the published convention, a constant σ is divided by ε alone.
    let paper = combine(&CandidateBatch::paper(), &rows, &[0.5, 0.5]);
    assert!(paper.sigma[0] > 1e5, "{:?}", paper.sigma);
}

#[test]
fn rounding_is_no_opinion() {
    // A blade that scores all candidates equally, up to the last digit.
    let rows = vec![(vec![1.0, 1.0 + f64::EPSILON, 1.0], vec![0.3; 3]), (vec![1.0, 2.0, 3.0], vec![1.0, 2.0, 3.0])];
    for normalizer in [&CandidateBatch::sound() as &dyn Normalizer, &Robust::default()] {
        let out = combine(normalizer, &rows, &[1.0, 0.0]);
        assert_eq!((out.mu, out.sigma), (vec![0.0; 3], vec![0.0; 3]));
    }
    // The same holds for its ranks, and for near-ties beside a candidate that differs.
    let out = combine(&Rank::default(), &rows, &[1.0, 0.0]);
    assert_eq!((out.mu, out.sigma), (vec![0.0; 3], vec![0.0; 3]));
    let (tied, healthy) = ([0.3, 0.3, 0.9], (vec![3.0, 1.0, 2.0], vec![0.1; 3]));
    for near in [[0.3, 0.1 + 0.2, 0.9], [0.3 + 2e-16, 0.3, 0.9]] {
        assert!(near[..2] != tied[..2]);
        for weights in [[1.0, 0.0], [0.5, 0.5]] {
            let mu =
                |first: &[f64]| combine(&Robust::default(), &vec![(first.to_vec(), vec![0.2; 3]), healthy.clone()], &weights).mu;
            let (found, expected) = (mu(&near), mu(&tied));
            assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-12), "{near:?}: {found:?} for {expected:?}");
            assert!(found.iter().any(|value| *value != found[0]));
        }
    }
    // 0.1 + 0.2 is not 0.3. If two blades cancel up to rounding, the rest counts as no difference;
    // a larger rest counts.
    let against = |last: f64| vec![(vec![0.1, 0.2, 0.7], vec![0.0; 3]), (vec![-0.3, -0.6, last], vec![0.0; 3])];
    let composite = |last: f64| combine(&CandidateBatch::sound(), &against(last), &[0.5, 0.5]).mu;
    assert!(composite(-2.1).windows(2).all(|pair| pair[0] == pair[1]), "{:?}", composite(-2.1));
    assert_ne!(composite(-2.1 - 1e-12)[1], composite(-2.1 - 1e-12)[2]);
}

#[test]
fn a_batch_of_one_is_zero() {
    let rows = vec![(vec![3.0], vec![2.0]), (vec![-1.0], vec![0.0])];
    let normalizers: [&dyn Normalizer; 4] =
        [&CandidateBatch::paper(), &CandidateBatch::sound(), &Rank::default(), &Robust::default()];
    for normalizer in normalizers {
        assert_eq!(combine(normalizer, &rows, &[0.5, 0.5]), Composite { mu: vec![0.0], sigma: vec![0.0] });
    }
    assert_eq!(combine(&Raw::default(), &rows, &[0.5, 0.5]), Composite { mu: vec![1.0], sigma: vec![1.0] });
}

#[test]
fn raw_is_the_weighted_sum() {
    let out = combine(&Raw::default(), &rows(), &[0.75, 0.25]);
    assert_close(&out.mu, &[4.75, 4.0, 3.25]);
    assert_close(&out.sigma, &[1.25, 2.5, 3.75]);
}

#[test]
fn rank_counts_places_and_shares_ties() {
    // Ranks 0, 1.5, 1.5, 3: deviations −1.5 0 0 1.5, sample variance 4.5/3.
    let rows = vec![(vec![-5.0, 1.0, 1.0, 1000.0], vec![0.0; 4])];
    let place = 1.5 / 1.5f64.sqrt();
    assert_close(&combine(&Rank::default(), &rows, &[1.0]).mu, &[-place, 0.0, 0.0, place]);
}

#[test]
fn robust_does_not_see_an_outlier() {
    let scale = 1.482_602_218_505_602;
    // Median 3, absolute deviations 2 1 0 1 997: MAD 1.
    let rows = vec![(vec![1.0, 2.0, 3.0, 4.0, 1000.0], vec![scale; 5])];
    let out = combine(&Robust::default(), &rows, &[1.0]);
    assert_close(&out.mu[..4], &[-2.0 / scale, -1.0 / scale, 0.0, 1.0 / scale]);
    assert_close(&out.sigma, &[1.0; 5]);
    // More than half tied: MAD 0, mean absolute deviation 2/5.
    let rows = vec![(vec![1.0, 1.0, 1.0, 1.0, 3.0], vec![0.0; 5])];
    let out = combine(&Robust::default(), &rows, &[1.0]);
    assert_close(&out.mu, &[0.0, 0.0, 0.0, 0.0, 2.0 / (0.4 * std::f64::consts::FRAC_PI_2.sqrt())]);
}

#[test]
fn robust_ranks_the_others_beside_an_outlier_that_loses_its_digits() {
    /// The rounding of scores that are a hundred million times as large.
    const TOLERANCE: f64 = 1e-6;
    let scores = vec![0.0, 0.001, 0.002, 0.003, 0.004, -1e5];
    let opposite: Vec<f64> = scores.iter().map(|score| 7.0 - 3.0 * score).collect();
    // Median 0.0015, absolute deviations 0.0015 0.0005 0.0005 0.0015 0.0025 and the outlier's.
    let expected = [-1.5, -0.5, 0.5, 1.5, 2.5].map(|deviation| deviation / 1.5 / 1.482_602_218_505_602);
    let rows = vec![(scores, vec![0.0; 6]), (opposite, vec![0.0; 6])];
    for (weights, sign) in [([1.0, 0.0], 1.0), ([0.0, 1.0], -1.0)] {
        let out = combine(&Robust::default(), &rows, &weights);
        for (found, expected) in out.mu.iter().zip(expected) {
            assert!((found - sign * expected).abs() < TOLERANCE, "{:?}", out.mu);
        }
    }
    // Where the blades cancel for the outlier alone, its error is large, and ties no other two.
    let aligned: Vec<f64> = rows[0].0.iter().map(|score| score.abs()).collect();
    // The mean of the medians is 0.002.
    let expected = [-2.0, -1.0, 0.0, 1.0, 2.0].map(|deviation| deviation / 1.5 / 1.482_602_218_505_602);
    for (slope, offset) in [(1.0, 0.0), (3.0, 1e4), (1.7, 2e5)] {
        let mapped = aligned.iter().map(|score| slope * score + offset).collect();
        let out = combine(&Robust::default(), &vec![rows[0].clone(), (mapped, vec![0.0; 6])], &[0.5, 0.5]);
        for (found, expected) in out.mu.iter().zip(expected) {
            assert!((found - expected).abs() < TOLERANCE, "{slope} {offset}: {:?}", out.mu);
        }
    }
    // What cancels is tied, the outlier included.
    let out = combine(&Robust::default(), &rows, &[0.5, 0.5]);
    assert!(out.mu.iter().all(|mu| *mu == out.mu[0]), "{:?}", out.mu);
}

#[test]
fn dispersions_propagate_by_the_correlation_of_errors() {
    // w_k σ_k = 3 and 4.
    let rows = vec![(vec![0.0], vec![6.0]), (vec![0.0], vec![8.0])];
    let sigma = |propagation| combine(&Raw { propagation }, &rows, &[0.5, 0.5]).sigma[0];
    let correlated = |rho: f64| sigma(correlated(2, |_, _| rho));
    assert_eq!(sigma(Propagation::Linear), 7.0);
    assert_eq!(sigma(Propagation::Independent), 5.0);
    assert_close(&[correlated(1.0), correlated(0.0), correlated(-1.0)], &[7.0, 5.0, 1.0]);
    assert_close(&[correlated(0.5)], &[37f64.sqrt()]);
    // The upper bound is used for blades that the matrix does not have.
    assert_eq!(sigma(Propagation::Correlated(Correlation::of_pairs([("a", "b", 0.0)]).unwrap())), 7.0);
}

/// w_k σ_k is 3 for "calm", 4 for "kind" and 5 for "new".
#[test]
fn correlations_follow_the_names_of_blades() {
    let blade = |name: &'static str| match name {
        "calm" => (name, 6.0),
        "kind" => (name, 8.0),
        _ => (name, 10.0),
    };
    let propagation = Propagation::Correlated(Correlation::of_pairs([("kind", "calm", -0.5)]).unwrap());
    let sigma = |names: &[&'static str]| {
        let blades: Vec<_> = names.iter().map(|name| blade(name)).collect();
        let table = ScoreTable::new(blades.iter().map(|(_, sigma)| ([0.0], [*sigma]))).unwrap();
        let table = table.with_names(blades.iter().map(|(name, _)| *name)).unwrap();
        let mut out = Composite::default();
        // Scales the result as if every weight were one half.
        let share = Simplex::uniform(names.len()).unwrap();
        Raw { propagation: propagation.clone() }.combine(&table, &share, &mut out);
        out.sigma[0] * names.len() as f64 / 2.0
    };
    // 9 + 16 − 12, in either order of the blades.
    assert_close(&[sigma(&["calm", "kind"]), sigma(&["kind", "calm"])], &[13f64.sqrt(); 2]);
    // Only one blade of the pair, as when the other has weight zero.
    assert_close(&[sigma(&["calm"]), sigma(&["kind"])], &[3.0, 4.0]);
    // A blade without known correlations adds linearly to each of the others: 13 + 25 + 2·5·3 +
    // 2·5·4.
    assert_close(&[sigma(&["calm", "new", "kind"])], &[108f64.sqrt()]);
    assert_close(&[sigma(&["new", "calm"])], &[8.0]);
    // Without names in the table, no correlation applies.
    let unnamed = ScoreTable::new([([0.0], [6.0]), ([0.0], [8.0])]).unwrap();
    let mut out = Composite::default();
    Raw { propagation: propagation.clone() }.combine(&unnamed, &Simplex::uniform(2).unwrap(), &mut out);
    assert_close(&out.sigma, &[7.0]);
}
