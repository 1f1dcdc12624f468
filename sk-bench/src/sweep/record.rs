//! What is kept of a cell.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::SweepError;
use crate::lines::{json_fault, numbered_lines};
use crate::record_file::Record;
use crate::session::Ended;
use crate::trace::Seconds;

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
    /// Digest of the [settings](super::Settings): everything that can change the response, but for the cell's own name and the device.
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

impl Record for SweepRecord {
    const FIRST: &str = "id";
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
pub fn read_records(path: &Path) -> Result<Vec<SweepRecord>, SweepError> {
    let lines = numbered_lines(path).map_err(|source| SweepError::Read { path: path.to_owned(), source })?;
    lines
        .map(|(line, text)| {
            let wrong = |reason| SweepError::Record { path: path.to_owned(), line, reason };
            let text = text.map_err(|error| wrong(error.to_string()))?;
            serde_json::from_str(&text).map_err(|error| wrong(format!("it is not a record of a sweep: {}", json_fault(&error))))
        })
        .collect()
}
