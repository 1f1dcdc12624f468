use std::io;
use std::path::PathBuf;

/// Prompts that cannot be read, drawn or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PromptSetError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A name that is neither that of a file nor of a set.
    #[error("there is no file {}, and no set of that name; sets are {sets}", path.display())]
    Nowhere {
        /// What was given.
        path: PathBuf,
        /// The sets there are, comma-separated.
        sets: String,
    },
    /// A line that is not what the format asks for.
    #[error("{}:{line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A table that lacks a column.
    #[error("{}: no column \"{column}\"; found: {}", path.display(), found.join(", "))]
    Column {
        /// The file.
        path: PathBuf,
        /// The column looked for.
        column: &'static str,
        /// Those there are.
        found: Vec<String>,
    },
    /// A file of an unknown form.
    #[error("{}: cannot tell its format; give --format (hh, truthful-qa, xstest or jsonl)", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
    },
    /// A file without a prompt.
    #[error("{}: it holds no prompt", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Two prompts under one name.
    #[error("two prompts are called \"{id}\"; ids must differ")]
    Duplicate {
        /// The name.
        id: String,
    },
    /// A set of the paper, and nowhere to rebuild it from.
    #[error("{set} is rebuilt from HH-RLHF and TruthfulQA; give their folder with --data or {variable}")]
    NoData {
        /// The set.
        set: &'static str,
        /// The variable that may name the folder.
        variable: &'static str,
    },
    /// A file of the paper's sets that is not there.
    #[error("{}: none of {} is there; --data names the folder that holds the data sets", root.display(), tried.join(", "))]
    Missing {
        /// The folder searched.
        root: PathBuf,
        /// The names tried.
        tried: Vec<String>,
    },
    /// A file of the paper's sets with too few rows.
    #[error("{}: row {row} is wanted and there are {rows}; another revision of the data set has other rows", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The row, from 0.
        row: usize,
        /// Rows found.
        rows: usize,
    },
    /// A file of the paper's sets with other contents.
    #[error("{}: its rows are not the {axis} prompts of the paper; use {revision}", path.display())]
    Revision {
        /// The file.
        path: PathBuf,
        /// The axis it was to give.
        axis: &'static str,
        /// The revision that has them.
        revision: &'static str,
    },
    /// A prompt that cannot be put into a stratum.
    #[error("prompt \"{id}\" has no label \"{label}\"; {hint}")]
    Unlabelled {
        /// The prompt.
        id: String,
        /// The label asked for.
        label: String,
        /// Labels it has.
        hint: String,
    },
    /// A stratum with too few prompts.
    #[error("{stratum} has {available} different prompts and {wanted} are wanted; lower --count")]
    Scarce {
        /// The stratum.
        stratum: String,
        /// Prompts it has.
        available: usize,
        /// Prompts asked of it.
        wanted: usize,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}
