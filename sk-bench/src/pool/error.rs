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
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum PoolError {
    /// Two arms of one name.
    #[error("two arms are called \"{name}\"; give one another name, such as --arm other={name}")]
    Names { name: String },
    /// Nothing to compare with.
    #[error(
        "no other scheme that ships looks on at \"{driver}\" by itself; name one with --arm, as those that read heads must be"
    )]
    Alone { driver: String },
    /// An arm with candidates of its own.
    #[error(
        "arm \"{arm}\" cannot share the candidates of \"{driver}\": its {difference}; arms agree in [proposal] and [granularity]"
    )]
    Candidates { arm: String, driver: String, difference: Box<Difference> },
    /// An arm with scores of its own, where there are only those of a trace.
    #[error(
        "arm \"{arm}\" cannot choose by the scores of \"{driver}\": its {difference}, and a trace has no other scores; run it on a prompt"
    )]
    Scores { arm: String, driver: String, difference: Box<Difference> },
    /// Different things of one name.
    #[error("\"{name}\" is {first} for one arm and {second} for another; call one of them something else")]
    Sources { name: String, first: String, second: String },
    /// An arm that cannot be had.
    #[error("arm \"{arm}\": {source}")]
    Arm { arm: String, source: Box<Error> },
    /// A trace that is not one, or that lacks what an arm looks at.
    #[error("{}:{line}: {reason}", path.display())]
    Record { path: PathBuf, line: u64, reason: String },
    /// An arm that fails on a step of a trace.
    #[error("{}:{line}: arm \"{arm}\": {source}", path.display())]
    Step { path: PathBuf, line: u64, arm: String, source: Box<StepError> },
}
