//! What a sweep kept besides responses to judge: times, and the steps of its traces.

mod runs;
mod steps;

use std::collections::{HashMap, HashSet};
use std::path::Path;

pub use runs::Runs;

use super::{CandidateStep, ReportError};
use crate::record::{RecordError, SweepRecord, read_records, traces_beside};
use crate::settings::{KeptSettings, read_settings};

/// The records of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// What each scheme took, in the order in which schemes occur.
    pub runs: Vec<Runs>,
    /// Schemes that choose among a whole vocabulary: of their steps a trace keeps the likeliest
    /// candidates only, which say nothing of the batch.
    pub cut: Vec<String>,
    /// Records of responses that were not judged, and are left out.
    pub unjudged: usize,
    /// Judged responses without a record.
    pub unrecorded: usize,
    /// What each scheme ran with, where that is kept beside the records: once for each of its
    /// settings.
    pub settings: Vec<(String, KeptSettings)>,
    /// Whether there are traces of all the records that speak of them.
    pub traced: bool,
    texts: HashMap<String, Text>,
}

/// What was asked and answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// The prompt's name.
    pub prompt_id: String,
    /// The dialogue.
    pub prompt: String,
    /// The response.
    pub response: String,
}

impl Recorded {
    /// Reads the records of the responses with these ids, their settings, and the steps of the
    /// traces beside them if they are there; each may be gzipped.
    ///
    /// # Errors
    /// When a file cannot be read, holds what it must not, no record is of a response that was
    /// judged, or the traces end before the records say.
    pub fn read(path: &Path, judged: &HashSet<&str>) -> Result<(Self, Vec<CandidateStep>), ReportError> {
        let failed = |source: RecordError| ReportError::Records { source: Box::new(source) };
        let mut records = read_records(path).map_err(failed)?;
        if records.is_empty() {
            return Err(ReportError::Empty { path: path.to_owned() });
        }
        let all = records.len();
        records.retain(|record| judged.contains(record.id.as_str()));
        if records.is_empty() {
            return Err(ReportError::Unjudged { path: path.to_owned(), records: all, judged: judged.len() });
        }
        let (unjudged, unrecorded) = (all - records.len(), judged.len().saturating_sub(records.len()));
        let kept = read_settings(path).map_err(failed)?;
        let mut settings: Vec<(String, KeptSettings)> = Vec::new();
        for record in &records {
            let known = settings.iter().any(|(scheme, kept)| *scheme == record.scheme && kept.settings == record.settings);
            if let (false, Some(kept)) = (known, kept.get(&record.settings)) {
                settings.push((record.scheme.clone(), kept.clone()));
            }
        }
        let expected = records.iter().filter_map(|record| record.trace).map(|span| span.end()).max();
        let traces = expected.zip(traces_beside(path).map_err(failed)?);
        let (steps, cut) = match &traces {
            Some((end, path)) => steps::read(path, *end, &records)?,
            None => (Vec::new(), Vec::new()),
        };
        let text = |record: SweepRecord| {
            let SweepRecord { id, prompt_id, prompt, response, .. } = record;
            (id, Text { prompt_id, prompt, response })
        };
        let runs = Runs::by_scheme(&records, &steps);
        let texts = records.into_iter().map(text).collect();
        Ok((Self { runs, cut, unjudged, unrecorded, settings, traced: traces.is_some(), texts }, steps))
    }

    /// What the response of that id is and answers.
    pub fn text(&self, id: &str) -> Option<&Text> {
        self.texts.get(id)
    }
}
