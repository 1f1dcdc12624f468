//! Rules for the weights **w**, against brute force.

use proptest::prelude::*;
use sk_core::{ScoreTable, Weighting};
use sk_normalize::{Dual, MaxMin};

/// Steps of a grid along each side of the simplex, and from 0 to the limit of a multiplier.
const GRID: usize = 60;

/// A grid point may be better than the found minimum by the search's gap of 1e-9 and some
/// roundings. The objective is of order one.
const GAP: f64 = 1e-7;

fn table(rows: &[Vec<f64>]) -> ScoreTable {
    ScoreTable::new(rows.iter().map(|mu| (mu.clone(), vec![0.0; mu.len()]))).unwrap()
}

/// T log 1/N Σ_i exp(1/T x_i).
fn soft_maximum(temperature: f64, x: impl Iterator<Item = f64> + Clone) -> f64 {
    let largest = x.clone().fold(f64::NEG_INFINITY, f64::max);
    let n = x.clone().count() as f64;
    largest + temperature * (x.map(|x| ((x - largest) / temperature).exp()).sum::<f64>() / n).ln()
}

fn robust(rows: &[Vec<f64>], weights: &[f64], temperature: f64) -> f64 {
    soft_maximum(temperature, (0..rows[0].len()).map(|i| weights.iter().zip(rows).map(|(w, mu)| w * mu[i]).sum::<f64>()))
}

fn scores(blades: usize) -> impl Strategy<Value = Vec<Vec<f64>>> {
    (1usize..9).prop_flat_map(move |n| prop::collection::vec(prop::collection::vec(-2.0..2.0, n), blades))
}

/// Compares the weights of [`MaxMin`] with every point of a grid.
fn no_worse_on_a_grid(rows: &[Vec<f64>], temperature: f64) -> Result<(), TestCaseError> {
    let mut weights = [f64::NAN; 3];
    MaxMin::new(temperature).unwrap().weigh(&table(rows), &[0.2, 0.3, 0.5], &mut weights);
    prop_assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12 && weights.iter().all(|w| *w >= 0.0));
    let found = robust(rows, &weights, temperature);
    for a in 0..=GRID {
        for b in 0..=GRID - a {
            let point = [a, b, GRID - a - b].map(|share| share as f64 / GRID as f64);
            prop_assert!(found <= robust(rows, &point, temperature) + GAP, "{point:?} is below {weights:?}");
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_weights_on_a_grid_serve_the_batch_worse(rows in scores(3), temperature in 0.02..5.0) {
        no_worse_on_a_grid(&rows, temperature)?;
    }

    #[test]
    fn blades_that_nearly_agree_are_told_apart(
        rows in scores(2),
        apart in prop::collection::vec(-0.05..0.05, 9),
        temperature in 0.02..5.0,
    ) {
        let near = rows[0].iter().zip(&apart).map(|(score, apart)| score + apart).collect();
        no_worse_on_a_grid(&[rows[0].clone(), near, rows[1].clone()], temperature)?;
    }

    #[test]
    fn a_blade_of_weight_zero_takes_no_part(rows in scores(3), temperature in 0.02..5.0) {
        let (mut three, mut two) = ([f64::NAN; 3], [f64::NAN; 2]);
        let rule = MaxMin::new(temperature).unwrap();
        rule.weigh(&table(&rows), &[0.5, 0.0, 0.5], &mut three);
        rule.weigh(&table(&[rows[0].clone(), rows[2].clone()]), &[0.5, 0.5], &mut two);
        prop_assert_eq!(three, [two[0], 0.0, two[1]]);
    }

    #[test]
    fn no_multipliers_on_a_grid_have_a_smaller_dual(
        rows in scores(3),
        thresholds in prop::array::uniform2(-1.5..1.5),
        temperature in 0.05..5.0,
    ) {
        const LIMIT: f64 = 4.0;
        let names = ["primary", "first", "second"];
        let table = table(&rows).with_names(names).unwrap();
        let rule = Dual::new(temperature, LIMIT, vec![("first".into(), thresholds[0]), ("second".into(), thresholds[1])]).unwrap();
        let mut weights = [f64::NAN; 3];
        // The requested weights of constraints have no effect.
        rule.weigh(&table, &[0.5, 0.3, 0.2], &mut weights);
        prop_assert_eq!(weights[0], 1.0);
        let dual = |first: f64, second: f64| {
            soft_maximum(temperature, (0..rows[0].len()).map(|i| {
                rows[0][i] + first * (rows[1][i] - thresholds[0]) + second * (rows[2][i] - thresholds[1])
            }))
        };
        let found = dual(weights[1], weights[2]);
        for a in 0..=GRID {
            for b in 0..=GRID {
                let (a, b) = (LIMIT * a as f64 / GRID as f64, LIMIT * b as f64 / GRID as f64);
                prop_assert!(found <= dual(a, b) + GAP, "λ = ({a}, {b}) is below {weights:?}");
            }
        }
    }
}

#[test]
fn the_worst_served_objective_has_the_weight() {
    // The second blade never scores higher than the first.
    let rows = [vec![1.0, 2.0, 3.0], vec![0.0, -1.0, 1.0]];
    let mut weights = [f64::NAN; 2];
    MaxMin::new(0.1).unwrap().weigh(&table(&rows), &[0.9, 0.1], &mut weights);
    assert_eq!(weights, [0.0, 1.0]);
    // Two blades that mirror each other share the weight.
    let rows = [vec![1.0, 0.0], vec![0.0, 1.0]];
    MaxMin::new(0.1).unwrap().weigh(&table(&rows), &[0.9, 0.1], &mut weights);
    assert!((weights[0] - 0.5).abs() < 1e-9);
}

#[test]
fn a_constraint_that_holds_weighs_nothing_and_one_that_cannot_hold_weighs_the_limit() {
    let table = table(&[vec![1.0, 2.0], vec![0.0, 1.0]]).with_names(["help", "safety"]).unwrap();
    let weigh = |threshold: f64| {
        let mut weights = [f64::NAN; 2];
        Dual::new(1.0, 10.0, vec![("safety".into(), threshold)]).unwrap().weigh(&table, &[1.0, 0.0], &mut weights);
        // The weights of the others sum to one. The requested weight of a constraint is ignored.
        for requested in [[0.5, 0.5], [0.25, 0.75]] {
            let mut same = [f64::NAN; 2];
            Dual::new(1.0, 10.0, vec![("safety".into(), threshold)]).unwrap().weigh(&table, &requested, &mut same);
            assert_eq!(same, weights);
        }
        weights
    };
    assert_eq!(weigh(-1.0), [1.0, 0.0]);
    assert_eq!(weigh(2.0), [1.0, 10.0]);
    // p = e^(1+λ)/(1 + e^(1+λ)) = 0.9 at 1 + λ = ln 9.
    assert!((weigh(0.9)[1] - (9.0f64.ln() - 1.0)).abs() < 1e-9);
}

#[test]
fn a_constraint_that_always_holds_leaves_the_others_alone() {
    let rows = [vec![1.0, 2.0], vec![0.0, 1.0], vec![0.3, 0.1]];
    let table = table(&rows).with_names(["help", "safety", "honesty"]).unwrap();
    let weigh = |honesty: f64| {
        let mut weights = [f64::NAN; 3];
        let thresholds = vec![("safety".into(), 0.9), ("honesty".into(), honesty)];
        Dual::new(1.0, 10.0, thresholds).unwrap().weigh(&table, &[1.0, 0.0, 0.0], &mut weights);
        weights
    };
    let finite = weigh(-100.0);
    assert!((finite[1] - (9.0f64.ln() - 1.0)).abs() < 1e-9 && finite[2] == 0.0);
    assert_eq!(weigh(f64::NEG_INFINITY), finite);
    // One that never holds weighs the limit.
    assert_eq!(weigh(f64::INFINITY)[2], 10.0);
}

#[test]
fn requested_weights_may_have_a_sum_that_overflows() {
    let table = table(&[vec![1.0, 2.0], vec![0.0, 1.0], vec![0.3, 0.1]]).with_names(["help", "safety", "honesty"]).unwrap();
    let dual = Dual::new(1.0, 10.0, vec![("honesty".into(), 0.15)]).unwrap();
    for rule in [&MaxMin::new(0.1).unwrap() as &dyn Weighting, &dual] {
        let weigh = |requested: [f64; 3]| {
            let mut weights = [f64::NAN; 3];
            rule.weigh(&table, &requested, &mut weights);
            weights
        };
        let weights = weigh([1e308; 3]);
        assert_eq!(weights, weigh([1.0; 3]));
        assert!(weights.iter().any(|weight| *weight > 0.0) && weights.iter().all(|weight| weight.is_finite()), "{weights:?}");
    }
}

#[test]
fn numbers_out_of_range_are_named() {
    for temperature in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(MaxMin::new(temperature).unwrap_err().to_string().starts_with("temperature"));
        assert!(Dual::new(temperature, 1.0, Vec::new()).unwrap_err().to_string().starts_with("temperature"));
        assert!(Dual::new(1.0, temperature, Vec::new()).unwrap_err().to_string().starts_with("limit"));
    }
    let large = Dual::new(1.0, 1.1e9, Vec::new()).unwrap_err();
    assert_eq!(large.to_string(), "limit is 1100000000; it must be positive and at most 1e9");
    assert!(Dual::new(1.0, 1e9, Vec::new()).is_ok());
    assert!(Dual::new(1.0, 1.0, vec![("a".into(), f64::NAN)]).unwrap_err().to_string().starts_with("threshold"));
    let twice = Dual::new(1.0, 1.0, vec![("a".into(), 1.5), ("b".into(), 0.0), ("a".into(), 0.2)]).unwrap_err();
    assert_eq!(twice.to_string(), "threshold is 0.2; it must be the only one of its blade");
}
