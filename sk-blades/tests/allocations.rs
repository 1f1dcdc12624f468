//! Once a thread has scored a batch of a given size, scoring another one allocates nothing: for
//! every blade that ships, with every dispersion.

#[path = "../../sk-core/tests/counting/mod.rs"]
mod counting;

use counting::warm;
use sk_blades::{
    Ablated, Discriminator, Dispersion, DispersionArm, DivergenceRatio, Ensemble, ExpertAmateur, Fluency, Guided, ImplicitReward,
    Ingredient, LabelSpread, Length, Likelihood, RewardHead,
};
use sk_core::{Blade, Candidate, Candidates, Divergence, Observation, Policy, Reading, Readings, Score, SpanEnd};

const LENGTH: usize = 5;

fn step(n: usize) -> (Candidates, Readings) {
    let column = |k: usize| (0..LENGTH).map(|t| -((t * 3 + k * 7) as f32) / 10.0).collect::<Vec<f32>>();
    let candidate = |k| Candidate { tokens: vec![3; LENGTH], log_probs: column(k), end: SpanEnd::Complete };
    let mut readings = Readings::new();
    for (m, name) in ["a", "b", "c"].into_iter().enumerate() {
        let read = |k| Reading { log_probs: column(k + m), min_entropy: vec![0.5; LENGTH], ..Reading::default() };
        readings.insert(Policy::Variant(name.into()), (0..n).map(read).collect());
        readings.insert(Policy::Backbone, (0..n).map(read).collect());
    }
    let head = |k| Reading { values: column(k), ..Reading::default() };
    readings.insert(Policy::Head("head".into()), (0..n).map(head).collect());
    (Candidates::new((0..n).map(candidate).collect()).unwrap(), readings)
}

#[test]
fn scoring_allocates_nothing_after_the_first_batch() {
    let reward = |dispersion| ImplicitReward::new("a", 0.1, dispersion).unwrap();
    let likelihood = |dispersion| Likelihood::new(Policy::Backbone, dispersion);
    let discriminator = |spread| Discriminator::new("head", spread);
    let mut blades: Vec<(String, Box<dyn Blade>)> = vec![
        ("ensemble".into(), Box::new(Ensemble::new(["a", "b", "c"], 0.1).unwrap())),
        ("expert − amateur".into(), Box::new(ExpertAmateur)),
        ("fluency".into(), Box::new(Fluency)),
        ("ingredient".into(), Box::new(Ingredient)),
        ("reward head".into(), Box::new(RewardHead::new("head"))),
        ("discriminator".into(), Box::new(discriminator(LabelSpread::Bernoulli))),
        ("certain discriminator".into(), Box::new(discriminator(LabelSpread::Zero))),
    ];
    for length in [Length::Summed, Length::PerToken] {
        blades.push((format!("guided, {length:?}"), Box::new(Guided::new(RewardHead::new("head"), 0.1, length).unwrap())));
    }
    for divergence in [Divergence::ReverseKl, Divergence::ForwardKl, Divergence::JensenShannon, Divergence::alpha(0.5).unwrap()] {
        blades.push((format!("{divergence:?}"), Box::new(DivergenceRatio::new("a", divergence))));
    }
    for dispersion in [Dispersion::MinEntropy, Dispersion::StandardError, Dispersion::Zero] {
        blades.push((format!("implicit reward, {dispersion:?}"), Box::new(reward(dispersion))));
        blades.push((format!("likelihood, {dispersion:?}"), Box::new(likelihood(dispersion))));
        for arm in DispersionArm::ALL {
            blades.push((format!("{arm:?} {dispersion:?}"), Box::new(Ablated { blade: reward(dispersion), arm, seed: 3 })));
        }
    }
    for n in [1, 7, 64] {
        let (candidates, readings) = step(n);
        let observation = Observation { context: &[1, 2], candidates: &candidates, readings: &readings };
        let mut out = vec![Score::new(0.0, 0.0).unwrap(); n];
        for (name, blade) in &blades {
            warm(&format!("{name}, N = {n}"), || blade.score(&observation, &mut out).unwrap());
        }
    }
}
