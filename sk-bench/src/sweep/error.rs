use std::io;
use std::path::PathBuf;

use sk_models::hf::CheckpointError;

use sk_report::record::RecordError;

use crate::Error;
use crate::prompt_sets::PromptSetError;
use crate::scheme::SchemeError;

/// A sweep that cannot start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Nothing was begun: a file of the output cannot be opened.
    #[error("cannot write {}: {source}; give [sweep] another output", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The output is a file of prompts.
    #[error("{} holds prompts of the plan, and records would go there too; give [sweep] another output", output.display())]
    Prompted {
        /// The file.
        output: PathBuf,
    },
    /// A file of the output that is not one.
    #[error("{}: {reason}; put it elsewhere, or give [sweep] another output", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}; what was finished is kept, run again to go on", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A plan that is not one, or a scheme of it that cannot be built.
    #[error(transparent)]
    Plan(#[from] SchemeError),
    /// Prompts that cannot be had.
    #[error(transparent)]
    Prompts(#[from] PromptSetError),
    /// A scheme that seats some of the blades that are weighed, but not all.
    #[error("scheme \"{scheme}\" has no blade \"{blade}\" to weigh; it has {seated}")]
    Unseated {
        /// The scheme.
        scheme: String,
        /// The blade that the weights name.
        blade: String,
        /// Those it has.
        seated: String,
    },
    /// Weights of a blade that nothing seats.
    #[error("the weights name the blade \"{blade}\", which no scheme of the plan and no model seats; {hint}")]
    Unknown {
        /// The name.
        blade: String,
        /// What may be meant.
        hint: String,
    },
    /// A backbone or drafter whose weights cannot be read.
    #[error(transparent)]
    Model(Box<CheckpointError>),
    /// A scheme of the plan that does not go with its models.
    #[error("scheme \"{scheme}\": {source}")]
    Scheme {
        /// The scheme.
        scheme: String,
        /// What is wrong.
        source: Box<Error>,
    },
    /// A prompt that cannot be asked.
    #[error("prompt \"{id}\" ({file}, row {row}): {source}")]
    Prompt {
        /// The prompt.
        id: String,
        /// The file it came from.
        file: String,
        /// Its row there, from 1, a header not counted.
        row: usize,
        /// What is wrong.
        source: Box<Error>,
    },
    /// A cell that failed.
    #[error("cell {id}: {source}")]
    Cell {
        /// The cell.
        id: String,
        /// What failed.
        source: Box<Error>,
    },
    /// Records or settings that cannot be read.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// A line of the output that is not a record, or one that does not go with the plan.
    #[error("{}:{line}: {reason}", path.display())]
    Record {
        /// The output.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// An output or a trace that was deleted or replaced during the sweep.
    #[error("{} was deleted or replaced while the sweep ran; run again to make the records that are missing", path.display())]
    Replaced {
        /// The file.
        path: PathBuf,
    },
    /// An output or a trace that somebody else shortened.
    #[error("{} has {found} bytes and had {expected}; put it back, or start a new output", path.display())]
    Shortened {
        /// The file.
        path: PathBuf,
        /// Bytes it has.
        found: u64,
        /// Bytes it had, or those that the records speak of.
        expected: u64,
    },
}
