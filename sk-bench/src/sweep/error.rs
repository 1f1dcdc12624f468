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
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum SweepError {
    /// A file of the output cannot be opened. Nothing was written.
    #[error("cannot write {}: {source}; give [sweep] another output", path.display())]
    Open { path: PathBuf, source: io::Error },
    /// The output is a file of prompts.
    #[error("{} holds prompts of the plan, and records would go there too; give [sweep] another output", output.display())]
    Prompted { output: PathBuf },
    /// A file at the path of the output that is not a sweep output.
    #[error("{}: {reason}; put it elsewhere, or give [sweep] another output", path.display())]
    Foreign { path: PathBuf, reason: String },
    /// A file cannot be written.
    #[error("cannot write {}: {source}; what was finished is kept, run again to go on", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// An invalid plan, or a scheme of the plan that cannot be built.
    #[error(transparent)]
    Plan(#[from] SchemeError),
    /// Prompts that cannot be loaded.
    #[error(transparent)]
    Prompts(#[from] PromptSetError),
    /// A scheme that seats only some of the blades with weights.
    #[error("scheme \"{scheme}\" has no blade \"{blade}\" to weigh; it has {seated}")]
    Unseated { scheme: String, blade: String, seated: String },
    /// A weight of a blade that neither a scheme nor the models seat.
    #[error("the weights name the blade \"{blade}\", which no scheme of the plan and no model seats; {hint}")]
    Unknown { blade: String, hint: String },
    /// A backbone or drafter whose weights cannot be read.
    #[error(transparent)]
    Model(Box<CheckpointError>),
    /// A scheme of the plan that does not fit the models.
    #[error("scheme \"{scheme}\": {source}")]
    Scheme { scheme: String, source: Box<Error> },
    /// A prompt that cannot be used. Rows are counted from 1, without the header.
    #[error("prompt \"{id}\" ({file}, row {row}): {source}")]
    Prompt { id: String, file: String, row: usize, source: Box<Error> },
    /// A cell that failed.
    #[error("cell {id}: {source}")]
    Cell { id: String, source: Box<Error> },
    /// A file cannot be read, or one of its lines is not a record or does not match the plan.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// An output or a trace that was deleted or replaced during the sweep.
    #[error("{} was deleted or replaced while the sweep ran; run again to make the records that are missing", path.display())]
    Replaced { path: PathBuf },
    /// An output or a trace that another program truncated.
    #[error("{} has {found} bytes and had {expected}; put it back, or start a new output", path.display())]
    Shortened { path: PathBuf, found: u64, expected: u64 },
}
