//! The statistics against SciPy, pymoo, moocore and statsmodels on committed fixtures, and their
//! laws on generated data.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;
use sk_report::stats::{
    Bootstrap, Clusters, Distance, F1, Spearman, Steering, Wilcoxon, WinRate, ZeroRule, dominates, front, harmonic_mean, holm,
    hypervolume, median, pearson, population_std, slope, snap, spacing,
};

/// The tolerance against the references: relative to values above 1, absolute below, and relative
/// for p-values.
const TOLERANCE: f64 = 1e-9;

#[derive(Deserialize)]
struct Fixtures {
    frontiers: Vec<Frontier>,
    harmonic_means: Vec<HarmonicMean>,
    wilcoxon: Vec<Signed>,
    spearman: Vec<Correlation>,
    steering: Steered,
    bootstrap: Vec<Resampled>,
    holm: Vec<Family>,
    f1: Vec<Averages>,
    win_rates: Vec<Wins>,
    clustered: Vec<Clustered>,
}

#[derive(Deserialize)]
struct Frontier {
    points: Vec<[f64; 3]>,
    reference: [f64; 3],
    hypervolume: f64,
    front: Vec<usize>,
    schott: Option<f64>,
    published: Option<f64>,
}

#[derive(Deserialize)]
struct HarmonicMean {
    values: Vec<f64>,
    mean: f64,
}

#[derive(Deserialize)]
struct Signed {
    differences: Vec<f64>,
    zeros: String,
    statistic: f64,
    auto: f64,
}

#[derive(Deserialize)]
struct Correlation {
    x: Vec<f64>,
    y: Vec<f64>,
    rho: f64,
    p: f64,
    exact: Option<f64>,
}

#[derive(Deserialize)]
struct Steered {
    weights: Vec<[f64; 3]>,
    achieved: Vec<[f64; 3]>,
    axes: Vec<SteeredAxis>,
    pooled: SteeredPool,
}

#[derive(Deserialize)]
struct SteeredAxis {
    rho: f64,
    p: f64,
    slope: f64,
    range: f64,
}

#[derive(Deserialize)]
struct SteeredPool {
    rho: f64,
    p: f64,
    permutation_p: f64,
    slope: f64,
}

#[derive(Deserialize)]
struct Resampled {
    sample: Vec<f64>,
    distribution: Vec<f64>,
    #[serde(rename = "percentile 0.95")]
    percentile: [f64; 2],
    #[serde(rename = "BCa 0.95")]
    bca: [f64; 2],
    #[serde(rename = "BCa 0.8")]
    bca_at_four_fifths: [f64; 2],
}

#[derive(Deserialize)]
struct Family {
    p: Vec<f64>,
    adjusted: Vec<f64>,
}

#[derive(Deserialize)]
struct Averages {
    cells: Vec<Vec<[f64; 3]>>,
    of_mean_axes: f64,
    mean_of_configurations: f64,
    mean_of_cells: f64,
}

#[derive(Deserialize)]
struct Wins {
    differences: Vec<f64>,
    of_all: f64,
    halving: f64,
    of_decided: f64,
}

#[derive(Deserialize)]
struct Clustered {
    differences: Vec<f64>,
    prompts: Vec<usize>,
    draws: Vec<Vec<usize>>,
    mean: f64,
    percentile: [f64; 2],
    #[serde(rename = "BCa")]
    bca: [f64; 2],
    #[serde(rename = "percentile of many")]
    percentile_of_many: [f64; 2],
    #[serde(rename = "BCa of many")]
    bca_of_many: [f64; 2],
}

fn fixtures() -> Fixtures {
    serde_json::from_str(include_str!("fixtures/stats.json")).unwrap()
}

#[track_caller]
fn agrees(ours: f64, theirs: f64) {
    assert!((ours - theirs).abs() <= TOLERANCE * theirs.abs().max(1.0), "{ours} against {theirs}");
}

/// Even a tiny p-value must agree in its digits.
#[track_caller]
fn agrees_relatively(ours: f64, theirs: f64) {
    assert!((ours - theirs).abs() <= TOLERANCE * theirs, "{ours} against {theirs}");
}

#[test]
fn fronts_and_hypervolumes_agree_with_moocore_and_pymoo() {
    for case in fixtures().frontiers {
        assert_eq!(front(&case.points), case.front);
        agrees(hypervolume(&case.points, case.reference), case.hypervolume);
    }
}

#[test]
fn spacings_agree_with_scipy_distances() {
    for case in fixtures().frontiers {
        for (distance, theirs) in [(Distance::Schott, case.schott), (Distance::Published, case.published)] {
            let ours = spacing(&case.points, distance);
            assert_eq!(ours.is_some(), theirs.is_some());
            agrees(ours.unwrap_or(0.0), theirs.unwrap_or(0.0));
        }
    }
}

#[test]
fn harmonic_means_agree_with_scipy() {
    for case in fixtures().harmonic_means {
        agrees(harmonic_mean(&case.values, 0.0), case.mean);
    }
}

#[test]
fn signed_rank_tests_agree_with_scipy() {
    let cases = fixtures().wilcoxon;
    assert!(cases.iter().any(|case| case.differences.contains(&0.0)));
    let mut exact = 0;
    for case in cases {
        let rule = match case.zeros.as_str() {
            "wilcox" => ZeroRule::Wilcox,
            "pratt" => ZeroRule::Pratt,
            _ => ZeroRule::Zsplit,
        };
        let auto = Wilcoxon::of(&case.differences, rule);
        // SciPy returns the smaller of the two sums.
        agrees(auto.positive.min(auto.negative), case.statistic);
        agrees_relatively(auto.p, case.auto);
        exact += usize::from(auto.exact);
    }
    assert!(exact > 0 && exact < 18, "{exact} of 18 cases are exact");
}

#[test]
fn rank_correlations_agree_with_scipy() {
    for case in fixtures().spearman {
        let ours = Spearman::of(&case.x, &case.y).unwrap();
        agrees(ours.rho, case.rho);
        agrees_relatively(ours.p, case.p);
        if let Some(theirs) = case.exact {
            agrees_relatively(ours.exact_p.unwrap(), theirs);
        }
        assert_eq!(ours.exact_p.is_some(), case.x.len() <= 10);
    }
}

/// With two points, every standardised axis is 1 and −1, so only the order of the points counts.
#[test]
fn pooled_steering_ties_what_is_equal_on_paper() {
    let weights = [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]];
    let pooled = |achieved: [[f64; 3]; 2]| Steering::of(&weights, &achieved, 1).pooled.unwrap().rho;
    let plain = pooled([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]);
    for achieved in
        [[[0.7, 0.11, 0.83], [0.4, 0.31, 0.27]], [[0.53, 0.1, 0.9], [0.49, 0.7, 0.37]], [[0.3, 0.1, 0.2], [0.1, 0.7, 0.13]]]
    {
        assert_eq!(pooled(achieved), plain);
    }
}

/// Means in thirds on one axis and in tenths on the other tie once both are standardised. The
/// expected coefficient is computed with fractions.
#[test]
fn standardised_axes_tie_where_their_exact_values_do() {
    let weights: Vec<[f64; 2]> = (0..6).map(|fifth| [f64::from(fifth) / 5.0, f64::from(5 - fifth) / 5.0]).collect();
    let achieved = [[0.0, 0.3], [1.0 / 3.0, 0.3], [1.0 / 3.0, 0.2], [2.0 / 3.0, 0.1], [1.0, 0.1], [1.0, 0.0]];
    let rho = Steering::of(&weights, &achieved, 1).pooled.unwrap().rho;
    assert!((rho - 0.971_008_312_455_224_5).abs() < 1e-12, "{rho}");
}

#[test]
fn steering_agrees_with_scipy() {
    let case = fixtures().steering;
    let ours = Steering::of(&case.weights, &case.achieved, 1);
    for (ours, theirs) in ours.axes.iter().zip(&case.axes) {
        let ours = ours.unwrap();
        agrees(ours.rho, theirs.rho);
        agrees_relatively(ours.p, theirs.p);
        agrees(ours.slope, theirs.slope);
        agrees(ours.range.unwrap(), theirs.range);
    }
    let pooled = ours.pooled.unwrap();
    assert_eq!(pooled.n, 21);
    agrees(pooled.rho, case.pooled.rho);
    agrees_relatively(pooled.p, case.pooled.p);
    agrees_relatively(pooled.permutation_p.unwrap(), case.pooled.permutation_p);
    agrees(pooled.slope, case.pooled.slope);
}

#[test]
fn bootstrap_intervals_agree_with_scipy() {
    for case in fixtures().bootstrap {
        // The jackknife values come from the sample, and the resamples from SciPy.
        let total: f64 = case.sample.iter().sum();
        let rest = (case.sample.len() - 1) as f64;
        let jackknife = case.sample.iter().map(|value| (total - value) / rest).collect();
        let ours = Bootstrap::from_parts(total / case.sample.len() as f64, case.distribution, jackknife);
        for (ours, theirs) in
            [(ours.percentile(0.95), case.percentile), (ours.bca(0.95), case.bca), (ours.bca(0.8), case.bca_at_four_fifths)]
        {
            agrees(ours.low, theirs[0]);
            agrees(ours.high, theirs[1]);
        }
        let own = Bootstrap::of_mean(&case.sample, 20_000, 1);
        agrees(own.estimate(), ours.estimate());
        // The standard error of a mean over resamples tends to population std/√n. With 20,000
        // resamples it is accurate to half a per cent.
        let expected = population_std(&case.sample) / (case.sample.len() as f64).sqrt();
        assert!((own.standard_error() / expected - 1.0).abs() < 0.02);
    }
}

#[test]
fn a_bootstrap_keeps_what_leaving_out_each_value_gives() {
    // The means of 2 and 6, of 1 and 6, and of 1 and 2.
    let by_hand = Bootstrap::from_parts(3.0, Vec::new(), vec![4.0, 3.5, 1.5]);
    assert_eq!(Bootstrap::of_mean(&[1.0, 2.0, 6.0], 0, 1), by_hand);
}

#[test]
fn clustered_intervals_agree_with_scipy() {
    const RESAMPLES: usize = 200_000;
    for case in fixtures().clustered {
        let clusters = Clusters::of(&case.differences, &case.prompts);
        let mut groups: BTreeMap<_, Vec<f64>> = BTreeMap::new();
        case.prompts.iter().zip(&case.differences).for_each(|(prompt, value)| groups.entry(prompt).or_default().push(*value));
        let groups: Vec<Vec<f64>> = groups.into_values().collect();
        let mean = |drawn: &[usize]| {
            let all: Vec<f64> = drawn.iter().flat_map(|&cluster| groups[cluster].iter().copied()).collect();
            all.iter().sum::<f64>() / all.len() as f64
        };
        let all: Vec<usize> = (0..groups.len()).collect();
        let without = |out: usize| mean(&all.iter().copied().filter(|&cluster| cluster != out).collect::<Vec<_>>());
        let resamples = case.draws.iter().map(|drawn| mean(drawn)).collect();
        let of_given = Bootstrap::from_parts(mean(&all), resamples, all.iter().map(|&out| without(out)).collect());
        agrees(of_given.estimate(), case.mean);
        let own = Bootstrap::of_clustered_mean(&clusters, RESAMPLES, 1);
        for (ours, theirs) in [(of_given.percentile(0.95), case.percentile), (of_given.bca(0.95), case.bca)] {
            agrees(ours.low, theirs[0]);
            agrees(ours.high, theirs[1]);
        }
        // With B draws, a quantile at 2.5 % has the standard error 2.67 s/√B. SciPy uses twice as
        // many draws, and skewness widens one end. Allow five standard errors of the difference,
        // doubled.
        let noise = 10.0 * 2.67 * own.standard_error() * (1.5 / RESAMPLES as f64).sqrt();
        for (ours, theirs) in [(own.percentile(0.95), case.percentile_of_many), (own.bca(0.95), case.bca_of_many)] {
            assert!(
                (ours.low - theirs[0]).abs() < noise && (ours.high - theirs[1]).abs() < noise,
                "{ours:?}, {theirs:?}, {noise}"
            );
        }
    }
}

#[test]
fn f1_agrees_with_scipy_under_its_three_definitions() {
    for case in fixtures().f1 {
        let theirs = [case.of_mean_axes, case.mean_of_configurations, case.mean_of_cells];
        for (f1, theirs) in F1::ALL.into_iter().zip(theirs) {
            agrees(f1.of(&case.cells, 0.0), theirs);
        }
    }
}

#[test]
fn win_rates_agree_with_numpy() {
    for case in fixtures().win_rates {
        let ours = WinRate::of(&case.differences);
        agrees(ours.of_all(), case.of_all);
        agrees(ours.halving_ties(), case.halving);
        agrees(ours.of_decided(), case.of_decided);
    }
}

#[test]
fn holm_agrees_with_statsmodels() {
    for case in fixtures().holm {
        for (ours, theirs) in holm(&case.p).into_iter().zip(case.adjusted) {
            agrees(ours, theirs);
        }
    }
}

#[test]
fn f1_under_its_three_definitions_by_hand() {
    // Two axes, and two configurations: one with one cell, one with two.
    let cells = [vec![[1.0, 0.5]], vec![[1.0, 0.0], [0.2, 1.0]]];
    // Mean axes 2.2/3 and 1.5/3: 2·(2.2/3)(0.5)/(2.2/3 + 0.5) = 2.2/3.7.
    agrees(F1::OfMeanAxes.of(&cells, 0.0), 2.2 / 3.7);
    // 2/3, and for (0.6, 0.5): 0.6/1.1.
    agrees(F1::MeanOfConfigurations.of(&cells, 0.0), (2.0 / 3.0 + 0.6 / 1.1) / 2.0);
    // 2/3, 0, and 0.4/1.2.
    agrees(F1::MeanOfCells.of(&cells, 0.0), (2.0 / 3.0 + 0.0 + 1.0 / 3.0) / 3.0);
    // Scores that were not judged are left out: the mean axes are 1 and 0.75, and the second
    // configuration is (NaN, 1).
    let blank = [vec![[1.0, 0.5]], vec![[f64::NAN, 1.0]]];
    agrees(F1::OfMeanAxes.of(&blank, 0.0), 1.5 / 1.75);
    agrees(F1::MeanOfConfigurations.of(&blank, 0.0), 2.0 / 3.0);
    agrees(F1::MeanOfCells.of(&blank, 0.0), 2.0 / 3.0);
    assert!(F1::ALL.iter().all(|f1| f1.of(&[vec![[f64::NAN, 1.0]]], 0.0).is_nan()));
    // A floor raises the cell with a zero to 2/(1 + 1/floor).
    agrees(F1::MeanOfCells.of(&cells, 0.01), (2.0 / 3.0 + 2.0 / 101.0 + 1.0 / 3.0) / 3.0);
}

#[test]
fn ties_are_counted_as_the_name_says() {
    let rate = WinRate::of(&[1.0, 2.0, 0.0, -1.0]);
    assert_eq!((rate.wins, rate.ties, rate.losses), (2, 1, 1));
    assert_eq!((rate.of_all(), rate.halving_ties()), (0.5, 0.625));
    agrees(rate.of_decided(), 2.0 / 3.0);
    // Means that are equal in exact arithmetic.
    let (a, b) = ((0.1 + 0.2 + 0.3) / 3.0, 0.2);
    assert!(a != b && snap(a - b) == 0.0);
}

#[test]
fn clusters_widen_the_interval_of_repeated_cells() {
    // Ten prompts, each with the same difference seven times: seventy cells, but only ten
    // independent observations.
    let differences: Vec<f64> = (0..70).map(|cell| f64::from(cell % 10) - 3.0).collect();
    let prompts: Vec<i32> = (0..70).map(|cell| cell % 10).collect();
    let clusters = Clusters::of(&differences, &prompts);
    assert_eq!((clusters.len(), clusters.means()[9]), (10, 6.0));
    let cells = Bootstrap::of_mean(&differences, 4000, 1);
    let prompts = Bootstrap::of_clustered_mean(&clusters, 4000, 1);
    agrees(cells.estimate(), prompts.estimate());
    // √7 ≈ 2.65; with 4000 resamples, a bootstrap standard error is accurate to about 1%.
    let ratio = prompts.standard_error() / cells.standard_error();
    assert!((2.5..2.8).contains(&ratio), "{ratio}");
}

#[test]
fn nan_is_no_difference_and_has_no_correlation() {
    let differences = [0.5, f64::NAN, -0.25, 0.0, 1.5, 2.0, -f64::NAN];
    let numbers: Vec<f64> = differences.iter().copied().filter(|difference| !difference.is_nan()).collect();
    for rule in [ZeroRule::Wilcox, ZeroRule::Pratt, ZeroRule::Zsplit] {
        assert_eq!(Wilcoxon::of(&differences, rule), Wilcoxon::of(&numbers, rule));
    }
    // NaN does not count towards the most differences of the exact distribution either.
    let many: Vec<f64> = (1..=50).map(f64::from).chain([f64::NAN]).collect();
    assert!(Wilcoxon::of(&many, ZeroRule::Wilcox).exact);
    let (x, y) = ([1.0, 2.0, 3.0, f64::NAN], [1.0, 2.0, 4.0, 3.0]);
    assert_eq!((Spearman::of(&x, &y), Spearman::of(&y, &x)), (None, None));
    assert_eq!((pearson(&x, &y), pearson(&y, &x)), (None, None));
    assert_eq!(pearson(&[1.0, 2.0, f64::INFINITY], &[1.0, 2.0, 4.0]), None);
}

#[test]
fn a_correlation_is_the_same_in_any_unit() {
    let (x, y) = ([1.0, 2.0, 3.0, 5.0], [4.0, 1.0, 0.5, -1.0]);
    let rho = pearson(&x, &y).unwrap();
    assert!((pearson(&[0.0, 1.0, f64::MAX], &[1.0, 2.0, 4.0]).unwrap() - 0.944_911_182_523_068).abs() < 1e-12);
    for unit in [1e-300_f64, 1e-200, 1e-90, 1e90, 1e200, 3e307] {
        for other in [1.0, unit, unit.recip()] {
            let found = pearson(&x.map(|x| unit * x), &y.map(|y| other * y)).unwrap();
            assert!((found - rho).abs() < 1e-12, "{found} is not {rho} in {unit:e} and {other:e}");
        }
    }
}

#[test]
fn what_has_no_answer_says_so() {
    assert!(Wilcoxon::of(&[0.0, 0.0], ZeroRule::Wilcox).p.is_nan() && Wilcoxon::of(&[], ZeroRule::Pratt).p.is_nan());
    assert!(Spearman::of(&[1.0, 1.0, 1.0], &[1.0, 2.0, 3.0]).is_none() && Spearman::of(&[1.0, 2.0], &[1.0, 2.0]).is_none());
    assert!(slope(&[0.1; 3], &[1.0, 2.0, 4.0]).is_nan() && slope(&[], &[]).is_nan());
    assert!(spacing(&[[0.0; 3]], Distance::Schott).is_none());
    assert_eq!((hypervolume::<[f64; 3]>(&[], [0.0; 3]), front::<[f64; 3]>(&[])), (0.0, vec![]));
    assert!(Bootstrap::of_mean(&[2.0, 2.0], 50, 1).bca(0.95).is_none());
    let nothing = Bootstrap::of_mean(&[], 50, 1);
    assert!(nothing.estimate().is_nan() && nothing.percentile(0.95).low.is_nan() && nothing.bca(0.95).is_none());
    let family = holm(&[0.02, f64::NAN, 0.03]);
    assert!(family[1].is_nan() && [family[0], family[2]] == [0.04, 0.04]);
    assert!(median(&[]).is_nan());
    let still = Steering::of(&[[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], &[[0.1; 2]; 3], 1);
    assert!(still.axes.iter().all(Option::is_none) && still.pooled.is_none());
}

#[test]
fn an_interval_of_a_statistic_that_is_undefined_on_a_resample_is_absent() {
    // One unit in five has a value, so a third of the resamples have none. Which NaN stands for it
    // makes no difference.
    let values = [0.5, f64::NAN, f64::NAN, f64::NAN, 0.25];
    for undefined in [f64::NAN, -f64::NAN] {
        let known = |drawn: &[usize]| {
            let known: Vec<f64> = drawn.iter().map(|&i| values[i]).filter(|value| !value.is_nan()).collect();
            if known.is_empty() { undefined } else { known.iter().sum::<f64>() / known.len() as f64 }
        };
        for units in [5, 2] {
            let bootstrap = Bootstrap::new(units, 4000, 3, known);
            let intervals = [bootstrap.percentile(0.95), bootstrap.bca(0.95), bootstrap.normal(0.95)];
            assert!(intervals.iter().all(|interval| interval.low.is_nan() && interval.high.is_nan()), "{intervals:?}");
        }
    }
}

#[test]
fn equal_differences_have_no_acceleration() {
    // The mean of ten times 0.1 differs from 0.1 by rounding.
    for n in 2..40 {
        for value in [0.1, 0.7, 1.0 / 3.0] {
            let bootstrap = Bootstrap::of_mean(&vec![value; n], 50, 1);
            assert!(bootstrap.bca(0.95).is_none(), "{n} times {value}: {:?}", bootstrap.bca(0.95));
        }
    }
}

#[test]
fn an_axis_takes_every_point_that_has_it() {
    let weights = [[1.0, 0.0], [0.75, 0.25], [0.25, 0.75], [0.0, 1.0]];
    let achieved = [[0.9, f64::NAN], [0.8, 0.1], [0.4, 0.3], [0.1, 0.5]];
    let steering = Steering::of(&weights, &achieved, 1);
    let found = |axis: usize| steering.axes[axis].map(|axis| (axis.n, axis.rho)).unwrap();
    assert_eq!((found(0), found(1)), ((4, 1.0), (3, 1.0)));
    // The pooled statistic uses the three points that have both axes.
    let pooled = steering.pooled.unwrap();
    assert_eq!(pooled, Steering::of(&weights[1..], &achieved[1..], 1).pooled.unwrap());
    assert_eq!(pooled.n, 6);
}

/// Points on a coarse lattice, so that some coincide, share coordinates, or lie on the reference.
fn lattice_points() -> impl Strategy<Value = Vec<[f64; 3]>> {
    prop::collection::vec(prop::array::uniform3((0..=8_u8).prop_map(|step| f64::from(step) / 8.0)), 1..14)
}

/// Differences with ties and zeros.
fn differences() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec((-6..=6_i8).prop_map(|step| f64::from(step) / 4.0), 1..12)
}

/// The hypervolume, by counting the lattice cells that some point dominates.
fn counted(points: &[[f64; 3]]) -> f64 {
    let inside = |cell: [u8; 3]| points.iter().any(|p| (0..3).all(|axis| f64::from(cell[axis]) + 1.0 <= p[axis] * 8.0));
    let cells = (0..8).flat_map(|x| (0..8).flat_map(move |y| (0..8).map(move |z| [x, y, z])));
    cells.filter(|&cell| inside(cell)).count() as f64 / 512.0
}

#[test]
fn several_statistics_share_the_resamples_of_one() {
    let values = [0.3, -0.1, 0.8, 0.4, 0.2];
    let mean = |drawn: &[usize]| drawn.iter().map(|&i| values[i]).sum::<f64>() / drawn.len() as f64;
    let least = |drawn: &[usize]| drawn.iter().map(|&i| values[i]).fold(f64::INFINITY, f64::min);
    let several = Bootstrap::several(5, 2, 300, 3, |drawn, found| found.copy_from_slice(&[mean(drawn), least(drawn)]));
    for (one, alone) in several.iter().zip([Bootstrap::new(5, 300, 3, mean), Bootstrap::new(5, 300, 3, least)]) {
        assert_eq!([one.estimate(), one.standard_error()], [alone.estimate(), alone.standard_error()]);
        assert_eq!(one.percentile(0.95), alone.percentile(0.95));
        // Only a statistic that is bootstrapped alone is computed without each unit.
        assert!(one.bca(0.95).is_none() && !alone.bca(0.95).is_none());
    }
    let none = Bootstrap::several(0, 1, 10, 3, |_, _| panic!("nothing is drawn"));
    assert!(none[0].estimate().is_nan() && none[0].percentile(0.95).low.is_nan());
}

#[test]
fn a_normal_interval_is_the_estimate_and_its_error() {
    let bootstrap = Bootstrap::of_mean(&[0.1, 0.4, -0.2, 0.3, 0.5], 500, 42);
    let interval = bootstrap.normal(0.95);
    // 1.959964 is the normal quantile at 97.5%.
    assert!((interval.high - bootstrap.estimate() - 1.959_964 * bootstrap.standard_error()).abs() < 1e-6);
    assert!((interval.low + interval.high - 2.0 * bootstrap.estimate()).abs() < 1e-12);
    assert!(Bootstrap::of_mean(&[0.1], 10, 1).normal(0.95).low.is_nan());
}

#[test]
fn steering_is_resampled_by_prompt() {
    let weights: Vec<Vec<f64>> = (0..6).map(|i| vec![f64::from(i) / 5.0, 1.0 - f64::from(i) / 5.0]).collect();
    // Scores that follow the weights, less closely for later prompts. One is blank.
    let mut prompts: Vec<Vec<f64>> = (0..5_u32)
        .map(|prompt| {
            let score = |(place, weight): (usize, &f64)| weight + f64::from(prompt * (place as u32 * 7 % 5)) / 4.0;
            weights.concat().iter().enumerate().map(score).collect()
        })
        .collect();
    prompts[2][3] = f64::NAN;
    // The expected values: coefficients of the means, computed for each resample in turn.
    let achieved = |drawn: &[usize]| -> Vec<Vec<f64>> {
        let mean = |place: usize| {
            let known: Vec<f64> = drawn.iter().map(|&prompt| prompts[prompt][place]).filter(|score| !score.is_nan()).collect();
            let mean = known.iter().sum::<f64>() / known.len() as f64;
            (mean * 1e9).round() / 1e9
        };
        (0..6).map(|point| (0..2).map(|axis| mean(2 * point + axis)).collect()).collect()
    };
    let axis = |k: usize, drawn: &[usize]| Steering::of(&weights, &achieved(drawn), 1).axes[k].map_or(f64::NAN, |axis| axis.rho);
    let pooled = |drawn: &[usize]| Steering::of(&weights, &achieved(drawn), 1).pooled.map_or(f64::NAN, |pooled| pooled.rho);
    let found = Steering::bootstrap(&weights, &prompts, 40, 9);
    assert_eq!(found.len(), 3);
    let expected = [
        Bootstrap::new(5, 40, 9, |drawn| axis(0, drawn)),
        Bootstrap::new(5, 40, 9, |drawn| axis(1, drawn)),
        Bootstrap::new(5, 40, 9, pooled),
    ];
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found.estimate() - expected.estimate()).abs() < 1e-12);
        assert!((found.standard_error() - expected.standard_error()).abs() < 1e-12 && found.standard_error() > 0.0);
    }
    assert!(Steering::bootstrap::<Vec<f64>>(&[], &[], 10, 1).is_empty());
}

#[test]
fn hypervolume_of_many_axes_is_between_the_largest_box_and_the_sum() {
    // Points on a sphere, none of which dominates another. Fifty of ten axes would take half a
    // minute and more if volumes were cut into slabs.
    let axes = 10;
    let points: Vec<Vec<f64>> = (0..50_u64)
        .map(|i| {
            let of = |k: u64| 0.1 + ((i * 7919 + k * 104_729 + i * i * k * 31) % 1009) as f64 / 1009.0;
            let point: Vec<f64> = (0..axes).map(of).collect();
            let length = point.iter().map(|x| x * x).sum::<f64>().sqrt();
            point.into_iter().map(|x| x / length).collect()
        })
        .collect();
    let volume = hypervolume(&points, vec![0.0; axes as usize]);
    let largest = points.iter().map(|point| point.iter().product::<f64>()).fold(0.0, f64::max);
    let sum: f64 = points.iter().map(|point| point.iter().product::<f64>()).sum();
    assert!(largest < volume && volume < sum, "{largest} < {volume} < {sum}");
}

proptest! {
    #[test]
    fn hypervolume_is_the_number_of_cells_below(points in lattice_points()) {
        // Multiples of 1/8 are exact.
        prop_assert_eq!(hypervolume(&points, [0.0; 3]), counted(&points));
    }

    #[test]
    fn hypervolume_of_any_dimension_is_the_number_of_cells_below(
        points in (1..=5_usize).prop_flat_map(|d| prop::collection::vec(prop::collection::vec(0..=4_u8, d), 1..8)),
    ) {
        let d = points[0].len();
        let scaled: Vec<Vec<f64>> = points.iter().map(|point| point.iter().map(|&x| f64::from(x) / 4.0).collect()).collect();
        let below = |cell: usize| {
            points.iter().any(|point| (0..d).all(|axis| cell / 4_usize.pow(axis as u32) % 4 < usize::from(point[axis])))
        };
        let cells = 4_usize.pow(d as u32);
        let counted = (0..cells).filter(|&cell| below(cell)).count() as f64 / cells as f64;
        prop_assert_eq!(hypervolume(&scaled, vec![0.0; d]), counted);
    }

    #[test]
    fn hypervolume_grows_with_points_and_falls_with_the_reference(points in lattice_points(), extra in lattice_points(), by in 0.0..0.5) {
        let volume = hypervolume(&points, [0.0; 3]);
        let more = [points.clone(), extra].concat();
        prop_assert!(hypervolume(&more, [0.0; 3]) >= volume);
        prop_assert!(hypervolume(&points, [by, 0.0, 0.0]) <= volume);
    }

    #[test]
    fn only_the_front_counts_and_order_does_not(points in lattice_points(), turn in 0..14_usize) {
        let best: Vec<[f64; 3]> = front(&points).into_iter().map(|i| points[i]).collect();
        prop_assert_eq!(hypervolume(&best, [0.0; 3]), hypervolume(&points, [0.0; 3]));
        let mut turned = points.clone();
        turned.rotate_left(turn % points.len());
        prop_assert_eq!(hypervolume(&turned, [0.0; 3]), hypervolume(&points, [0.0; 3]));
        prop_assert_eq!(front(&turned).len(), best.len());
        for distance in [Distance::Schott, Distance::Published] {
            let (a, b) = (spacing(&turned, distance), spacing(&points, distance));
            // The sums run in another order.
            prop_assert!(a.zip(b).is_none_or(|(a, b)| (a - b).abs() < 1e-12));
        }
    }

    #[test]
    fn each_point_is_on_the_front_or_dominated_by_one_that_is(points in lattice_points()) {
        let best = front(&points);
        prop_assert!(!best.is_empty());
        for (i, point) in points.iter().enumerate() {
            let beaten = best.iter().any(|&j| dominates(&points[j], point));
            prop_assert!(beaten != best.contains(&i));
        }
    }

    #[test]
    fn the_three_f1_are_ordered(cells in prop::collection::vec(prop::collection::vec(prop::array::uniform3(0.0..1.0_f64), 5), 1..5)) {
        // Holds because the harmonic mean is concave and configurations have equal sizes, as in a
        // sweep.
        let [axes, configurations, each] = F1::ALL.map(|f1| f1.of(&cells, 0.0));
        prop_assert!(axes >= configurations - 1e-12 && configurations >= each - 1e-12);
    }

    #[test]
    fn signed_ranks_do_not_see_order_or_scale_and_mirror_with_sign(differences in differences(), turn in 0..12_usize) {
        for rule in [ZeroRule::Wilcox, ZeroRule::Pratt, ZeroRule::Zsplit] {
            let test = Wilcoxon::of(&differences, rule);
            let mut turned: Vec<f64> = differences.iter().map(|d| 3.0 * d).collect();
            turned.rotate_left(turn % differences.len());
            let same = Wilcoxon::of(&turned, rule);
            prop_assert_eq!((same.positive, same.negative), (test.positive, test.negative));
            // Probabilities of sign patterns are multiples of 2⁻¹¹, so sums are exact in any order.
            prop_assert!(same.p == test.p || test.p.is_nan());
            let mirrored = Wilcoxon::of(&differences.iter().map(|d| -d).collect::<Vec<_>>(), rule);
            prop_assert_eq!((mirrored.positive, mirrored.negative), (test.negative, test.positive));
            prop_assert!(mirrored.p == test.p || test.p.is_nan());
        }
    }

    #[test]
    fn exact_signed_ranks_are_what_counting_signs_gives(differences in differences()) {
        let found = Wilcoxon::of(&differences, ZeroRule::Wilcox);
        let kept: Vec<f64> = differences.iter().copied().filter(|&d| d != 0.0).collect();
        if !kept.is_empty() {
            let sum = |signs: usize| -> f64 {
                let flipped: Vec<f64> = kept.iter().enumerate().map(|(i, d)| if signs >> i & 1 == 1 { d.abs() } else { -d.abs() }).collect();
                Wilcoxon::of(&flipped, ZeroRule::Wilcox).positive
            };
            let patterns = 1 << kept.len();
            let at_most = (0..patterns).filter(|&signs| sum(signs) <= found.positive).count();
            let at_least = (0..patterns).filter(|&signs| sum(signs) >= found.positive).count();
            prop_assert_eq!(found.p, (2.0 * at_most.min(at_least) as f64 / patterns as f64).min(1.0));
        }
    }

    #[test]
    fn rank_correlation_sees_ranks_alone(pairs in prop::collection::vec((-5..=5_i8, -5..=5_i8), 3..8)) {
        let (x, y): (Vec<f64>, Vec<f64>) = pairs.iter().map(|&(x, y)| (f64::from(x), f64::from(y))).unzip();
        if let Some(found) = Spearman::of(&x, &y) {
            prop_assert!((-1.0..=1.0).contains(&found.rho) && (0.0..=1.0).contains(&found.p));
            prop_assert!(found.exact_p.is_some_and(|p| p > 0.0 && p <= 1.0));
            prop_assert_eq!(Spearman::of(&x.iter().map(|x| x.exp()).collect::<Vec<_>>(), &y), Some(found));
            let reversed = Spearman::of(&x, &y.iter().map(|y| -y).collect::<Vec<_>>()).unwrap();
            prop_assert!((reversed.rho + found.rho).abs() < 1e-12 && reversed.exact_p == found.exact_p);
        }
    }

    #[test]
    fn corrected_p_values_are_larger_and_keep_their_order(p in prop::collection::vec(0.0..=1.0_f64, 1..8)) {
        let adjusted = holm(&p);
        for i in 0..p.len() {
            prop_assert!(adjusted[i] >= p[i] && adjusted[i] <= (p.len() as f64 * p[i]).min(1.0));
            for j in 0..p.len() {
                prop_assert!(p[i] > p[j] || adjusted[i] <= adjusted[j]);
            }
        }
    }

    #[test]
    fn intervals_shift_and_rescale_with_the_data(differences in prop::collection::vec(-1.0..1.0_f64, 8..20), shift in -2.0..2.0_f64) {
        let interval = Bootstrap::of_mean(&differences, 200, 7).percentile(0.9);
        let moved = Bootstrap::of_mean(&differences.iter().map(|d| 2.0 * d + shift).collect::<Vec<_>>(), 200, 7).percentile(0.9);
        prop_assert!((moved.low - 2.0 * interval.low - shift).abs() < 1e-9 && (moved.high - 2.0 * interval.high - shift).abs() < 1e-9);
        prop_assert!(interval.low <= interval.high);
    }
}

/// The table of coverage in the page on statistics.
#[test]
fn percentile_intervals_are_too_narrow_for_few_prompts() {
    const SAMPLES: u32 = 1500;
    /// Three standard errors of a share of the samples.
    const TOLERANCE: f64 = 0.04;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    // The method of Box and Muller.
    let mut normal = || {
        let (radius, turn): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * turn).cos()
    };
    for (prompts, coverage) in [(2, 0.50), (4, 0.80), (6, 0.86), (10, 0.90), (20, 0.92), (40, 0.94)] {
        let mut covers = || {
            let differences: Vec<f64> = (0..prompts).map(|_| normal()).collect();
            let interval = Bootstrap::of_mean(&differences, 500, 1).percentile(0.95);
            interval.low <= 0.0 && 0.0 <= interval.high
        };
        let found = f64::from((0..SAMPLES).map(|_| u32::from(covers())).sum::<u32>()) / f64::from(SAMPLES);
        assert!((found - coverage).abs() < TOLERANCE, "{found} of {prompts} prompts");
    }
}
