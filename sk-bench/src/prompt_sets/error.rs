use std::path::PathBuf;

use sk_report::record::RecordError;

/// Prompts that cannot be read, sampled or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum PromptSetError {
    /// A file or one of its lines cannot be read.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// A name that is neither a file nor a prompt set.
    #[error("there is no file {}, and no set of that name; sets are {sets}", path.display())]
    Nowhere { path: PathBuf, sets: String },
    /// A table that lacks a column.
    #[error("{}: no column \"{column}\"; found: {}", path.display(), found.join(", "))]
    Column { path: PathBuf, column: &'static str, found: Vec<String> },
    /// A file of an unknown format.
    #[error("{}: cannot tell its format; give --format (hh, truthful-qa, xstest or jsonl)", path.display())]
    UnknownFormat { path: PathBuf },
    /// A file without a prompt.
    #[error("{}: it holds no prompt", path.display())]
    Empty { path: PathBuf },
    /// Two prompts with the same id.
    #[error("two prompts are called \"{id}\", in {first} and in {second}; ids must differ")]
    Duplicate { id: String, first: String, second: String },
    /// A set of the paper is requested, but the folder of its data sets is not known.
    #[error(
        "{set} is rebuilt from HH-RLHF and TruthfulQA; give their folder with --data (in a plan, data under [prompts]) or {variable}"
    )]
    NoData { set: &'static str, variable: &'static str },
    /// A missing file of the paper's sets.
    #[error("{}: none of {} is there; --data, or data under [prompts] of a plan, names the folder that holds the data sets", root.display(), tried.join(", "))]
    Missing { root: PathBuf, tried: &'static [&'static str] },
    /// A file of the paper's sets with too few rows. Rows are counted from 0.
    #[error("{}: no row {row} (counted from 0), since the file has only {rows}; use the revision of the data set that the paper used", path.display())]
    Row { path: PathBuf, row: usize, rows: usize },
    /// A file of the paper's sets with unexpected contents.
    #[error("{}: its rows are not the {axis} prompts of the paper; use {revision}", path.display())]
    Revision { path: PathBuf, axis: &'static str, revision: &'static str },
    /// A prompt without the label that defines its stratum.
    #[error("prompt \"{id}\" has no label \"{label}\"; {hint}")]
    Unlabelled { id: String, label: String, hint: String },
    /// A stratum with too few prompts.
    #[error("{stratum} has {available} different prompts and {wanted} are wanted; lower the count")]
    Scarce { stratum: String, available: usize, wanted: usize },
}
