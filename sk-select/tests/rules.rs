//! Each rule worked out by hand, and properties of all rules.

use proptest::collection::vec;
use proptest::prelude::*;
use sk_core::{Batch, Deviation, OperatingPoint, Selector, Standardize};
use sk_select::{Argmax, Champion, Criterion, EpsilonArgmax, Gate, GateFallback, Nucleus, PlackettLuce, Softmax, TopK, Uniform};

/// Rounding of N exponentials and a division.
const TOLERANCE: f64 = 1e-12;

fn select(rule: &dyn Selector, ratings: &[f64], batch: &Batch<'_>) -> Vec<f64> {
    let mut probabilities = vec![f64::NAN; ratings.len()];
    rule.distribution(ratings, batch, &mut probabilities);
    probabilities
}

/// The distribution for ratings alone, with all scores zero.
fn of_ratings(rule: &dyn Selector, ratings: &[f64]) -> Vec<f64> {
    let zeros = vec![0.0; ratings.len()];
    select(rule, ratings, &Batch::trusted(&zeros, &zeros))
}

#[track_caller]
fn assert_close(got: &[f64], expected: &[f64]) {
    let close = got.len() == expected.len() && got.iter().zip(expected).all(|(a, b)| (a - b).abs() < TOLERANCE);
    assert!(close, "{got:?} is not {expected:?}");
}

#[test]
fn argmax_takes_the_lowest_index_of_equals() {
    assert_eq!(of_ratings(&Argmax, &[1.0, 3.0, 3.0, 2.0]), [0.0, 1.0, 0.0, 0.0]);
    assert_eq!(of_ratings(&Argmax, &[-0.0, 0.0]), [1.0, 0.0]);
    assert_eq!(of_ratings(&Argmax, &[-5.0]), [1.0]);
}

#[test]
fn epsilon_is_shared_by_all() {
    let rule = EpsilonArgmax::new(0.2).unwrap();
    // .2/4 for each, and .8 more for the first of the highest.
    assert_close(&of_ratings(&rule, &[1.0, 3.0, 3.0, 2.0]), &[0.05, 0.85, 0.05, 0.05]);
    assert_eq!(of_ratings(&rule, &[-5.0]), [1.0]);
    let ratings = [1.0, 3.0, 3.0, 2.0];
    assert_eq!(of_ratings(&EpsilonArgmax::new(0.0).unwrap(), &ratings), of_ratings(&Argmax, &ratings));
    assert_eq!(of_ratings(&EpsilonArgmax::new(1.0).unwrap(), &ratings), of_ratings(&Uniform, &ratings));
}

#[test]
fn softmax_by_hand() {
    let ratings = [1.0f64.ln(), 2.0f64.ln(), 3.0f64.ln()];
    assert_close(&of_ratings(&Softmax::new(1.0).unwrap(), &ratings), &[1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0]);
    // T = ½ squares the odds.
    assert_close(&of_ratings(&Softmax::new(0.5).unwrap(), &ratings), &[1.0 / 14.0, 4.0 / 14.0, 9.0 / 14.0]);
    // Neither huge ratings nor a tiny temperature overflow, and ties still share.
    assert_eq!(of_ratings(&Softmax::new(1e-300).unwrap(), &[1e300, 1e300, -1e300]), [0.5, 0.5, 0.0]);
}

#[test]
fn top_k_and_nucleus_renormalise_what_they_keep() {
    let ratings = [1.0f64.ln(), 2.0f64.ln(), 3.0f64.ln(), 4.0f64.ln()];
    let softmax = Softmax::new(1.0).unwrap();
    assert_close(&of_ratings(&TopK::new(2, softmax).unwrap(), &ratings), &[0.0, 0.0, 3.0 / 7.0, 4.0 / 7.0]);
    assert_close(&of_ratings(&TopK::new(9, softmax).unwrap(), &ratings), &[0.1, 0.2, 0.3, 0.4]);
    // .4 + .3 reaches .65 but .4 alone does not; a mass of .4 is reached by the first.
    assert_close(&of_ratings(&Nucleus::new(0.65, softmax).unwrap(), &ratings), &[0.0, 0.0, 3.0 / 7.0, 4.0 / 7.0]);
    assert_close(&of_ratings(&Nucleus::new(0.39, softmax).unwrap(), &ratings), &[0.0, 0.0, 0.0, 1.0]);
    assert_close(&of_ratings(&Nucleus::new(1.0, softmax).unwrap(), &ratings), &[0.1, 0.2, 0.3, 0.4]);
    // Of equal ratings, the lowest indices are kept.
    assert_close(&of_ratings(&TopK::new(2, Uniform).unwrap(), &[0.0; 4]), &[0.5, 0.5, 0.0, 0.0]);
    // A mass that is reached exactly counts as reached.
    assert_close(&of_ratings(&Nucleus::new(0.5, Uniform).unwrap(), &[0.0; 4]), &[0.5, 0.5, 0.0, 0.0]);
    assert_close(&of_ratings(&Nucleus::new(0.6, Uniform).unwrap(), &[0.0; 4]), &[1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 0.0]);
    // So does a mass that the sum misses by rounding.
    for (mass, candidates, kept) in [(0.5, 12, 6), (0.8, 10, 8), (0.9, 10, 9), (1.0, 10, 10), (0.3, 10, 3), (0.31, 10, 4)] {
        let held = of_ratings(&Nucleus::new(mass, Uniform).unwrap(), &vec![0.0; candidates]);
        assert_eq!(held.iter().filter(|&&p| p > 0.0).count(), kept, "{mass} of {candidates}");
    }
    // In f32 too, where a plain sum over a vocabulary would be off by a hundredth.
    let candidates = 160_000;
    let (scores, mut held) = (vec![0.0f32; candidates], vec![f32::NAN; candidates]);
    Nucleus::new(0.95, Uniform).unwrap().distribution(&scores, &Batch::trusted(&scores, &scores), &mut held);
    assert_eq!(held.iter().filter(|&&p| p > 0.0).count(), 152_000);
}

#[test]
fn probabilities_in_single_precision_sum_to_one() {
    let candidates = 150_000;
    let (zeros, mut p) = (vec![0.0f32; candidates], vec![f32::NAN; candidates]);
    let mut ratings = vec![-17.0f32; candidates];
    ratings[0] = 0.0;
    let softmax = Softmax::new(1.0).unwrap();
    for rule in [&softmax as &dyn Selector<f32>, &TopK::new(candidates - 1, softmax).unwrap()] {
        rule.distribution(&ratings, &Batch::trusted(&zeros, &zeros), &mut p);
        let sum: f64 = p.iter().copied().map(f64::from).sum();
        // Each probability is rounded to f32 once.
        assert!((sum - 1.0).abs() < 1e-7, "{sum}");
    }
}

#[test]
fn champion_by_hand() {
    // Each quantity has mean 0 and sample standard deviation 1.
    let (ratings, mu, sigma) = ([1501.0, 1500.0, 1499.0], [0.0, 1.0, -1.0], [1.0, 2.0, 3.0]);
    let point = OperatingPoint { temperature: 2.0, w_tour: 0.5, w_blade: 1.5, lambda: 0.2, ..OperatingPoint::HHH };
    // (.5·1 + 1.5·(0 + .2), .5·0 + 1.5·(1 + 0), −.5 + 1.5·(−1 − .2)) / 2
    let logits = [0.4f64, 0.75, -1.15];
    let total: f64 = logits.iter().map(|l| l.exp()).sum();
    let batch = Batch::trusted(&mu, &sigma);
    assert_close(&select(&Champion::sound(&point).unwrap(), &ratings, &batch), &logits.map(|l| l.exp() / total));
    // ε = 1e-6 shrinks all three by the same factor.
    let total: f64 = logits.iter().map(|l| (l / (1.0 + 1e-6)).exp()).sum();
    let paper = select(&Champion::paper(&point).unwrap(), &ratings, &batch);
    assert_close(&paper, &logits.map(|l| (l / (1.0 + 1e-6)).exp() / total));
    // Without standardisation the ratings enter unchanged.
    let plain = select(&Champion::new(&point, None).unwrap(), &[3.0, 2.0, 1.0], &batch);
    let logits = [0.5 * 3.0 + 1.5 * -0.2, 0.5 * 2.0 + 1.5 * (1.0 - 0.4), 0.5 + 1.5 * (-1.0 - 0.6)].map(|l: f64| l / 2.0);
    let total: f64 = logits.iter().map(|l| l.exp()).sum();
    assert_close(&plain, &logits.map(|l| l.exp() / total));
    let population = Standardize::new(Deviation::Population, 0.0, 0.0).unwrap();
    let p = select(&Champion::new(&point, Some(population)).unwrap(), &ratings, &batch);
    assert!(p[1] > paper[1], "a smaller divisor is a lower temperature");
}

#[test]
fn a_cold_champion_is_the_highest_logit() {
    let point = |temperature| OperatingPoint { temperature, ..OperatingPoint::HHH };
    let batch = Batch::trusted(&[0.0, 1.0, 1.0], &[0.0; 3]);
    for temperature in [0.0, 9e-6] {
        let cold = Champion::paper(&point(temperature)).unwrap();
        assert_eq!(select(&cold, &[1500.0; 3], &batch), [0.0, 1.0, 0.0]);
    }
    for temperature in [1e-5, 1.1e-5] {
        let warm = Champion::paper(&point(temperature)).unwrap();
        assert_eq!(select(&warm, &[1500.0; 3], &batch), [0.0, 0.5, 0.5]);
    }
}

#[test]
fn gates_restrict_the_inner_rule_to_those_that_pass() {
    let (mu, sigma, fluency) = ([3.0, 2.0, 1.0, -1.0], [4.0, 0.5, 0.0, 0.0], [-1.0, -2.0, -3.0, -4.0]);
    let batch = Batch::trusted(&mu, &sigma).with_trusted_fluency(&fluency);
    let ratings = [1.0, 2.0, 3.0, 4.0];
    let gate = |criterion, threshold, fallback| Gate::new(criterion, threshold, fallback, Argmax).unwrap();
    let through = |gate: Gate<Argmax>| select(&gate, &ratings, &batch).iter().position(|p| *p == 1.0).unwrap();
    assert_eq!(through(gate(Criterion::LowerBound { kappa: 0.0 }, 1.5, GateFallback::Best)), 1);
    assert_eq!(through(gate(Criterion::LowerBound { kappa: 0.0 }, 1.0, GateFallback::Best)), 2);
    assert_eq!(through(gate(Criterion::LowerBound { kappa: 1.0 }, 1.2, GateFallback::Best)), 1);
    assert_eq!(through(gate(Criterion::Fluency, -1.5, GateFallback::Best)), 0);
    assert_eq!(through(gate(Criterion::Rating, f64::NEG_INFINITY, GateFallback::Best)), 3);
    // No candidate passes.
    assert_eq!(through(gate(Criterion::LowerBound { kappa: 0.0 }, 9.0, GateFallback::Best)), 0);
    assert_eq!(through(gate(Criterion::LowerBound { kappa: 0.0 }, 9.0, GateFallback::Open)), 3);
    // Without a fluency blade, the gate excludes no candidate.
    let gate = gate(Criterion::Fluency, 0.0, GateFallback::Best);
    assert_eq!(select(&gate, &ratings, &Batch::trusted(&mu, &sigma)), [0.0, 0.0, 0.0, 1.0]);
}

#[test]
fn a_gate_shows_its_inner_rule_the_passing_candidates_alone() {
    let (mu, sigma, ratings) = ([2.0, 1.0, -50.0], [0.3, 0.1, 9.0], [1510.0, 1505.0, 1450.0]);
    let champion = Champion::sound(&OperatingPoint::HHH).unwrap();
    let gated = Gate::new(Criterion::LowerBound { kappa: 0.0 }, 0.0, GateFallback::Best, champion).unwrap();
    let alone = select(&champion, &ratings[..2], &Batch::trusted(&mu[..2], &sigma[..2]));
    assert_eq!(select(&gated, &ratings, &Batch::trusted(&mu, &sigma)), [alone[0], alone[1], 0.0]);
}

/// By hand: the logits differ by 0 and by −2, where the difference of the ratings overflows, and at
/// temperatures outside the range of single precision.
#[test]
fn softmax_has_no_largest_rating_and_no_least_temperature() {
    let two = 1.0 / (1.0 + (-2f64).exp());
    assert_close(&of_ratings(&Softmax::new(f64::MAX).unwrap(), &[f64::MAX, f64::MIN]), &[two, 1.0 - two]);
    assert_close(&of_ratings(&Softmax::new(5e-324).unwrap(), &[f64::MAX, f64::MIN, f64::MAX]), &[0.5, 0.0, 0.5]);
    for zero in [0.0, -0.0] {
        assert_eq!(of_ratings(&Softmax::new(zero).unwrap(), &[f64::MAX, f64::MIN, f64::MAX]), [0.5, 0.0, 0.5]);
    }
    let single = |temperature: f64, ratings: [f32; 2]| {
        let mut p = [f32::NAN; 2];
        Softmax::new(temperature).unwrap().distribution(&ratings, &Batch::trusted(&[0.0; 2], &[0.0; 2]), &mut p);
        p
    };
    assert_eq!(single(1e-60, [1.0, 1.0]), [0.5, 0.5]);
    assert_eq!(single(1e-60, [1.0, 0.0]), [1.0, 0.0]);
    let p = single(f64::from(f32::MAX), [f32::MAX, f32::MIN]);
    assert!((f64::from(p[0]) - two).abs() < 1e-6 && (p[0] + p[1] - 1.0).abs() < 1e-6, "{p:?}");
    assert_eq!(single(1e60, [f32::MAX, f32::MIN]), [0.5, 0.5]);
}

/// If w_tour·R + w_blade·(μ − λσ) overflows, the differences divided by T still give the right
/// distribution.
#[test]
fn a_plain_champion_has_no_largest_score() {
    let point = OperatingPoint { temperature: 1e308, w_tour: 1.0, w_blade: 3.0, lambda: 1.0, ..OperatingPoint::HHH };
    let champion = |temperature: f64| Champion::new(&OperatingPoint { temperature, ..point }, None).unwrap();
    let batch = Batch::trusted(&[1e308, 1e308, -1e308], &[0.0, 1e308, 1e308]);
    // The logits in units of 1e308: 1 + 3, 1 + 3 − 3 and −1 − 3 − 3.
    let logits = [4.0f64, 1.0, -7.0];
    let total: f64 = logits.iter().map(|l| l.exp()).sum();
    assert_close(&select(&champion(1e308), &[1e308, 1e308, -1e308], &batch), &logits.map(|l| l.exp() / total));
    for temperature in [0.0, 1e-6, 1.0] {
        assert_close(&select(&champion(temperature), &[1e308, 1e308, -1e308], &batch), &[1.0, 0.0, 0.0]);
    }
    let steep = OperatingPoint { w_blade: 1e200, lambda: 1e200, ..point };
    assert_eq!(
        Champion::new(&steep, None).unwrap_err().to_string(),
        "w_blade times lambda is inf; it must be finite and not negative"
    );
}

#[test]
fn impossible_parameters_are_refused() {
    for temperature in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(Softmax::new(temperature).is_err());
    }
    assert!(PlackettLuce::new(0.0).is_err());
    assert!(TopK::new(0, Argmax).is_err());
    for epsilon in [-0.1, 1.1, f64::NAN] {
        assert!(EpsilonArgmax::new(epsilon).is_err());
    }
    for mass in [0.0, -0.5, 1.5, f64::NAN] {
        assert!(Nucleus::new(mass, Argmax).is_err());
    }
    let point = OperatingPoint { lambda: f64::NAN, ..OperatingPoint::HHH };
    assert_eq!(Champion::sound(&point).unwrap_err().to_string(), "lambda is NaN; it must be finite and not negative");
    assert!(Champion::sound(&OperatingPoint { temperature: -1.0, ..OperatingPoint::HHH }).is_err());
    assert!(Gate::new(Criterion::LowerBound { kappa: 0.0 }, f64::NAN, GateFallback::Best, Argmax).is_err());
    assert!(Gate::new(Criterion::LowerBound { kappa: f64::NAN }, 0.0, GateFallback::Best, Argmax).is_err());
}

fn rules() -> Vec<Box<dyn Selector>> {
    let champion = Champion::paper(&OperatingPoint::HHH).unwrap();
    let softmax = Softmax::new(0.7).unwrap();
    vec![
        Box::new(Argmax),
        Box::new(Uniform),
        Box::new(softmax),
        Box::new(PlackettLuce::new(1.3).unwrap()),
        Box::new(EpsilonArgmax::new(0.3).unwrap()),
        Box::new(champion),
        Box::new(Champion::sound(&OperatingPoint { temperature: 0.1, ..OperatingPoint::HHH }).unwrap()),
        Box::new(TopK::new(3, softmax).unwrap()),
        Box::new(Nucleus::new(0.8, TopK::new(5, champion).unwrap()).unwrap()),
        Box::new(Gate::new(Criterion::LowerBound { kappa: 0.0 }, 0.0, GateFallback::Best, champion).unwrap()),
        Box::new(Gate::new(Criterion::LowerBound { kappa: 1.0 }, 0.0, GateFallback::Open, Argmax).unwrap()),
    ]
}

prop_compose! {
    /// Ratings, scores, dispersions and fluencies, ties included.
    fn batches()(n in 1usize..40)(
        ratings in vec(prop_oneof![-5.0f64..5.0, Just(1.0)], n),
        mu in vec(prop_oneof![-2.0f64..2.0, Just(0.0)], n),
        sigma in vec(prop_oneof![0.0f64..2.0, Just(0.0)], n),
        fluency in vec(-4.0f64..0.0, n),
    ) -> [Vec<f64>; 4] {
        [ratings, mu, sigma, fluency]
    }
}

proptest! {
    #[test]
    fn every_rule_gives_a_distribution([ratings, mu, sigma, fluency] in batches()) {
        for (which, rule) in rules().iter().enumerate() {
            let p = select(rule, &ratings, &Batch::trusted(&mu, &sigma).with_trusted_fluency(&fluency));
            prop_assert!(p.iter().all(|p| (0.0..=1.0).contains(p)), "{which}: {p:?}");
            prop_assert!((p.iter().sum::<f64>() - 1.0).abs() < TOLERANCE, "{which}: {p:?}");
        }
    }

    #[test]
    fn the_origin_of_ratings_does_not_matter([ratings, mu, sigma, fluency] in batches(), shift in -64i32..64) {
        // Shifting multiples of 2^-20 by an integer is exact.
        let grid = |r: f64| (r * 1e6).round() / 1_048_576.0;
        let ratings: Vec<f64> = ratings.into_iter().map(grid).collect();
        let moved: Vec<f64> = ratings.iter().map(|r| r + f64::from(shift)).collect();
        let batch = Batch::trusted(&mu, &sigma).with_trusted_fluency(&fluency);
        for (which, rule) in rules().iter().enumerate() {
            let (a, b) = (select(rule, &ratings, &batch), select(rule, &moved, &batch));
            prop_assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-9), "{which}: {a:?} {b:?}");
        }
    }

    #[test]
    fn probability_follows_the_rating([ratings, _, _, _] in batches()) {
        let softmax = Softmax::new(0.7).unwrap();
        let rules: [Box<dyn Selector>; 4] = [
            Box::new(Argmax), Box::new(softmax), Box::new(TopK::new(3, softmax).unwrap()), Box::new(Nucleus::new(0.5, softmax).unwrap()),
        ];
        for rule in rules {
            let p = of_ratings(&rule, &ratings);
            for i in 0..p.len() {
                for j in 0..p.len() {
                    prop_assert!(ratings[i] <= ratings[j] || p[i] >= p[j]);
                }
            }
        }
    }

    #[test]
    fn a_colder_softmax_tends_to_the_argmax(ratings in vec(-5i32..5, 2..12)) {
        let ratings: Vec<f64> = ratings.into_iter().map(f64::from).collect();
        let best = ratings.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let ties = ratings.iter().filter(|r| **r == best).count() as f64;
        let p = of_ratings(&Softmax::new(0.01).unwrap(), &ratings);
        for (p, r) in p.iter().zip(&ratings) {
            let expected = if *r == best { 1.0 / ties } else { 0.0 };
            // The second highest is at least one unit lower, which is a hundred temperatures.
            prop_assert!((p - expected).abs() < 1e-9);
        }
    }
}
