use std::io;
use std::path::PathBuf;

use crate::Error;
use crate::prompt_sets::PromptSetError;
use crate::scheme::SchemeError;
use crate::sweep::SweepError;

/// A search that cannot start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}; what was finished is kept, run again to go on", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Nothing was begun: the ledger cannot be opened.
    #[error("cannot write {}: {source}; give [tune] another output", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A number that is searched unless the plan says, and that the scheme does not have.
    #[error("{}: no [space] section; {reason}", path.display())]
    Space {
        /// The plan.
        path: PathBuf,
        /// What is wrong, and what to write.
        reason: String,
    },
    /// The ledger is a file of prompts.
    #[error("{} holds prompts of the plan, and trials would go there too; give [tune] another output", output.display())]
    Prompted {
        /// The file.
        output: PathBuf,
    },
    /// Another process searches with the same ledger.
    #[error("{} is in use by another process; wait for it, or give the plan another output", path.display())]
    Locked {
        /// The ledger.
        path: PathBuf,
    },
    /// A plan that is not one, or a scheme of it that cannot be built.
    #[error(transparent)]
    Plan(#[from] SchemeError),
    /// Prompts that cannot be had.
    #[error(transparent)]
    Prompts(#[from] PromptSetError),
    /// Prompts that the scheme would be evaluated on afterwards.
    #[error(
        "{count} of the {prompts} prompts to tune on are also to be evaluated on, such as \"{tuned}\", which is \"{evaluated}\" there; tune on others"
    )]
    Overlap {
        /// How many.
        count: usize,
        /// Of how many.
        prompts: usize,
        /// The id of the first.
        tuned: String,
        /// Its id in the evaluation set.
        evaluated: String,
    },
    /// An objective whose prompts are none.
    #[error("objective \"{objective}\": no prompt has the label axis = \"{axis}\"; labels found: {found}")]
    NoPrompts {
        /// The objective.
        objective: String,
        /// The label's value.
        axis: String,
        /// Values there are.
        found: String,
    },
    /// A blade's own score is asked for where the blade is not read.
    #[error("objective \"{objective}\": blade \"{blade}\" has no weight at {weights}, so that it is not read there; give it one")]
    Unread {
        /// The objective.
        objective: String,
        /// The blade.
        blade: String,
        /// The weights.
        weights: String,
    },
    /// A line of the ledger that is no trial, or not one of this plan.
    #[error("{}:{line}: {reason}", path.display())]
    Record {
        /// The ledger.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The responses of a trial could not be had or scored.
    #[error("trial {trial} of \"{search}\": {source}")]
    Trial {
        /// The search.
        search: String,
        /// The trial, from 0.
        trial: usize,
        /// What failed.
        source: Box<Error>,
    },
    /// A trial without a score, where no trial of its search has one.
    #[error(
        "trial {trial} of \"{search}\" has no score for \"{objective}\": none of its {responses} responses was scored; the judge abstained, or \
         they are empty"
    )]
    NoScore {
        /// The search.
        search: String,
        /// The trial, from 0.
        trial: usize,
        /// The objective.
        objective: String,
        /// The responses of the trial.
        responses: usize,
    },
    /// The estimator refused what it was told.
    #[error("search \"{search}\": {reason}")]
    Estimator {
        /// The search.
        search: String,
        /// Why.
        reason: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A sweep of a trial that cannot start or go on.
    #[error(transparent)]
    Sweep(#[from] SweepError),
}
