use std::path::PathBuf;

use sk_core::StepError;

use crate::Error;

/// A field in which an arm differs from the scheme that drives.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {own}, not {theirs}")]
pub struct Difference {
    /// The field.
    pub field: String,
    /// Its value in the arm.
    pub own: String,
    /// Its value in the scheme that drives.
    pub theirs: String,
}

/// Schemes that cannot share their candidates, or a trace that they cannot choose from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// Two arms of one name.
    #[error("two arms are called \"{name}\"; give one another name, such as --arm other={name}")]
    Names {
        /// The name.
        name: String,
    },
    /// Nothing to compare with.
    #[error(
        "no other scheme that ships looks on at \"{driver}\" by itself; name one with --arm, as those that read heads must be"
    )]
    Alone {
        /// The scheme that drives.
        driver: String,
    },
    /// An arm with candidates of its own.
    #[error(
        "arm \"{arm}\" cannot share the candidates of \"{driver}\": its {difference}; arms agree in [proposal] and [granularity]"
    )]
    Candidates {
        /// The arm.
        arm: String,
        /// The scheme that drives.
        driver: String,
        /// Where they differ.
        difference: Box<Difference>,
    },
    /// An arm with scores of its own, where there are only those of a trace.
    #[error(
        "arm \"{arm}\" cannot choose by the scores of \"{driver}\": its {difference}, and a trace has no other scores; run it on a prompt"
    )]
    Scores {
        /// The arm.
        arm: String,
        /// The scheme that the trace is of.
        driver: String,
        /// Where they differ.
        difference: Box<Difference>,
    },
    /// Different things of one name.
    #[error("\"{name}\" is {first} for one arm and {second} for another; call one of them something else")]
    Sources {
        /// The name.
        name: String,
        /// One.
        first: String,
        /// The other.
        second: String,
    },
    /// An arm that cannot be had.
    #[error("arm \"{arm}\": {source}")]
    Arm {
        /// The arm.
        arm: String,
        /// What is wrong.
        source: Box<Error>,
    },
    /// A trace that is not one, or that lacks what an arm looks at.
    #[error("{}:{line}: {reason}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// An arm that fails on a step of a trace.
    #[error("{}:{line}: arm \"{arm}\": {source}", path.display())]
    Step {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// The arm.
        arm: String,
        /// What failed.
        source: Box<StepError>,
    },
}
