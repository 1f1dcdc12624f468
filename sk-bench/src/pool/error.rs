use std::path::PathBuf;

use sk_core::StepError;
use sk_report::record::RecordError;

use crate::Error;

/// A field in which an arm differs from the driving scheme.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {own}, not {theirs}")]
pub struct Difference {
    /// The field.
    pub field: String,
    /// Its value in the arm.
    pub own: String,
    /// Its value in the driving scheme.
    pub theirs: String,
}

/// An error of a pool: schemes that cannot share candidates, or a trace that cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum PoolError {
    /// Two arms with the same name.
    #[error("two arms are called \"{name}\"; give one another name, such as --arm other={name}")]
    Names { name: String },
    /// No scheme to compare with.
    #[error(
        "no other scheme that ships can be compared with \"{driver}\" by default; name one with --arm, such as a scheme that reads heads"
    )]
    Alone { driver: String },
    /// An arm that would draft other candidates.
    #[error(
        "arm \"{arm}\" cannot share the candidates of \"{driver}\": its {difference}; arms agree in [proposal] and [granularity]"
    )]
    Candidates { arm: String, driver: String, difference: Box<Difference> },
    /// An arm that needs other scores than those of the trace.
    #[error("arm \"{arm}\" cannot use the recorded scores of \"{driver}\": its {difference}; give a prompt instead of --replay")]
    Scores { arm: String, driver: String, difference: Box<Difference> },
    /// Different adapters or heads with the same name.
    #[error("\"{name}\" is {first} for one arm and {second} for another; call one of them something else")]
    Sources { name: String, first: String, second: String },
    /// An arm that cannot be loaded.
    #[error("arm \"{arm}\": {source}")]
    Arm { arm: String, source: Box<Error> },
    /// An invalid trace, or a trace without data that an arm needs.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// An arm that fails on a step of a trace.
    #[error("{}:{line}: arm \"{arm}\": {source}", path.display())]
    Step { path: PathBuf, line: u64, arm: String, source: Box<StepError> },
}
