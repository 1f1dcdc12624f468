//! The choices of the arms of a pool at one step.

use serde::Serialize;
use sk_core::{ArmTrace, CandidateTrace, Decision, StepTrace};
use sk_models::text::Tokenizer;

use crate::explain::shorten;
use crate::trace::{shown, span_text};

/// One step: its candidates and the choices of the arms. The driving arm is first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PoolStep {
    /// Position of the response in the dialogue, from 0.
    pub turn: usize,
    /// Position of the step in the response, from 0.
    pub step: usize,
    /// Number of candidates.
    pub n: usize,
    /// The listed candidates: all if there are few, or else the most likely ones under the driving
    /// arm and those that an arm chooses.
    pub candidates: Vec<PoolCandidate>,
    pub arms: Vec<ArmChoice>,
}

/// A candidate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PoolCandidate {
    /// Its index among all candidates of the step, from 0.
    pub index: usize,
    pub text: String,
    /// Its text on one line, shortened.
    #[serde(skip)]
    pub line: String,
}

/// The choice of one arm.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArmChoice {
    /// The arm.
    pub name: String,
    /// Index of the candidate that it draws. All arms use the same uniform number.
    pub chosen: usize,
    /// Probability of that candidate.
    pub probability: f64,
    /// Index of its most likely candidate; the first one in case of a tie.
    pub argmax: usize,
    /// Its probability of the appended candidate.
    pub probability_of_appended: f64,
    /// Total variation between its distribution and that of the driving arm.
    pub total_variation: f64,
    /// Composite score of each listed candidate.
    pub mu: Vec<f64>,
    /// Composite dispersion of each listed candidate.
    pub sigma: Vec<f64>,
    /// Rating of each listed candidate.
    pub ratings: Vec<f64>,
    /// Probability of each listed candidate.
    pub probabilities: Vec<f64>,
}

/// The distribution of each arm over all candidates of a step.
pub(crate) type Distributions = Vec<Vec<f64>>;

impl PoolStep {
    /// Returns the step of a trace whose scheme is named `driver`, with the distributions of all
    /// arms over all candidates.
    pub fn new(turn: usize, driver: &str, trace: &StepTrace, tokenizer: &Tokenizer) -> (Self, Distributions) {
        let text = |candidate: &CandidateTrace| {
            let text = span_text(tokenizer, &candidate.tokens);
            (shorten(&text, candidate.end), text)
        };
        let StepTrace { step, candidates, decision, arms, .. } = trace;
        Self::of((turn, *step), driver, decision, arms, |index| text(&candidates[index]))
    }

    /// Like [`new`](Self::new), from the decisions of the driving scheme and of the other arms.
    /// `text` returns the line and the text of a candidate.
    pub(super) fn of(
        (turn, step): (usize, usize),
        driver: &str,
        own: &Decision,
        others: &[ArmTrace],
        text: impl Fn(usize) -> (String, String),
    ) -> (Self, Distributions) {
        let listed = shown(own, others);
        let arms = || std::iter::once((driver, own)).chain(others.iter().map(|arm| (arm.name.as_str(), &arm.decision)));
        let choice = |(name, decision): (&str, &Decision)| {
            let pick = |values: &[f64]| listed.iter().map(|&i| values[i]).collect();
            ArmChoice {
                name: name.to_owned(),
                chosen: decision.chosen,
                probability: decision.probabilities[decision.chosen],
                argmax: argmax(&decision.probabilities),
                probability_of_appended: decision.probabilities[own.chosen],
                total_variation: total_variation(&decision.probabilities, &own.probabilities),
                mu: pick(&decision.mu),
                sigma: pick(&decision.sigma),
                ratings: pick(&decision.ratings),
                probabilities: pick(&decision.probabilities),
            }
        };
        let candidate = |&index: &usize| {
            let (line, text) = text(index);
            PoolCandidate { index, text, line }
        };
        let step = Self {
            turn,
            step,
            n: own.probabilities.len(),
            candidates: listed.iter().map(candidate).collect(),
            arms: arms().map(choice).collect(),
        };
        (step, arms().map(|(_, decision)| decision.probabilities.clone()).collect())
    }
}

/// Returns ½ Σ |p_i − q_i|, the largest difference of the probabilities of any event.
pub(super) fn total_variation(p: &[f64], q: &[f64]) -> f64 {
    0.5 * p.iter().zip(q).map(|(p, q)| (p - q).abs()).sum::<f64>()
}

fn argmax(probabilities: &[f64]) -> usize {
    (0..probabilities.len()).fold(0, |best, i| if probabilities[i] > probabilities[best] { i } else { best })
}
