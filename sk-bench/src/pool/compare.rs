//! Comparison of the arms of a pool over a whole response.

use serde::Serialize;

use super::PoolStep;
use super::step::total_variation;

/// A running comparison of steps.
#[derive(Debug, Clone, Default)]
pub(crate) struct Comparison {
    steps: usize,
    arms: Vec<Tally>,
}

/// The counts of one arm.
#[derive(Debug, Clone, Default)]
struct Tally {
    name: String,
    /// For each other arm: the number of steps with the same choice, and the sum of the total
    /// variation.
    same_choice: Vec<usize>,
    total_variation: Vec<f64>,
    /// Compared with the driving arm: the number of steps with the same most likely candidate, and
    /// the maximum total variation.
    same_argmax: usize,
    most_total_variation: f64,
    /// Sum of the probabilities of the appended candidates.
    of_appended: f64,
}

/// The similarity of the arms of a pool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// Number of steps compared.
    pub steps: usize,
    /// Each arm compared with the driving arm, which is the first.
    pub arms: Vec<ArmSummary>,
    /// Share of steps in which two arms draw the same candidate from the same uniform number, for
    /// each pair.
    pub agreement: Vec<Vec<f64>>,
    /// Mean over steps of the total variation between two arms, for each pair.
    pub total_variation: Vec<Vec<f64>>,
}

/// An arm compared with the driving arm.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ArmSummary {
    /// The arm.
    pub name: String,
    /// Share of steps in which it draws the appended candidate.
    pub same_choice: f64,
    /// Share of steps in which both arms have the same most likely candidate.
    pub same_argmax: f64,
    /// Mean over steps of its probability of the appended candidate.
    pub probability_of_appended: f64,
    /// Mean over steps of the total variation between the two distributions.
    pub total_variation: f64,
    /// Maximum over steps of the total variation.
    pub most_total_variation: f64,
}

impl Comparison {
    /// Adds a step. `distributions` holds each arm's distribution over all candidates.
    pub(crate) fn add(&mut self, step: &PoolStep, distributions: &[Vec<f64>]) {
        let n = step.arms.len();
        if self.arms.is_empty() {
            let tally = |name: &String| Tally {
                name: name.clone(),
                same_choice: vec![0; n],
                total_variation: vec![0.0; n],
                ..Tally::default()
            };
            self.arms = step.arms.iter().map(|arm| tally(&arm.name)).collect();
        }
        self.steps += 1;
        for ((tally, one), distribution) in self.arms.iter_mut().zip(&step.arms).zip(distributions) {
            for (b, other) in step.arms.iter().enumerate() {
                tally.same_choice[b] += usize::from(one.chosen == other.chosen);
                tally.total_variation[b] += total_variation(distribution, &distributions[b]);
            }
            tally.same_argmax += usize::from(one.argmax == step.arms[0].argmax);
            tally.most_total_variation = tally.most_total_variation.max(total_variation(distribution, &distributions[0]));
            tally.of_appended += one.probability_of_appended;
        }
    }

    /// Returns the summary.
    pub(crate) fn summary(&self) -> Summary {
        let steps = self.steps.max(1) as f64;
        let arm = |arm: &Tally| ArmSummary {
            name: arm.name.clone(),
            same_choice: arm.same_choice[0] as f64 / steps,
            same_argmax: arm.same_argmax as f64 / steps,
            probability_of_appended: arm.of_appended / steps,
            total_variation: arm.total_variation[0] / steps,
            most_total_variation: arm.most_total_variation,
        };
        let agreement = |arm: &Tally| arm.same_choice.iter().map(|&count| count as f64 / steps).collect();
        let distance = |arm: &Tally| arm.total_variation.iter().map(|sum| sum / steps).collect();
        Summary {
            steps: self.steps,
            arms: self.arms.iter().map(arm).collect(),
            agreement: self.arms.iter().map(agreement).collect(),
            total_variation: self.arms.iter().map(distance).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::step::ArmChoice;

    /// Rounding of sums of a few shares.
    const ROUNDING: f64 = 1e-12;

    #[test]
    fn worked_by_hand() {
        let choice = |name: &str, chosen, argmax, p: &[f64], first: &[f64]| ArmChoice {
            name: name.to_owned(),
            chosen,
            probability: p[chosen],
            argmax,
            probability_of_appended: p[0],
            total_variation: total_variation(p, first),
            mu: vec![],
            sigma: vec![],
            ratings: vec![],
            probabilities: p.to_vec(),
        };
        let mut comparison = Comparison::default();
        // The driving arm is uniform. The other arm is uniform in the first step and certain in the
        // second: total variation 0, then ½.
        for (step, other) in [[0.5, 0.5], [1.0, 0.0]].into_iter().enumerate() {
            let even = [0.5, 0.5];
            let arms = vec![choice("even", 0, 0, &even, &even), choice("other", step, 0, &[other[0], other[1]], &even)];
            let step = PoolStep { turn: 0, step, n: 2, candidates: vec![], arms };
            comparison.add(&step, &[even.to_vec(), other.to_vec()]);
        }
        let summary = comparison.summary();
        assert_eq!((summary.steps, summary.arms.len()), (2, 2));
        let other = &summary.arms[1];
        assert_eq!((other.same_choice, other.same_argmax, other.most_total_variation), (0.5, 1.0, 0.5));
        assert!((other.total_variation - 0.25).abs() < ROUNDING && (other.probability_of_appended - 0.75).abs() < ROUNDING);
        assert_eq!(summary.agreement, [[1.0, 0.5], [0.5, 1.0]]);
        assert_eq!(summary.total_variation, [[0.0, 0.25], [0.25, 0.0]]);
    }
}
