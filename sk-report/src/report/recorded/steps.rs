//! The fields of traced steps that statistics need.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use sk_core::{Deviation, Moments};

use crate::record::{RecordError, SweepRecord, read_steps};
use crate::report::CandidateStep;

/// The tolerance for probabilities that sum to one. The probabilities of a truncated batch sum to
/// less, unless the dropped ones are zero.
const WHOLE: f64 = 1e-6;

/// The fields of a line that are read.
#[derive(Deserialize)]
struct Line {
    id: String,
    /// The number of candidates of the step, including those that were not stored.
    n: Option<usize>,
    candidates: Vec<Candidate>,
    blades: Vec<BladeScores>,
    mu: Vec<Option<f64>>,
    probabilities: Vec<f64>,
    chosen: usize,
}

#[derive(Deserialize)]
struct Candidate {
    tokens: Vec<IgnoredAny>,
}

#[derive(Deserialize)]
struct BladeScores {
    name: String,
    weight: f64,
    mu: Vec<Option<f64>>,
}

/// Reads the steps of `records` from a traces file.
///
/// If a step of a scheme was truncated, all its steps are dropped: the complete ones are a biased
/// sample, in which almost all probability lies on the few stored tokens. The second result lists
/// these schemes.
pub(super) fn read(path: &Path, records: &[SweepRecord]) -> Result<(Vec<CandidateStep>, Vec<String>), RecordError> {
    let (mut steps, mut cut) = (Vec::new(), BTreeSet::new());
    for read in read_steps::<Line>(path, records)? {
        let (_, record, line) = read?;
        if line.id != record.id {
            continue;
        }
        match line.step(&record.scheme) {
            Some(step) => steps.push(step),
            None => drop(cut.insert(record.scheme.clone())),
        }
    }
    steps.retain(|step: &CandidateStep| !cut.contains(&step.arm));
    Ok((steps, cut.into_iter().collect()))
}

impl Line {
    /// Converts the line into a step; `None` if candidates are missing.
    fn step(self, scheme: &str) -> Option<CandidateStep> {
        let all = self.n.is_none_or(|n| n == self.candidates.len());
        let whole = (self.probabilities.iter().sum::<f64>() - 1.0).abs() < WHOLE;
        if !(all && whole) {
            return None;
        }
        let spread = |blade: BladeScores| {
            let mu = blade.mu.into_iter().collect::<Option<Vec<f64>>>()?;
            (blade.weight > 0.0 && mu.len() > 1).then(|| (blade.name, Moments::of(&mu, Deviation::Sample).std()))
        };
        Some(CandidateStep {
            arm: scheme.to_owned(),
            candidate_mus: self.mu,
            raw_blade_mu_stds: self.blades.into_iter().filter_map(spread).collect::<BTreeMap<_, _>>(),
            logit_scale_ratio: None,
            selected_idx: self.chosen,
            probabilities: Some(self.probabilities),
            drafted: self.candidates.iter().map(|candidate| candidate.tokens.len()).sum(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The deviations of equal scores from their rounded mean are no spread.
    #[test]
    fn equal_scores_have_no_spread() {
        let line: Line = serde_json::from_value(serde_json::json!({
            "id": "a", "n": 6, "candidates": vec![serde_json::json!({"tokens": [1]}); 6], "mu": [0, 0, 0, 0, 0, 0],
            "blades": [{"name": "kind", "weight": 1, "mu": [0.1, 0.1, 0.1, 0.1, 0.1, 0.1]}],
            "probabilities": [1, 0, 0, 0, 0, 0], "chosen": 0
        }))
        .unwrap();
        assert_eq!(line.step("a").unwrap().raw_blade_mu_stds["kind"], 0.0);
    }
}
