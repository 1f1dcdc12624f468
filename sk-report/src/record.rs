//! The records of a sweep: one line per response.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use sk_core::{Ended, Seconds};

use crate::lines::{json_fault, numbered_lines, plain_or_packed};

/// A finished cell of a sweep: one line of the output. `swiss-knife judge` reads it as a response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepRecord {
    /// `SCHEME/WEIGHTS/PROMPT/SEED`, unique among the records.
    pub id: String,
    /// The name of the scheme in the plan.
    pub scheme: String,
    /// The weights by blade name; empty if the scheme runs once for all weight vectors.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, f64>,
    /// The name of the prompt.
    pub prompt_id: String,
    /// The prompt's label `axis`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub axis: Option<String>,
    /// The dialogue to be answered.
    pub prompt: String,
    /// The seed of the plan.
    pub seed: u64,
    /// The seed of this cell's random draws.
    pub draws: u64,
    /// The text of the response.
    pub response: String,
    /// The reason why generation ended.
    pub ended: Ended,
    /// The number of tokens of the response.
    pub tokens: usize,
    /// The number of generation steps.
    pub steps: usize,
    /// A digest of the [settings](crate::settings::Settings): everything that can change the
    /// response, except for the cell's own coordinates and the device.
    pub settings: String,
    /// The device that ran the models.
    pub device: String,
    /// The time by part, summed over steps, in seconds.
    pub seconds: Seconds,
    /// The wall time, in seconds.
    pub elapsed: f64,
    /// The location of the steps in the traces file; `None` if they were not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceSpan>,
}

/// An error in a file of records, of settings or of judgements.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum RecordError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A line is not valid.
    #[error("{}:{line}: {reason}", path.display())]
    Line { path: PathBuf, line: u64, reason: String },
}

impl RecordError {
    /// Returns a function that wraps an I/O error from reading `path`.
    pub fn reading(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Read { path: path.to_owned(), source }
    }

    /// Returns the error of a line, from 1.
    pub fn line(path: &Path, line: u64, reason: impl Into<String>) -> Self {
        Self::Line { path: path.to_owned(), line, reason: reason.into() }
    }
}

/// A byte range in the traces file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceSpan {
    /// The number of bytes before it.
    pub offset: u64,
    /// Its length in bytes: whole lines, one per step.
    pub bytes: u64,
}

impl TraceSpan {
    /// Returns the end of the range.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

/// Reads the records of a sweep, in the order in which they finished.
///
/// # Errors
/// If the file cannot be read or a line is not a record. The error names file and line.
pub fn read_records(path: &Path) -> Result<Vec<SweepRecord>, RecordError> {
    json_lines(path, "it is not a record of a sweep: ")?.map(|read| Ok(read?.1)).collect()
}

/// Reads one JSON value per line that is not blank, with its line number, from 1. `is_not` begins
/// the message of an invalid line.
///
/// # Errors
/// If the file cannot be opened, and for each line that cannot be read or is not a value. The error
/// names file and line.
pub fn json_lines<T: DeserializeOwned>(
    path: &Path,
    is_not: &str,
) -> Result<impl Iterator<Item = Result<(u64, T), RecordError>>, RecordError> {
    let lines = numbered_lines(path).map_err(RecordError::reading(path))?;
    Ok(lines.map(move |(line, text)| {
        let wrong = |reason| RecordError::line(path, line, reason);
        let text = text.map_err(|error| wrong(error.to_string()))?;
        let value = serde_json::from_str(&text).map_err(|error| wrong(format!("{is_not}{}", json_fault(&error))))?;
        Ok((line, value))
    }))
}

/// Returns the path of a sweep's traces: `NAME.traces.jsonl` beside the records in `NAME.jsonl`, or
/// the same with `.gz`. Returns `None` if there is no such file.
///
/// # Errors
/// If the existence of the file cannot be determined.
pub fn traces_beside(records: &Path) -> Result<Option<PathBuf>, RecordError> {
    let traces = unpacked(records).with_extension("traces.jsonl");
    plain_or_packed(&traces).map_err(RecordError::reading(&traces))
}

/// Returns the path without a final `.gz`.
pub(crate) fn unpacked(path: &Path) -> PathBuf {
    if path.extension().is_some_and(|extension| extension == "gz") { path.with_extension("") } else { path.into() }
}
