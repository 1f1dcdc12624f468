use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::Deserialize;

use crate::lines::{json_fault, numbered_lines};
use crate::record::RecordError;

/// One generation step: the batch of candidates, with the scores before selection.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct CandidateStep {
    /// The arm of the normalisation ablation.
    pub arm: String,
    /// The composite score of each candidate; `None` where the record has NaN, which occurs in
    /// batches of one.
    pub candidate_mus: Vec<Option<f64>>,
    /// For each blade of positive weight, the sample standard deviation (n − 1) of its raw scores
    /// in the batch.
    pub raw_blade_mu_stds: BTreeMap<String, f64>,
    /// std(tournament term)/std(blade term) in the champion's logit; `None` if it was not recorded.
    #[serde(default)]
    pub logit_scale_ratio: Option<f64>,
    /// The index of the selected candidate.
    pub selected_idx: usize,
    /// The selection probabilities; `None` if they were not recorded.
    #[serde(default)]
    pub probabilities: Option<Vec<f64>>,
    /// The number of tokens of all candidates together; 0 if it was not recorded.
    #[serde(default)]
    pub drafted: usize,
}

impl CandidateStep {
    /// Returns whether no candidate has a higher composite than the selected one. `None` for a
    /// batch of one, or if composites are missing.
    pub fn drew_the_best(&self) -> Option<bool> {
        let composites = self.composites()?;
        let chosen = composites.get(self.selected_idx)?;
        Some(composites.iter().all(|mu| mu <= chosen))
    }

    /// Returns the probability that uniform selection picks a candidate with the highest composite.
    /// `None` as in [`drew_the_best`](Self::drew_the_best).
    pub fn best_by_chance(&self) -> Option<f64> {
        let composites = self.composites()?;
        let best = composites.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(composites.iter().filter(|&&mu| mu == best).count() as f64 / composites.len() as f64)
    }

    /// Returns the entropy −Σ p ln p of the selection probabilities, in nats. `None` for a batch of
    /// one, or if they were not recorded.
    pub fn entropy(&self) -> Option<f64> {
        let probabilities = self.probabilities.as_ref().filter(|all| all.len() > 1)?;
        Some(-probabilities.iter().filter(|&&p| p > 0.0).map(|p| p * p.ln()).sum::<f64>())
    }

    /// Returns the entropy divided by its maximum ln N.
    pub fn relative_entropy(&self) -> Option<f64> {
        let n = self.probabilities.as_ref()?.len() as f64;
        self.entropy().map(|entropy| entropy / n.ln())
    }

    /// Returns the composites of a batch of at least two, if all were recorded.
    fn composites(&self) -> Option<Vec<f64>> {
        self.candidate_mus.iter().copied().collect::<Option<Vec<f64>>>().filter(|all| all.len() > 1)
    }
}

/// Reads candidate steps: one JSON object per line.
pub(super) fn read(path: &Path) -> Result<Vec<CandidateStep>, RecordError> {
    let parse = |(number, line): (u64, io::Result<String>)| {
        let wrong = |reason| RecordError::line(path, number, reason);
        let line = line.map_err(|error| wrong(error.to_string()))?;
        let step: CandidateStep = serde_json::from_str(&without_nan(&line)).map_err(|error| wrong(json_fault(&error)))?;
        let (selected, candidates) = (step.selected_idx, step.candidate_mus.len());
        if selected >= candidates {
            return Err(wrong(format!("selected_idx is {selected}, and candidate_mus has the length {candidates}")));
        }
        Ok(step)
    };
    numbered_lines(path).map_err(RecordError::reading(path))?.map(parse).collect()
}

/// Replaces NaN, which Python writes but JSON lacks, by `null`.
fn without_nan(line: &str) -> Cow<'_, str> {
    if !line.contains("NaN") {
        return Cow::Borrowed(line);
    }
    let mut clean = String::with_capacity(line.len());
    let mut quoted = false;
    for (i, part) in line.split('"').enumerate() {
        if i > 0 {
            clean.push('"');
        }
        // An escaped quote does not end a string; it stands after an odd number of backslashes.
        let backslashes = part.len() - part.trim_end_matches('\\').len();
        clean.push_str(&if quoted { Cow::Borrowed(part) } else { Cow::Owned(part.replace("NaN", "null")) });
        quoted ^= !(quoted && backslashes % 2 == 1);
    }
    Cow::Owned(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selected_candidate_is_one_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("steps.jsonl");
        let step = |selected: usize| {
            let step =
                format!(r#"{{"arm": "a", "candidate_mus": [0.1, 0.2], "raw_blade_mu_stds": {{}}, "selected_idx": {selected}}}"#);
            std::fs::write(&path, step).unwrap();
            read(&path)
        };
        assert_eq!(step(1).unwrap().len(), 1);
        let error = step(2).unwrap_err().to_string();
        assert!(error.contains("steps.jsonl:1: selected_idx is 2"), "{error}");
    }

    #[test]
    fn nan_becomes_null_outside_of_strings() {
        assert_eq!(
            without_nan(r#"{"a": NaN, "NaN": [NaN, 1], "b": "a \"NaN\" b", "c": NaN}"#),
            r#"{"a": null, "NaN": [null, 1], "b": "a \"NaN\" b", "c": null}"#
        );
        assert_eq!(without_nan(r#"{"a": "b\\", "c": NaN, "d": "NaN\\\""}"#), r#"{"a": "b\\", "c": null, "d": "NaN\\\""}"#);
        assert_eq!(without_nan("{}"), "{}");
    }
}
