//! The data that a sweep recorded besides the responses: times, settings, and traced steps.

mod runs;
mod steps;

use std::collections::{HashMap, HashSet};
use std::path::Path;

pub use runs::Runs;

use super::{CandidateStep, ReportError, distinct};
use crate::record::{SweepRecord, read_records, traces_beside};
use crate::settings::{KeptSettings, read_settings};

/// The records of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// The cost of each scheme, in order of first occurrence.
    pub runs: Vec<Runs>,
    /// Schemes whose traces keep only the most probable candidates of a whole vocabulary. Such
    /// steps are not used, since they do not represent the batch.
    pub cut: Vec<String>,
    /// The number of records that were left out because their responses were not judged.
    pub unjudged: usize,
    /// The number of judged responses without a record.
    pub unrecorded: usize,
    /// The settings of each scheme, if they are stored beside the records. A scheme with several
    /// settings has several entries.
    pub settings: Vec<(String, KeptSettings)>,
    /// Whether the traces of the records were found.
    pub traced: bool,
    /// The prompt and the response of each id.
    pub texts: HashMap<String, Text>,
}

/// A prompt and a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// The dialogue.
    pub prompt: String,
    /// The response.
    pub response: String,
}

impl Recorded {
    /// Reads the records of the responses with these ids, their settings, and the steps in the
    /// traces beside them, if any. Each file may be gzipped.
    ///
    /// # Errors
    /// If a file cannot be read or is invalid, if no record is of a judged response, or if the
    /// traces are shorter than the records say.
    pub fn read(path: &Path, judged: &HashSet<&str>) -> Result<(Self, Vec<CandidateStep>), ReportError> {
        let mut records = read_records(path)?;
        if records.is_empty() {
            return Err(ReportError::Empty { path: path.to_owned() });
        }
        let all = records.len();
        records.retain(|record| judged.contains(record.id.as_str()));
        if records.is_empty() {
            return Err(ReportError::Unjudged { path: path.to_owned(), records: all, judged: judged.len() });
        }
        let unjudged = all - records.len();
        let kept = read_settings(path)?;
        let used = distinct(records.iter().map(|record| (&record.scheme, &record.settings))).into_iter();
        let settings = used.filter_map(|(scheme, digest)| Some((scheme.clone(), kept.get(digest)?.clone()))).collect();
        let traced = records.iter().any(|record| record.trace.is_some());
        let traces = if traced { traces_beside(path)? } else { None };
        let (steps, cut) = match &traces {
            Some(path) => steps::read(path, &records)?,
            None => (Vec::new(), Vec::new()),
        };
        let text = |record: SweepRecord| (record.id, Text { prompt: record.prompt, response: record.response });
        let runs = Runs::by_scheme(&records, &steps);
        let texts: HashMap<String, Text> = records.into_iter().map(text).collect();
        let unrecorded = judged.len() - texts.len();
        Ok((Self { runs, cut, unjudged, unrecorded, settings, traced: traces.is_some(), texts }, steps))
    }
}
