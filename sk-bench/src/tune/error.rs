use std::io;
use std::path::PathBuf;

use sk_report::record::RecordError;

use crate::Error;
use crate::prompt_sets::PromptSetError;
use crate::scheme::SchemeError;
use crate::sweep::SweepError;

/// A search that cannot start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum TuneError {
    /// A file cannot be read, or a line of the ledger is not a trial of this plan.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// A file cannot be written.
    #[error("cannot write {}: {source}; what was finished is kept, run again to go on", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// The ledger cannot be opened. Nothing was written.
    #[error("cannot write {}: {source}; give [tune] another output", path.display())]
    Open { path: PathBuf, source: io::Error },
    /// A number that is searched by default but that the scheme does not have.
    #[error("{}: no [space] section; {reason}", path.display())]
    Space { path: PathBuf, reason: String },
    /// The ledger is a file of prompts.
    #[error("{} holds prompts of the plan, and trials would go there too; give [tune] another output", output.display())]
    Prompted { output: PathBuf },
    /// Another process searches with the same ledger.
    #[error("{} is in use by another process; wait for it, or give the plan another output", path.display())]
    Locked { path: PathBuf },
    /// An invalid plan, or a scheme of the plan that cannot be built.
    #[error(transparent)]
    Plan(#[from] SchemeError),
    /// Prompts that cannot be loaded.
    #[error(transparent)]
    Prompts(#[from] PromptSetError),
    /// Tuning prompts that are also evaluation prompts.
    #[error(
        "{count} of the {prompts} tuning prompts are also evaluation prompts, such as \"{tuned}\" (\"{evaluated}\" in [evaluation]); remove them from [prompts]"
    )]
    Overlap { count: usize, prompts: usize, tuned: String, evaluated: String },
    /// An objective without prompts.
    #[error("objective \"{objective}\": no prompt has the label axis = \"{axis}\"; labels found: {found}")]
    NoPrompts { objective: String, axis: String, found: String },
    /// A blade whose score is needed has no weight, so its score is not computed.
    #[error(
        "objective \"{objective}\": blade \"{blade}\" has no positive weight in {weights}, so it gives no score; give it one"
    )]
    Unread { objective: String, blade: String, weights: String },
    /// The responses of a trial could not be generated or scored.
    #[error("trial {trial} of \"{search}\": {source}")]
    Trial { search: String, trial: usize, source: Box<Error> },
    /// A trial without a score, in a search in which no trial has a score yet.
    #[error(
        "trial {trial} of \"{search}\" has no score for \"{objective}\": none of its {responses} responses was scored; the judge abstained, or \
         they are empty"
    )]
    NoScore { search: String, trial: usize, objective: String, responses: usize },
    /// An error of the estimator.
    #[error("search \"{search}\": {reason}")]
    Estimator { search: String, reason: Box<dyn std::error::Error + Send + Sync> },
    /// A sweep of a trial that cannot start or continue.
    #[error(transparent)]
    Sweep(#[from] SweepError),
}
