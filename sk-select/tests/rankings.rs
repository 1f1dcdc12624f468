//! Rankings of a Plackett–Luce model, against its definition over all permutations.

use proptest::collection::vec;
use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sk_core::{Batch, Selector};
use sk_select::{PlackettLuce, Softmax};

/// Rounding of N exponentials, logarithms and divisions.
const TOLERANCE: f64 = 1e-12;

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![vec![]];
    }
    let insert = |shorter: Vec<usize>| (0..n).map(move |at| [&shorter[..at], &[n - 1], &shorter[at..]].concat());
    permutations(n - 1).into_iter().flat_map(insert).collect()
}

/// The definition of the model: the product over places.
fn by_definition(worths: &[f64], ranking: &[usize]) -> f64 {
    (0..ranking.len()).map(|k| worths[ranking[k]] / ranking[k..].iter().map(|&i| worths[i]).sum::<f64>()).product()
}

#[test]
fn probabilities_by_hand() {
    // At T = 2 these ratings have the worths 1, 2 and 3, so P(2, 1, 0) = 3/6 · 2/3.
    let ratings = [0.0, 2.0 * 2f64.ln(), 2.0 * 3f64.ln()];
    let model = PlackettLuce::new(2.0).unwrap();
    assert!((model.log_probability(&ratings, &[2, 1, 0]) - (1.0f64 / 3.0).ln()).abs() < TOLERANCE);
    assert!((model.log_probability(&ratings, &[0, 1, 2]) - (1.0f64 / 6.0 * 2.0 / 5.0).ln()).abs() < TOLERANCE);
    assert_eq!(model.log_probability(&[7.0], &[0]), 0.0);
    assert_eq!(model.temperature(), 2.0);
}

#[test]
fn draws_follow_the_model() {
    let worths = [1.0f64, 2.0, 4.0];
    let ratings = worths.map(f64::ln);
    let model = PlackettLuce::new(1.0).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let draws = 30_000;
    let orders = permutations(3);
    let mut counts = vec![0usize; orders.len()];
    for _ in 0..draws {
        let drawn = model.draw(&ratings, &mut rng);
        counts[orders.iter().position(|order| *order == drawn).unwrap()] += 1;
    }
    for (order, count) in orders.iter().zip(&counts) {
        let p = by_definition(&worths, order);
        // Six standard errors of a proportion.
        let tolerance = 6.0 * (p * (1.0 - p) / f64::from(draws)).sqrt();
        assert!((*count as f64 / f64::from(draws) - p).abs() < tolerance, "{order:?}: {count} of {draws}, {p} expected");
    }
}

#[test]
fn equal_ratings_are_ordered_by_chance_at_any_temperature() {
    for (temperature, rating) in [(1.0, 0.0), (1e-300, 1e300), (1e300, 1.0)] {
        let model = PlackettLuce::new(temperature).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(6);
        let first = (0..1000).filter(|_| model.draw(&[rating, rating], &mut rng) == [0, 1]).count();
        // 95 is six standard errors of a fair coin thrown a thousand times.
        assert!((405..=595).contains(&first), "T = {temperature}: {first}");
    }
    let cold = PlackettLuce::new(1e-300).unwrap();
    assert_eq!(cold.draw(&[0.0, 1e-200, -1e300], &mut ChaCha8Rng::seed_from_u64(7)), [1, 0, 2]);
}

#[test]
fn extreme_ratings_have_a_probability() {
    let model = PlackettLuce::new(0.5).unwrap();
    assert_eq!(model.log_probability(&[1e4, 0.0, -1e4], &[0, 1, 2]), 0.0);
    let reversed = model.log_probability(&[1e4, 0.0, -1e4], &[2, 1, 0]);
    // The last candidate comes first: −4e4 against the best, then −2e4.
    assert!((reversed + 6e4).abs() < 1e-9, "{reversed}");
    // Differences over T overflow: certain rankings have probability 1, and all others have 0.
    let cold = PlackettLuce::new(1e-300).unwrap();
    assert_eq!(cold.log_probability(&[-1e300], &[0]), 0.0);
    let ratings = [0.0, -1e300, 1e300, 0.0];
    assert!((cold.log_probability(&ratings, &[2, 0, 3, 1]) + 2f64.ln()).abs() < 1e-15);
    assert_eq!(cold.log_probability(&ratings, &[0, 2, 3, 1]), f64::NEG_INFINITY);
    assert_eq!(cold.log_probability(&[f64::MAX, f64::MIN], &[0, 1]), 0.0);
    // The difference overflows, but not its quotient with T: −log(1 + e⁻²).
    let hot = PlackettLuce::new(1e308).unwrap().log_probability(&[1e308, -1e308], &[0, 1]);
    assert!((hot + (-2f64).exp().ln_1p()).abs() < 1e-15, "{hot}");
}

#[test]
#[should_panic(expected = "every candidate once")]
fn a_ranking_holds_every_candidate_once() {
    PlackettLuce::new(1.0).unwrap().log_probability(&[1.0, 2.0], &[0, 0]);
}

#[test]
#[should_panic(expected = "every candidate once")]
fn a_ranking_holds_no_other() {
    PlackettLuce::new(1.0).unwrap().log_probability(&[1.0, 2.0], &[0, 2]);
}

#[test]
#[should_panic(expected = "every candidate once")]
fn a_ranking_leaves_nobody_out() {
    PlackettLuce::new(1.0).unwrap().log_probability(&[1.0, 2.0], &[0]);
}

#[test]
fn impossible_temperatures_are_refused() {
    for temperature in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(PlackettLuce::new(temperature).is_err());
    }
}

proptest! {
    #[test]
    fn rankings_have_the_probability_of_the_definition_and_exhaust_it(ratings in vec(-3.0f64..3.0, 1..6), temperature in 0.2f64..5.0) {
        let model = PlackettLuce::new(temperature).unwrap();
        let worths: Vec<f64> = ratings.iter().map(|r| (r / temperature).exp()).collect();
        let mut total = 0.0;
        let mut firsts = vec![0.0; ratings.len()];
        for ranking in permutations(ratings.len()) {
            let p = model.log_probability(&ratings, &ranking).exp();
            prop_assert!((p - by_definition(&worths, &ranking)).abs() < TOLERANCE);
            total += p;
            firsts[ranking[0]] += p;
        }
        prop_assert!((total - 1.0).abs() < 1e-10);
        // The marginal of the first place is the softmax, which is the distribution of the rule.
        let (zeros, mut softmax, mut rule) = (vec![0.0; ratings.len()], vec![f64::NAN; ratings.len()], vec![f64::NAN; ratings.len()]);
        let batch = Batch::trusted(&zeros, &zeros);
        Softmax::new(temperature).unwrap().distribution(&ratings, &batch, &mut softmax);
        model.distribution(&ratings, &batch, &mut rule);
        prop_assert_eq!(&softmax, &rule);
        prop_assert!(firsts.iter().zip(&softmax).all(|(a, b)| (a - b).abs() < 1e-10));
    }

    #[test]
    fn a_draw_is_a_permutation(ratings in vec(-1e3f64..1e3, 1..40), seed in any::<u64>()) {
        let model = PlackettLuce::new(10.0).unwrap();
        let drawn = model.draw(&ratings, &mut ChaCha8Rng::seed_from_u64(seed));
        prop_assert_eq!(&drawn, &model.draw(&ratings, &mut ChaCha8Rng::seed_from_u64(seed)));
        let mut sorted = drawn;
        sorted.sort_unstable();
        prop_assert_eq!(sorted, (0..ratings.len()).collect::<Vec<_>>());
    }
}

#[test]
fn draws_are_pinned_to_the_seed() {
    let ratings: [f64; 8] = std::array::from_fn(|i| i as f64);
    let drawn = PlackettLuce::new(2.0).unwrap().draw(&ratings, &mut ChaCha8Rng::seed_from_u64(42));
    assert_eq!(drawn, [5, 6, 4, 7, 2, 3, 0, 1]);
}
