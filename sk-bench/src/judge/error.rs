use std::io;
use std::path::PathBuf;

use sk_report::objectives::ObjectivesError;

use super::Scale;

/// Judging that cannot start, go on or be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JudgeError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A line that is not a record.
    #[error("{}:{line}: {reason}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A file without a response.
    #[error("{}: it holds no response", path.display())]
    NoResponses {
        /// The file.
        path: PathBuf,
    },
    /// Records of a sweep that cannot be read.
    #[error("{reason}")]
    Sweep {
        /// Which file, and why.
        reason: String,
    },
    /// A sweep of which no candidate can be judged.
    #[error("{}: {reason}; run a sweep that keeps its traces, with at least three candidates a step", path.display())]
    NoCandidates {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: &'static str,
    },
    /// The responses and the judgements are one file.
    #[error("{} holds the responses, and judgements would go there too; choose another file for them", path.display())]
    Collision {
        /// The file.
        path: PathBuf,
    },
    /// Judgements that the report's table cannot hold.
    #[error("cannot make a table of the judgements: {reason}")]
    NoTable {
        /// Why.
        reason: String,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Another process writes the same file.
    #[error("{} is being written by another process; wait for it or choose another file", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// A response that is not the one judged before under its id.
    #[error("{}: response \"{id}\" was judged with another text; judge into a new file", path.display())]
    Changed {
        /// The file of judgements.
        path: PathBuf,
        /// The response.
        id: String,
    },
    /// An address that cannot be used.
    #[error("endpoint \"{url}\": {reason}; it looks like http://localhost:8000/v1")]
    Url {
        /// The address.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A key that cannot be sent. The key itself is not shown.
    #[error("the value of {variable} cannot be sent as an API key: it holds a line end or another control character")]
    Key {
        /// The variable.
        variable: String,
    },
    /// A file of objectives that cannot be used.
    #[error(transparent)]
    Objectives(#[from] ObjectivesError),
    /// A scale that log-probabilities cannot be read on.
    #[error("scale {scale}: log-probability scoring needs scores of one digit, such as 1-5")]
    WideScale {
        /// The scale.
        scale: Scale,
    },
    /// A server that does not say which model it serves.
    #[error("{url}: {reason}; name one with --model, or as model in a plan")]
    WhichModel {
        /// What was asked.
        url: String,
        /// What is unclear.
        reason: String,
    },
    /// The server does not let this user in.
    #[error("{url}: the server answers {status}: {body}; {hint}")]
    Forbidden {
        /// What was asked.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The beginning of its answer.
        body: String,
        /// What to do.
        hint: String,
    },
    /// The server knows no such address or model.
    #[error("{url}: the server answers 404 for model \"{model}\": {body}; check endpoint and model")]
    NotFound {
        /// What was asked.
        url: String,
        /// The model asked for.
        model: String,
        /// The beginning of its answer.
        body: String,
    },
    /// The server gives no log-probabilities.
    #[error(
        "{url}: \"{model}\" comes without log-probabilities of its tokens; use --scoring integer, or scoring = \"integer\" in a plan"
    )]
    NoLogprobs {
        /// What was asked.
        url: String,
        /// The model.
        model: String,
    },
    /// The server refuses this question.
    #[error("{url}: the server answers {status}: {body}")]
    Rejected {
        /// What was asked.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The beginning of its answer.
        body: String,
    },
    /// The server gave no usable answer, however often it was asked.
    #[error("{url}: no answer{}: {last}", after(*attempts))]
    Unanswered {
        /// What was asked.
        url: String,
        /// How often.
        attempts: u32,
        /// What happened last.
        last: String,
    },
    /// An offline judge that cannot be loaded or cannot read a response.
    #[error("offline judge: {reason}")]
    Offline {
        /// What is wrong.
        reason: String,
    },
    /// The user pressed Ctrl-C.
    #[error("interrupted; what was judged is kept, and a new run goes on from it")]
    Interrupted,
    /// Some questions stayed without an answer.
    #[error("{unanswered} of {total} questions have no answer; run again to put them once more; the first: {first}")]
    Incomplete {
        /// How many.
        unanswered: usize,
        /// Of how many.
        total: usize,
        /// Why the first has none.
        first: Box<Self>,
    },
    /// Question after question went unanswered.
    #[error(
        "gave up after {failures} questions in a row without an answer: {last}; what was judged is kept, and a new run goes on from it"
    )]
    Outage {
        /// How many.
        failures: usize,
        /// What happened last.
        last: Box<Self>,
    },
}

/// How often a server was asked, where that was more than once.
fn after(attempts: u32) -> String {
    if attempts > 1 { format!(" after {attempts} attempts; the last") } else { String::new() }
}

impl JudgeError {
    /// Whether it concerns one question only, so that others are worth asking.
    pub fn is_local(&self) -> bool {
        matches!(self, Self::Rejected { .. } | Self::Unanswered { .. })
    }

    /// Whether the user ended it.
    pub fn is_interruption(&self) -> bool {
        matches!(self, Self::Interrupted)
    }

    /// Whether the server or the machine is at fault and not what the user gave.
    pub fn is_external(&self) -> bool {
        self.is_local() || matches!(self, Self::Incomplete { .. } | Self::Outage { .. } | Self::Locked { .. })
    }
}
