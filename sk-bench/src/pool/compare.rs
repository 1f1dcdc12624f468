//! Comparison of the arms of a pool over a whole response.

use serde::Serialize;

use super::PoolStep;
use super::step::total_variation;

/// A running comparison of steps: a summary that holds sums in place of means and shares.
#[derive(Debug, Clone, Default)]
pub(crate) struct Comparison(Summary);

/// The similarity of the arms of a pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
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
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
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
        let Summary { steps, arms, agreement, total_variation: distances } = &mut self.0;
        if arms.is_empty() {
            let n = step.arms.len();
            *arms = step.arms.iter().map(|arm| ArmSummary { name: arm.name.clone(), ..ArmSummary::default() }).collect();
            *agreement = vec![vec![0.0; n]; n];
            *distances = vec![vec![0.0; n]; n];
        }
        *steps += 1;
        for (a, (arm, one)) in arms.iter_mut().zip(&step.arms).enumerate() {
            for (b, other) in step.arms.iter().enumerate() {
                agreement[a][b] += f64::from(one.chosen == other.chosen);
                distances[a][b] += total_variation(&distributions[a], &distributions[b]);
            }
            arm.same_argmax += f64::from(one.argmax == step.arms[0].argmax);
            arm.most_total_variation = arm.most_total_variation.max(total_variation(&distributions[a], &distributions[0]));
            arm.probability_of_appended += one.probability_of_appended;
        }
    }

    /// Returns the summary.
    pub(crate) fn summary(&self) -> Summary {
        let mut summary = self.0.clone();
        let steps = summary.steps.max(1) as f64;
        let pairs = summary.agreement.iter_mut().chain(&mut summary.total_variation).flatten();
        pairs.for_each(|sum| *sum /= steps);
        for ((arm, agreement), distances) in summary.arms.iter_mut().zip(&summary.agreement).zip(&summary.total_variation) {
            arm.same_choice = agreement[0];
            arm.same_argmax /= steps;
            arm.probability_of_appended /= steps;
            arm.total_variation = distances[0];
        }
        summary
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
