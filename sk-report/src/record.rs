//! The records of a sweep: one line per response.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use sk_core::{Ended, Seconds};

use crate::lines::{self, json_fault, numbered_lines};

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
    /// The file of traces is too short.
    #[error(
        "{} has {found} bytes, but the records refer to {expected}; replace it with the traces of the same sweep, or move it away", path.display()
    )]
    Short { path: PathBuf, found: u64, expected: u64 },
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
/// If the file cannot be read, a line is not a record, or two records have one id. The error names
/// file and line.
pub fn read_records(path: &Path) -> Result<Vec<SweepRecord>, RecordError> {
    let mut places = HashMap::new();
    let read = |read: Result<(u64, SweepRecord), RecordError>| {
        let (line, record) = read?;
        match places.insert(record.id.clone(), line) {
            Some(first) => {
                Err(RecordError::line(path, line, format!("\"{}\" is the id of line {first}; remove one of them", record.id)))
            }
            None => Ok(record),
        }
    };
    json_lines(path, "it is not a record of a sweep: ")?.map(read).collect()
}

/// Reads one JSON value per line that is not blank, with its line number, from 1. `is_not` begins
/// the message of an invalid line. Stop at the first error.
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
        let value = serde_json::from_str(&text).map_err(|error| {
            // A number may be cut off too.
            let is_cut_off = error.is_eof() || (error.is_syntax() && error.column() >= text.len());
            let hint = if is_cut_off { "; if a command was writing this line, run it again" } else { "" };
            wrong(format!("{is_not}{}{hint}", json_fault(&error)))
        })?;
        Ok((line, value))
    }))
}

/// Reads the steps of `records` from a traces file, each with its line number, from 1, and the
/// record that refers to it. Other lines belong to no record and are skipped.
///
/// # Errors
/// If the file cannot be opened or is too short, and for each line that cannot be read or is not a
/// step. Stop at the first.
pub fn read_steps<'r, T: DeserializeOwned>(
    traces: &Path,
    records: &'r [SweepRecord],
) -> Result<impl Iterator<Item = Result<(u64, &'r SweepRecord, T), RecordError>>, RecordError> {
    let spans = records.iter().filter_map(|record| Some((record.trace.filter(|span| span.bytes > 0)?, record)));
    let spans: BTreeMap<u64, (TraceSpan, &SweepRecord)> = spans.map(|(span, record)| (span.offset, (span, record))).collect();
    let expected = spans.values().map(|(span, _)| span.end()).max().unwrap_or(0);
    let failed = RecordError::reading(traces);
    let mut reader = lines::open(traces).map_err(&failed)?.take(expected);
    let (mut read, mut line) = (0, 0);
    let mut next = move || {
        loop {
            let (mut text, offset) = (String::new(), read);
            read += reader.read_line(&mut text).map_err(&failed)? as u64;
            line += 1;
            if text.is_empty() {
                let short = RecordError::Short { path: traces.to_owned(), found: read, expected };
                return if read < expected { Err(short) } else { Ok(None) };
            }
            let of = spans.range(..=offset).next_back().filter(|(_, (span, _))| offset < span.end());
            if let (Some((_, (_, record))), false) = (of, text.trim().is_empty()) {
                let step = serde_json::from_str(&text);
                let step = step.map_err(|error| RecordError::line(traces, line, json_fault(&error)))?;
                return Ok(Some((line, *record, step)));
            }
        }
    };
    Ok(std::iter::from_fn(move || next().transpose()))
}

/// Returns the path of a sweep's traces: `NAME.traces.jsonl` beside the records in `NAME.jsonl` or
/// `NAME.jsonl.gz`.
pub fn traces_of(records: &Path) -> PathBuf {
    unpacked(records).with_extension("traces.jsonl")
}

/// Returns the path of a sweep's traces, or the same with `.gz`, whichever exists; `None` if
/// neither does.
///
/// # Errors
/// If the existence of a file cannot be determined.
pub fn traces_beside(records: &Path) -> Result<Option<PathBuf>, RecordError> {
    plain_or_packed(&traces_of(records))
}

/// Returns `path` if it exists, otherwise the same with `.gz` appended if that exists.
///
/// # Errors
/// If the existence of a file cannot be determined.
pub(crate) fn plain_or_packed(path: &Path) -> Result<Option<PathBuf>, RecordError> {
    let packed = path.with_added_extension("gz");
    let exists = |path: &Path| path.try_exists().map_err(RecordError::reading(path));
    Ok(if exists(path)? { Some(path.to_owned()) } else { exists(&packed)?.then_some(packed) })
}

/// Returns the path without a final `.gz`.
pub(crate) fn unpacked(path: &Path) -> PathBuf {
    if path.extension().is_some_and(|extension| extension == "gz") { path.with_extension("") } else { path.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_cut_off_may_be_of_a_running_command() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        let fault = |text: &str| {
            std::fs::write(&path, text).unwrap();
            json_lines::<serde_json::Value>(&path, "").unwrap().find_map(Result::err).unwrap().to_string()
        };
        for text in ["{\"a\": 1", "{\"a\": -", "{\"a\": 1e", "{\"a\": tr", "{\"a"] {
            assert!(fault(text).ends_with("if a command was writing this line, run it again"), "{}", fault(text));
        }
        assert!(!fault("{\"a\" 1}").contains("run it again"));
    }

    #[test]
    fn steps_that_no_record_refers_to_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let (path, traces) = (folder.path().join("a.jsonl"), folder.path().join("a.traces.jsonl"));
        let record = |offset: u64, bytes: u64| {
            format!(
                r#"{{"id":"{offset}","scheme":"a","prompt_id":"p","prompt":"","seed":1,"draws":1,"response":"","ended":"limit","tokens":1,"steps":1,"settings":"","device":"cpu","seconds":{{"draft":1,"score":1,"select":1,"commit":1}},"elapsed":1,"trace":{{"offset":{offset},"bytes":{bytes}}}}}"#
            )
        };
        std::fs::write(&path, [record(6, 4), record(2, 2), record(3, 0)].join("\n")).unwrap();
        std::fs::write(&traces, "0\n1\n2\n3\n4\n{\"id").unwrap();
        let steps = |records: &[SweepRecord]| {
            let read = read_steps::<u64>(&traces, records)?;
            read.map(|read| read.map(|(line, record, step)| (line, record.id.clone(), step))).collect::<Result<Vec<_>, _>>()
        };
        let mut records = read_records(&path).unwrap();
        let expected = [(2, "2", 1), (4, "6", 3), (5, "6", 4)].map(|(line, id, step)| (line, id.to_owned(), step));
        assert_eq!(steps(&records).unwrap(), expected);
        std::fs::write(&path, [record(6, 4), record(2, 2), record(6, 0)].join("\n")).unwrap();
        let error = read_records(&path).unwrap_err().to_string();
        assert!(error.contains("a.jsonl:3: \"6\" is the id of line 1"), "{error}");
        records[0].trace = Some(TraceSpan { offset: 6, bytes: 90 });
        assert!(matches!(steps(&records), Err(RecordError::Line { line: 6, .. })));
        std::fs::write(&traces, "0\n1\n2\n3\n").unwrap();
        assert!(matches!(steps(&records), Err(RecordError::Short { found: 8, expected: 96, .. })));
    }
}
