use std::io;
use std::path::PathBuf;

use crate::objectives::ObjectivesError;
use crate::record::RecordError;

/// The reason why raw results cannot be reported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The file cannot be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is not CSV.
    #[error("{}: {source}", path.display())]
    Csv {
        /// The file.
        path: PathBuf,
        /// The error.
        source: csv::Error,
    },
    /// The file lacks a column.
    #[error("{}: no column \"{column}\"; the header must name it", path.display())]
    Column {
        /// The file.
        path: PathBuf,
        /// The missing column.
        column: String,
    },
    /// A value is not valid for its column.
    #[error("{}, line {line}, column \"{column}\": \"{value}\" is not {expected}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The column.
        column: String,
        /// The value.
        value: String,
        /// What the column holds.
        expected: &'static str,
    },
    /// A line is not a candidate step.
    #[error("{}, line {line}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The error.
        source: serde_json::Error,
    },
    /// A response was judged twice.
    #[error("{}, line {line}: {method} at {configuration} on prompt {prompt} was judged before; keep one of the two lines", path.display())]
    Duplicate {
        /// The file.
        path: PathBuf,
        /// The line of the second judgement, from 1.
        line: u64,
        /// The method.
        method: String,
        /// The weight configuration.
        configuration: String,
        /// The prompt.
        prompt: u32,
    },
    /// The records of a sweep cannot be read.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// The records belong to another sweep than the judgements.
    #[error(
        "{}: none of its {records} records matches one of the {judged} judged responses that have an id; give the records of the sweep that was judged, \
         and the table of `swiss-knife judge table`", path.display()
    )]
    Unjudged {
        /// The file.
        path: PathBuf,
        /// The number of its records.
        records: usize,
        /// The number of judged responses with an id.
        judged: usize,
    },
    /// The traces lack steps.
    #[error(
        "{} has {found} bytes, but the records refer to {expected}; replace it with the traces of the same sweep, or move it away", path.display()
    )]
    Traces {
        /// The file.
        path: PathBuf,
        /// The length of the file, in bytes.
        found: u64,
        /// The end of the last record's steps, in bytes.
        expected: u64,
    },
    /// The objectives file cannot be used.
    #[error(transparent)]
    Objectives(#[from] ObjectivesError),
    /// The file has no rows.
    #[error("{}: no rows", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The reference method is not among the results.
    #[error("no method \"{name}\" among the results; name one with --reference; {hint}")]
    Reference {
        /// The method asked for.
        name: String,
        /// The available methods.
        hint: String,
    },
}
