use std::io;
use std::path::PathBuf;

use crate::objectives::ObjectivesError;
use crate::record::RecordError;

/// Why raw results cannot be reported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A file that cannot be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A file that is not CSV.
    #[error("{}: {source}", path.display())]
    Csv {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: csv::Error,
    },
    /// A file that lacks a column.
    #[error("{}: no column \"{column}\"; the header must name it", path.display())]
    Column {
        /// The file.
        path: PathBuf,
        /// The missing column.
        column: String,
    },
    /// A value that is not what its column holds.
    #[error("{}, line {line}, column \"{column}\": \"{value}\" is not {expected}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The column.
        column: String,
        /// What stands there.
        value: String,
        /// What should.
        expected: &'static str,
    },
    /// A line that is not a candidate step.
    #[error("{}, line {line}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Two judgements of one response.
    #[error("{}, line {line}: {method} at {configuration} on prompt {prompt} was judged before; keep one of the two lines", path.display())]
    Duplicate {
        /// The file.
        path: PathBuf,
        /// The line of the second, from 1.
        line: u64,
        /// The method.
        method: String,
        /// The weight configuration.
        configuration: String,
        /// The prompt.
        prompt: u32,
    },
    /// Records of a sweep that cannot be read.
    #[error("{source}")]
    Records {
        /// Why.
        source: Box<RecordError>,
    },
    /// Records of another sweep than the one that was judged.
    #[error(
        "{}: none of its {records} records is of a judged response, of which {judged} have an id; give the records of the sweep that was judged, \
         and the table of `swiss-knife judge table`", path.display()
    )]
    Unjudged {
        /// The file.
        path: PathBuf,
        /// Its records.
        records: usize,
        /// Judged responses with an id.
        judged: usize,
    },
    /// Traces that lack steps.
    #[error(
        "{}: {found} bytes, and the records speak of {expected}; put the traces of the same sweep there, or move these away", path.display()
    )]
    Traces {
        /// The file.
        path: PathBuf,
        /// What it holds.
        found: u64,
        /// Where the last record's steps end.
        expected: u64,
    },
    /// A file of objectives that cannot be used.
    #[error(transparent)]
    Objectives(#[from] ObjectivesError),
    /// A file without a single row.
    #[error("{}: no rows", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A reference method that was not run.
    #[error("no method \"{name}\" among the results; name one with --reference; {hint}")]
    Reference {
        /// The method asked for.
        name: String,
        /// What is there.
        hint: String,
    },
}
