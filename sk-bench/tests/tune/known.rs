//! Searches on score functions whose optimum is known.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sk_bench::tune::{Trial, balanced, best, front};
use sk_report::stats::hypervolume;

use crate::{OPTIMUM, distance, search};

/// The seeds of every comparison, and the trials of each search.
const SEEDS: std::ops::Range<u64> = 0..100;
const BUDGET: usize = 40;
/// Trials of a search for a front, which needs more of them.
const TWO_BUDGET: usize = 80;

/// Runs a search of `budget` trials, of which the first `startup` are drawn uniformly. With
/// `startup == budget` it is random search.
fn trials(seed: u64, startup: usize, budget: usize, mut score: impl FnMut(&[f64]) -> Vec<f64>) -> Vec<Trial> {
    let search = search("known", seed, startup);
    let mut trials: Vec<Trial> = Vec::new();
    for _ in 0..budget {
        let point = search.propose(&trials).unwrap();
        let scores = score(&point);
        trials.push(Trial { point, scores });
    }
    trials
}

/// The distance from the optimum to the best point found, per seed: by the estimator, and by random
/// search.
fn regrets(noise: f64) -> Vec<[f64; 2]> {
    let space = search("", 0, 1).space;
    let regret = |seed, startup| {
        // Judges are noisy. Both searches see the same draws of noise.
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let score = |point: &[f64]| vec![noise * (rng.random::<f64>() - 0.5) - distance(&space, point, &OPTIMUM)];
        let trials = trials(seed, startup, BUDGET, score);
        distance(&space, &trials[best(&trials).unwrap()].point, &OPTIMUM)
    };
    SEEDS.map(|seed| [regret(seed, 10), regret(seed, BUDGET)]).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn the_estimator_beats_random_search_with_the_same_budget() {
    // Noise of 0.1 is a third of the standard deviation of the score over the space.
    for noise in [0.0, 0.1] {
        let regrets = regrets(noise);
        let wins = regrets.iter().filter(|[estimator, random]| estimator < random).count();
        let [estimator, random] = [0, 1].map(|which| median(regrets.iter().map(|pair| pair[which]).collect()));
        println!(
            "noise {noise}: median distance {estimator:.4} against {random:.4}, nearer on {wins} of {} seeds",
            regrets.len()
        );
        // A fair coin gives 70 of 100 or more once in 25,000 times.
        assert!(wins >= 70, "nearer on {wins} of {}", regrets.len());
        assert!(estimator < 0.7 * random, "{estimator} {random}");
    }
}

#[test]
fn two_objectives_are_searched_along_their_front() {
    let space = search("", 0, 1).space;
    let other = OPTIMUM.map(|_| 0.0).iter().zip(space.dimensions()).map(|(_, p)| p.value(0.8)).collect::<Vec<f64>>();
    let volume = |seed, startup| {
        let score = |point: &[f64]| {
            let near = |optimum: &[f64]| (-3.0 * distance(&space, point, optimum)).exp();
            vec![near(&OPTIMUM), near(&other)]
        };
        let trials = trials(seed, startup, TWO_BUDGET, score);
        let on_front = front(&trials);
        assert!(on_front.contains(&balanced(&trials).unwrap()), "the balanced point is on the front");
        let points: Vec<[f64; 3]> = on_front.iter().map(|&i| [trials[i].scores[0], trials[i].scores[1], 1.0]).collect();
        hypervolume(&points, [0.0; 3])
    };
    let volumes: Vec<[f64; 2]> = SEEDS.map(|seed| [volume(seed, 10), volume(seed, TWO_BUDGET)]).collect();
    let wins = volumes.iter().filter(|[estimator, random]| estimator > random).count();
    let [estimator, random] = [0, 1].map(|which| median(volumes.iter().map(|pair| pair[which]).collect()));
    println!("median volume {estimator:.4} against {random:.4}, more on {wins} of {} seeds", volumes.len());
    assert!(wins >= 70, "{wins} of {}", volumes.len());
}

#[test]
fn proposals_depend_on_the_seed_the_name_and_the_trials_alone() {
    let space = search("", 0, 1).space;
    let run = |seed| trials(seed, 10, BUDGET, |point| vec![-distance(&space, point, &OPTIMUM)]);
    let trials = run(7);
    assert_eq!(trials, run(7));
    assert_ne!(trials, run(8));
    let named = search("another", 7, 10);
    assert_ne!(named.propose(&[]).unwrap(), trials[0].point);
    let again = search("known", 7, 10);
    for count in [0, 5, 10, 25] {
        assert_eq!(again.propose(&trials[..count]).unwrap(), trials[count].point, "after {count}");
    }
    let mut other = trials[..25].to_vec();
    other[3].scores[0] = 1.0;
    assert_ne!(again.propose(&other).unwrap(), trials[25].point, "a score counts");
}

#[test]
fn the_origin_is_tried_first() {
    let mut search = search("known", 1, 3);
    search.origin = Some(OPTIMUM.to_vec());
    let first = Trial { point: search.propose(&[]).unwrap(), scores: vec![0.0] };
    assert_eq!(first.point, OPTIMUM);
    assert_ne!(search.propose(&[first]).unwrap(), OPTIMUM);
}
