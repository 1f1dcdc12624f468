use std::io;
use std::path::PathBuf;

use sk_report::record::RecordError;

use super::Scale;
use crate::record_file::RecordFileError;

/// An error of judging.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum JudgeError {
    /// The file of judgements cannot be used.
    #[error(transparent)]
    File(#[from] RecordFileError),
    /// The cache cannot be written.
    #[error("cannot write {}: {source}; give another --cache, or --no-cache", path.display())]
    Cache { path: PathBuf, source: io::Error },
    /// Judging cannot start or continue because of a file, an option or an answer of the server.
    #[error("{0}")]
    Invalid(String),
    /// A response that differs from the one judged earlier under the same id.
    #[error("{}: response \"{id}\" was judged with another {what}; judge into a new file, or give the plan another output", path.display())]
    Changed { path: PathBuf, id: String, what: &'static str },
    /// A response that another judge has judged.
    #[error("{}: response \"{id}\" was judged by {judge}; judge into a new file, or give the plan another output", path.display())]
    AnotherJudge { path: PathBuf, id: String, judge: String },
    /// A scale that log-probability scoring does not support.
    #[error("scale {scale}: log-probability scoring needs scores of one digit, such as 1-5")]
    WideScale { scale: Scale },
    /// The server returns no log-probabilities.
    #[error(
        "{url}: \"{model}\" comes without log-probabilities of its tokens; use --scoring integer, or scoring = \"integer\" in a plan"
    )]
    NoLogprobs { url: String, model: String },
    /// The server rejects this question.
    #[error("{url}: the server answers {status}: {body}")]
    Rejected { url: String, status: u16, body: String },
    /// The server gave no usable answer in all attempts.
    #[error("{url}: no answer{}: {last}", after(*attempts))]
    Unanswered { url: String, attempts: u32, last: String },
    /// The user pressed Ctrl-C, or the judge was stopped.
    #[error("interrupted; what was judged is kept, and a new run goes on from it")]
    Interrupted,
    /// Some questions have no answer.
    #[error("{unanswered} of {total} questions have no answer; run again to retry them; first error: {first}")]
    Incomplete { unanswered: usize, total: usize, first: Box<Self> },
    /// Many questions in a row had no answer.
    #[error(
        "gave up after {failures} questions in a row without an answer: {last}; what was judged is kept, and a new run goes on from it"
    )]
    Outage { failures: usize, last: Box<Self> },
}

/// Returns the number of attempts as text, or an empty text for one attempt.
fn after(attempts: u32) -> String {
    if attempts > 1 { format!(" after {attempts} attempts; the last") } else { String::new() }
}

impl From<RecordError> for JudgeError {
    fn from(error: RecordError) -> Self {
        Self::File(error.into())
    }
}

impl JudgeError {
    /// Returns whether the error concerns a single question, so that judging can continue.
    pub fn is_local(&self) -> bool {
        matches!(self, Self::Rejected { .. } | Self::Unanswered { .. })
    }

    /// Returns whether the cause is the server or the machine and not the user's input.
    pub fn is_external(&self) -> bool {
        self.is_local() || matches!(self, Self::Incomplete { .. } | Self::Outage { .. })
    }
}
