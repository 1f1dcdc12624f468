use std::io;
use std::path::PathBuf;

use sk_report::objectives::ObjectivesError;
use sk_report::record::RecordError;

use super::Scale;

/// An error of judging.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum JudgeError {
    /// A file or one of its lines cannot be read.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// A file that holds no response.
    #[error("{}: it holds no response", path.display())]
    NoResponses { path: PathBuf },
    /// A sweep without candidates that can be judged.
    #[error("{}: {reason}; run a sweep that keeps its traces, with at least three candidates a step", path.display())]
    NoCandidates { path: PathBuf, reason: &'static str },
    /// The same file is used for responses and judgements.
    #[error("{} holds the responses, and judgements would go there too; choose another file for them", path.display())]
    Collision { path: PathBuf },
    /// Judgements that cannot be written as the report's table.
    #[error("cannot make a table of the judgements: {reason}")]
    NoTable { reason: String },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// Another process writes the same file.
    #[error("{} is being written by another process; wait for it or choose another file", path.display())]
    Locked { path: PathBuf },
    /// A response that differs from the one judged earlier under the same id.
    #[error("{}: response \"{id}\" was judged with another {what}; judge into a new file", path.display())]
    Changed { path: PathBuf, id: String, what: &'static str },
    /// An address that cannot be used.
    #[error("endpoint \"{url}\": {reason}; it looks like http://localhost:8000/v1")]
    Url { url: String, reason: String },
    /// A key that is not valid in an HTTP header. The key itself is not shown.
    #[error("the value of {variable} cannot be sent as an API key: it holds a space or another character that a key cannot have")]
    Key { variable: String },
    /// A file of objectives that cannot be used.
    #[error(transparent)]
    Objectives(#[from] ObjectivesError),
    /// A scale that log-probability scoring does not support.
    #[error("scale {scale}: log-probability scoring needs scores of one digit, such as 1-5")]
    WideScale { scale: Scale },
    /// A server that does not report exactly one model.
    #[error("{url}: {reason}; name one with --model, or as model in a plan")]
    WhichModel { url: String, reason: String },
    /// The server denies access.
    #[error("{url}: the server answers {status}: {body}; {hint}")]
    Forbidden { url: String, status: u16, body: String, hint: String },
    /// The server redirects to another address, to which a key must not be sent.
    #[error(
        "{url}: the server answers {status} and redirects to {target}, and redirects are not followed; give the address of the server"
    )]
    Moved { url: String, status: u16, target: String },
    /// The server does not know the address or the model.
    #[error("{url}: the server answers 404 for model \"{model}\": {body}; check endpoint and model")]
    NotFound { url: String, model: String, body: String },
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
    /// An offline judge that cannot be loaded or cannot read a response.
    #[error("offline judge: {reason}")]
    Offline { reason: String },
    /// The user pressed Ctrl-C.
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

impl JudgeError {
    /// Returns whether the error concerns a single question, so that judging can continue.
    pub fn is_local(&self) -> bool {
        matches!(self, Self::Rejected { .. } | Self::Unanswered { .. })
    }

    /// Returns whether the user interrupted judging.
    pub fn is_interruption(&self) -> bool {
        matches!(self, Self::Interrupted)
    }

    /// Returns whether the cause is the server or the machine and not the user's input.
    pub fn is_external(&self) -> bool {
        self.is_local() || matches!(self, Self::Incomplete { .. } | Self::Outage { .. } | Self::Locked { .. })
    }
}
