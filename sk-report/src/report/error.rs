use std::path::PathBuf;

use crate::objectives::ObjectivesError;
use crate::record::RecordError;

/// The reason why raw results cannot be reported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum ReportError {
    /// The file is not CSV.
    #[error("{}: {source}", path.display())]
    Csv { path: PathBuf, source: csv::Error },
    /// The file lacks a column.
    #[error("{}: no column \"{column}\"; the header must name it", path.display())]
    Column { path: PathBuf, column: String },
    /// The header names a column twice.
    #[error("{}: the header names the column \"{column}\" twice; remove or rename one", path.display())]
    TwoColumns { path: PathBuf, column: String },
    /// A value is not valid for its column.
    #[error("{}, line {line}, column \"{column}\": \"{value}\" is not {expected}", path.display())]
    Value { path: PathBuf, line: u64, column: String, value: String, expected: &'static str },
    /// A response was judged twice.
    #[error("{}, line {line}: {method} at {configuration} on prompt {prompt} was judged before; keep one of the two lines", path.display())]
    Duplicate { path: PathBuf, line: u64, method: String, configuration: String, prompt: u32 },
    /// A file cannot be read, or a line of candidate steps or of a sweep's files is not valid.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// The records belong to another sweep than the judgements.
    #[error(
        "{}: none of its {records} records matches one of the {judged} judged responses that have an id; give the records of the sweep that was judged, \
         and the table of `swiss-knife judge table`", path.display()
    )]
    Unjudged { path: PathBuf, records: usize, judged: usize },
    /// The objectives file cannot be used.
    #[error(transparent)]
    Objectives(#[from] ObjectivesError),
    /// The file has no rows.
    #[error("{}: no rows", path.display())]
    Empty { path: PathBuf },
    /// The reference method is not among the results.
    #[error("no method \"{name}\" among the results; name one with --reference; {hint}")]
    Reference { name: String, hint: String },
}
