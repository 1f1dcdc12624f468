//! Steps of a trace, as far as statistics need them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::lines;
use crate::record::SweepRecord;
use crate::report::{CandidateStep, ReportError};
use crate::stats::sample_std;

/// Probabilities of all candidates sum to one up to rounding; those of a batch that was cut do not,
/// if more than those kept had a chance.
const WHOLE: f64 = 1e-6;

/// The part of a line that is read.
#[derive(Deserialize)]
struct Line {
    id: String,
    /// Candidates of the step, kept or not.
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

/// The steps of `records` among the first `end` bytes of a file of traces. What stands behind
/// belongs to no record.
///
/// A scheme of which any step was cut gives none: those that are whole are the ones in which hardly
/// a token had a chance but the likeliest. Such schemes come second, by name.
pub(super) fn read(path: &Path, end: u64, records: &[SweepRecord]) -> Result<(Vec<CandidateStep>, Vec<String>), ReportError> {
    let schemes: HashMap<&str, &str> = records.iter().map(|record| (record.id.as_str(), record.scheme.as_str())).collect();
    let failed = |source| ReportError::Read { path: path.to_owned(), source };
    let (mut steps, mut cut, mut bytes) = (Vec::new(), BTreeSet::new(), 0);
    let mut reader = BufReader::new(lines::open(path).map_err(failed)?.take(end));
    let mut text = String::new();
    for number in 1.. {
        text.clear();
        let read = reader.read_line(&mut text).map_err(failed)?;
        if read == 0 {
            break;
        }
        bytes += read as u64;
        if text.trim().is_empty() {
            continue;
        }
        let line: Line =
            serde_json::from_str(&text).map_err(|source| ReportError::Json { path: path.to_owned(), line: number, source })?;
        let Some(scheme) = schemes.get(line.id.as_str()) else { continue };
        match line.step(scheme) {
            Some(step) => steps.push(step),
            None => drop(cut.insert((*scheme).to_owned())),
        }
    }
    if bytes < end {
        return Err(ReportError::Traces { path: path.to_owned(), found: bytes, expected: end });
    }
    steps.retain(|step: &CandidateStep| !cut.contains(&step.arm));
    Ok((steps, cut.into_iter().collect()))
}

impl Line {
    /// The step, or nothing where candidates are missing from it.
    fn step(self, scheme: &str) -> Option<CandidateStep> {
        let all = self.n.is_none_or(|n| n == self.candidates.len());
        let whole = (self.probabilities.iter().sum::<f64>() - 1.0).abs() < WHOLE;
        if !(all && whole) {
            return None;
        }
        let spread = |blade: BladeScores| {
            let mu = blade.mu.into_iter().collect::<Option<Vec<f64>>>()?;
            (blade.weight > 0.0 && mu.len() > 1).then(|| (blade.name, sample_std(&mu)))
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
