//! What a sweep kept besides responses to judge: times, and the steps of its traces.

mod runs;
mod steps;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

pub use runs::Runs;

use super::{CandidateStep, ReportError};
use crate::sweep::{SweepError, SweepRecord, read_records};

/// The records of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// What each scheme took, in the order in which schemes occur.
    pub runs: Vec<Runs>,
    /// Steps over a whole vocabulary: of these a trace keeps the likeliest candidates only, which say nothing of the batch.
    pub cut: usize,
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
    /// Reads the records of a sweep, and the steps of the traces beside them if they are there; either may be gzipped.
    ///
    /// # Errors
    /// When a file cannot be read, holds what it must not, or the traces end before the records say.
    pub fn read(path: &Path) -> Result<(Self, Vec<CandidateStep>), ReportError> {
        let records = read_records(path).map_err(|source: SweepError| ReportError::Records { source: Box::new(source) })?;
        if records.is_empty() {
            return Err(ReportError::Empty { path: path.to_owned() });
        }
        let expected = records.iter().filter_map(|record| record.trace).map(|span| span.end()).max();
        let traces = expected.zip(traces_beside(path)?);
        let (steps, cut) = match &traces {
            Some((end, path)) => steps::read(path, *end, &records)?,
            None => (Vec::new(), 0),
        };
        let text = |record: SweepRecord| {
            let SweepRecord { id, prompt_id, prompt, response, .. } = record;
            (id, Text { prompt_id, prompt, response })
        };
        let runs = Runs::by_scheme(&records, &steps);
        let texts = records.into_iter().map(text).collect();
        Ok((Self { runs, cut, traced: traces.is_some(), texts }, steps))
    }

    /// What the response of that id is and answers.
    pub fn text(&self, id: &str) -> Option<&Text> {
        self.texts.get(id)
    }
}

/// The file of traces, `NAME.traces.jsonl` beside `NAME.jsonl`, or the same with `.gz`; nothing where there is none.
fn traces_beside(records: &Path) -> Result<Option<PathBuf>, ReportError> {
    let plain =
        if records.extension().is_some_and(|extension| extension == "gz") { records.with_extension("") } else { records.into() };
    let traces = plain.with_extension("traces.jsonl");
    for path in [traces.clone(), traces.with_extension("jsonl.gz")] {
        match path.metadata() {
            Ok(_) => return Ok(Some(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(ReportError::Read { path, source }),
        }
    }
    Ok(None)
}
