//! The records of a sweep: one line per response.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use sk_core::{Ended, Seconds};

use crate::lines::{json_fault, numbered_lines};

/// A finished cell: one line of the output. `swiss-knife judge` reads it as a response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepRecord {
    /// `SCHEME/WEIGHTS/PROMPT/SEED`; no two records have the same.
    pub id: String,
    /// What the plan calls the scheme.
    pub scheme: String,
    /// The weights, by name of the blade; nothing where the scheme is asked once for all of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, f64>,
    /// Names the prompt.
    pub prompt_id: String,
    /// The prompt's label `axis`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub axis: Option<String>,
    /// The dialogue that is answered.
    pub prompt: String,
    /// The seed of the plan.
    pub seed: u64,
    /// What seeded the draws of this cell.
    pub draws: u64,
    /// What the model wrote.
    pub response: String,
    /// Why it ended.
    pub ended: Ended,
    /// Tokens of the response.
    pub tokens: usize,
    /// Steps taken.
    pub steps: usize,
    /// Digest of the [settings](crate::settings::Settings): everything that can change the
    /// response, but for the cell's own name and the device.
    pub settings: String,
    /// Where the models were.
    pub device: String,
    /// Where the time went, summed over steps, in seconds.
    pub seconds: Seconds,
    /// Wall time, in seconds.
    pub elapsed: f64,
    /// Where the steps stand in the file of traces; nothing where they were not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceSpan>,
}

/// A file of records or settings that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A line is not what the file must hold.
    #[error("{}:{line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
}

/// A part of the file of traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceSpan {
    /// Bytes before it.
    pub offset: u64,
    /// Its bytes: whole lines, one per step.
    pub bytes: u64,
}

impl TraceSpan {
    /// Where it ends.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

/// Reads the records of a sweep, in the order in which they were finished.
///
/// # Errors
/// When the file cannot be read or a line is not a record. Errors name file and line.
pub fn read_records(path: &Path) -> Result<Vec<SweepRecord>, RecordError> {
    read_lines(path, "it is not a record of a sweep")
}

/// Reads one value per line; a line that is none is refused by what it `is_not`.
pub(crate) fn read_lines<T: DeserializeOwned>(path: &Path, is_not: &str) -> Result<Vec<T>, RecordError> {
    let lines = numbered_lines(path).map_err(|source| RecordError::Read { path: path.to_owned(), source })?;
    lines
        .map(|(line, text)| {
            let wrong = |reason| RecordError::Line { path: path.to_owned(), line, reason };
            let text = text.map_err(|error| wrong(error.to_string()))?;
            serde_json::from_str(&text).map_err(|error| wrong(format!("{is_not}: {}", json_fault(&error))))
        })
        .collect()
}

/// The file of traces of a sweep, `NAME.traces.jsonl` beside its records in `NAME.jsonl`, or the same
/// with `.gz`; nothing where there is none.
///
/// # Errors
/// When it cannot be looked for.
pub fn traces_beside(records: &Path) -> Result<Option<PathBuf>, RecordError> {
    let traces = unpacked(records).with_extension("traces.jsonl");
    for path in [traces.clone(), traces.with_extension("jsonl.gz")] {
        match path.metadata() {
            Ok(_) => return Ok(Some(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(RecordError::Read { path, source }),
        }
    }
    Ok(None)
}

/// The name that a file has without `.gz`.
pub(crate) fn unpacked(path: &Path) -> PathBuf {
    if path.extension().is_some_and(|extension| extension == "gz") { path.with_extension("") } else { path.into() }
}
