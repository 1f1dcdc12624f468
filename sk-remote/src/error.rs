use sk_core::TokenId;

use crate::AddressError;

/// The reason why servers could not draft or read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum RemoteError {
    /// An address is invalid.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A server rejects a request permanently. If it is `repeated`, the server may have carried it
    /// out in an earlier attempt.
    #[error("{server} refuses {task} with status {status}: {message}{}", remedy(*status, message))]
    Refused { server: String, task: String, status: u16, message: String, repeated: bool },
    /// No server gave a usable answer.
    #[error(
        "{task} failed after {} and {seconds:.1} s; last failure, from {server}: {last}",
        counted(*attempts as usize, "attempt")
    )]
    Unanswered {
        server: String,
        task: String,
        attempts: u32,
        seconds: f64,
        #[source]
        last: Fault,
    },
    /// It was stopped, or its time is over.
    #[error("{task} was stopped, or its time is over")]
    Stopped { task: String },
    /// The context and its continuation are too long for the model.
    #[error("context and continuation have {tokens} tokens, but the {role} holds {limit}; shorten the prompt or the response")]
    ContextFull { role: &'static str, tokens: usize, limit: usize },
    /// A policy has neither an adapter nor an instruction.
    #[error("no adapter or instruction is called \"{name}\"; known: {known}")]
    UnknownPolicy { name: String, known: String },
    /// A context has no tokens.
    #[error("the context of {policy} has no tokens; give a prompt, or an instruction, of at least one")]
    EmptyContext { policy: String },
    /// A server lacks a feature.
    #[error("{what} is not available on servers: {reason}")]
    Unsupported { what: String, reason: &'static str },
    /// A server would apply an adapter only partly.
    #[error(
        "the adapter of blade \"{blade}\" changes {module}, which the servers leave out when they score; train it without {module}"
    )]
    AdapterModule { blade: String, module: String },
    /// A server did not load an adapter.
    #[error("{server} did not load the adapter \"{adapter}\": {message}")]
    AdapterRefused { server: String, adapter: String, message: String },
    /// A server already has an adapter with this name.
    #[error(
        "{server} did not load the adapter \"{adapter}\": {message}; give {adapter}=lora:{adapter} to use the one that it has, or unload that \
         first"
    )]
    AdapterKnown { server: String, adapter: String, message: String },
    /// The probe is too short.
    #[error("the text of the check has {tokens} tokens; give at least {least}")]
    ShortProbe { tokens: usize, least: usize },
    /// A span has different log-probabilities in two scorings.
    #[error(
        "{server} {way}: token {token} at position {position} under {policy} has log-probability {got:.4}, but {expected:.4} ({reference}); \
         they differ by more than {tolerance} nats; do not use this server until they agree"
    )]
    Mismatch {
        server: String,
        way: &'static str,
        policy: String,
        position: usize,
        token: TokenId,
        reference: String,
        expected: f32,
        got: f32,
        tolerance: f32,
    },
    /// An adapter has the same log-probabilities as the base model.
    #[error(
        "{server} scores under adapter \"{adapter}\" as under the base model: {got:.6} and {base:.6} nats per token; is it loaded and does \
         it change this model?"
    )]
    SameAsBase { server: String, adapter: String, got: f32, base: f32 },
    /// Tokens drafted at temperature 1 have other log-probabilities than when the server reads
    /// them.
    #[error(
        "{server} drafts token {token} with log-probability {returned:.4}, and reads it with {read:.4}, both at temperature 1; do not draft \
         with this server"
    )]
    Drafted { server: String, token: TokenId, returned: f32, read: f32 },
    /// A server has another tokenizer.
    #[error(
        "{server} has another tokenizer: at position {position} of the text of the check it has {theirs}, and {ours} is expected; use \
         the tokenizer.json of the model that it serves"
    )]
    Tokenizer { server: String, position: usize, ours: String, theirs: String },
}

/// The failure of one attempt. The request is retried, on another server if there is one.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum Fault {
    /// The connection failed, or the body was truncated.
    #[error("the connection failed: {message}")]
    Connection { message: String },
    /// The server did not answer in time.
    #[error("no answer within {seconds:.1} s")]
    TimedOut { seconds: f64 },
    /// The server is overloaded or temporarily unavailable.
    #[error("status {status}: {message}")]
    Status { status: u16, message: String },
    /// The body does not follow the API.
    #[error("the answer cannot be read: {message}")]
    Body { message: String },
    /// The body does not match the request.
    #[error("the answer is wrong: {0}")]
    Answer(#[from] AnswerError),
}

/// A well-formed answer that cannot belong to the request.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum AnswerError {
    /// The number of rows is wrong.
    #[error("{got} rows where {expected} were asked for")]
    Rows { expected: usize, got: usize },
    /// The index of a row is repeated or out of range.
    #[error("row index {index} is repeated or not below {rows}")]
    Index { index: usize, rows: usize },
    /// The number of positions is wrong.
    #[error("row {row} has {got} positions where {expected} were asked for")]
    Positions { row: usize, expected: usize, got: usize },
    /// The tokens of a row are not those that were sent.
    #[error("row {row} is of other tokens: at position {position} token {expected} was sent")]
    Tokens { row: usize, position: usize, expected: TokenId },
    /// A value is not a log-probability; NaN where the server sent none.
    #[error("row {row} has log-probability {value} at position {position}")]
    Value { row: usize, position: usize, value: f32 },
    /// A token has a higher log-probability than the most probable one.
    #[error("row {row} has log-probability {got} at position {position}, above that of the argmax, {top}")]
    Top { row: usize, position: usize, got: f32, top: f32 },
    /// Two rows that continue the same context disagree about the first token.
    #[error(
        "rows {first} and {second} continue one context under one policy, and their most likely first tokens have log-probabilities {one} and {other}"
    )]
    Disagreement { first: usize, second: usize, one: f32, other: f32 },
    /// The control row of a policy has other log-probabilities than at the check.
    #[error(
        "the control span has {got} nats per token under {policy}, and had {expected} at the check: these are not the weights that were checked"
    )]
    Control { policy: String, expected: f32, got: f32 },
    /// A row ended for an unexpected reason.
    #[error("row {row} ended by \"{reason}\" after {tokens} tokens")]
    Finish { row: usize, reason: String, tokens: usize },
}

/// Returns what can be done about a refusal, as the end of a message.
fn remedy(status: u16, message: &str) -> &'static str {
    match status {
        401 | 403 => "; check the API key of the servers",
        // As vLLM and SGLang answer at a path that they do not have.
        404 if message == "Not Found" => "; check the kind of server with which the address begins",
        _ => "",
    }
}

/// Returns a number with its noun, in the plural unless the number is 1.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

impl Fault {
    pub(crate) fn body(message: impl std::fmt::Display) -> Self {
        Self::Body { message: message.to_string() }
    }
}
