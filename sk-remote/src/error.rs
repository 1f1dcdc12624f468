use sk_core::TokenId;

use crate::AddressError;

/// The reason why servers could not draft or read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// An address is invalid.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A server rejects a request permanently.
    #[error("{server} refuses {task} with status {status}: {message}")]
    Refused {
        /// Its address.
        server: String,
        /// The task, with the policies.
        task: String,
        /// The status of the answer.
        status: u16,
        /// The server's message.
        message: String,
    },
    /// No server gave a usable answer.
    #[error("{task} found no usable answer in {attempts} attempts and {seconds:.1} s; the last, from {server}: {last}")]
    Unanswered {
        /// The server asked last.
        server: String,
        /// The task, with the policies.
        task: String,
        /// The number of attempts on all servers.
        attempts: u32,
        /// The time of all attempts.
        seconds: f64,
        /// The last fault.
        #[source]
        last: Fault,
    },
    /// The context and its continuation are too long for the model.
    #[error(
        "the context has {tokens} tokens with what continues it, and the {role} holds {limit}; shorten the prompt or the response"
    )]
    ContextFull {
        /// The role of the model.
        role: &'static str,
        /// The tokens of the context and its continuation.
        tokens: usize,
        /// The limit of the server.
        limit: usize,
    },
    /// A policy has neither an adapter nor an instruction.
    #[error("no adapter or instruction is called \"{name}\"; known: {known}")]
    UnknownPolicy {
        /// The requested name.
        name: String,
        /// The known names, comma-separated.
        known: String,
    },
    /// A context has no tokens.
    #[error("the context of {policy} has no tokens; give a prompt, or an instruction, of at least one")]
    EmptyContext {
        /// The policy.
        policy: String,
    },
    /// A server lacks a feature.
    #[error("{what} is not available on servers: {reason}")]
    Unsupported {
        /// The requested feature.
        what: String,
        /// The reason, and the alternatives.
        reason: &'static str,
    },
    /// A server would apply an adapter only partly.
    #[error(
        "the adapter of blade \"{blade}\" changes {module}, which the servers leave out when they score; train it without {module}"
    )]
    AdapterModule {
        /// The blade.
        blade: String,
        /// The module.
        module: String,
    },
    /// A server did not load an adapter.
    #[error("{server} did not load the adapter \"{adapter}\": {message}")]
    AdapterRefused {
        /// Its address.
        server: String,
        /// The name of the adapter on the server.
        adapter: String,
        /// The server's message.
        message: String,
    },
    /// The probe is too short.
    #[error("the text of the check has {tokens} tokens; give at least {least}")]
    ShortProbe {
        /// Its number of tokens.
        tokens: usize,
        /// The required number of tokens.
        least: usize,
    },
    /// A span has different log-probabilities in two scorings.
    #[error(
        "{server} {way}: token {token} at position {position} under {policy} has log-probability {got:.4}, but {expected:.4} ({reference}); \
         they differ by more than {tolerance} nats; do not use this server until they agree"
    )]
    Mismatch {
        /// The address of the server.
        server: String,
        /// The kind of request, such as "in a mixed batch".
        way: &'static str,
        /// The policy.
        policy: String,
        /// The position in the span.
        position: usize,
        /// The token there.
        token: TokenId,
        /// The source of the expected value.
        reference: String,
        /// The expected log-probability, in nats.
        expected: f32,
        /// The log-probability found, in nats.
        got: f32,
        /// The tolerance, in nats.
        tolerance: f32,
    },
    /// An adapter has the same log-probabilities as the base model.
    #[error(
        "{server} scores under adapter \"{adapter}\" as under the base model: {got:.6} and {base:.6} nats per token; is it loaded and does \
         it change this model?"
    )]
    SameAsBase {
        /// The address of the server.
        server: String,
        /// The adapter.
        adapter: String,
        /// The mean log-probability under the adapter.
        got: f32,
        /// The mean log-probability under the base model.
        base: f32,
    },
    /// Tokens drafted at temperature 1 have other log-probabilities than when the server reads
    /// them.
    #[error(
        "{server} drafts token {token} with log-probability {returned:.4}, and reads it with {read:.4}, both at temperature 1; do not draft \
         with this server"
    )]
    Drafted {
        /// Its address.
        server: String,
        /// The token.
        token: TokenId,
        /// Its log-probability as drafted.
        returned: f32,
        /// Its log-probability as read.
        read: f32,
    },
    /// A server has another tokenizer.
    #[error(
        "{server} has another tokenizer: at position {position} of the text of the check it has {theirs}, and {ours} is expected; use \
         the tokenizer.json of the model that it serves"
    )]
    Tokenizer {
        /// Its address.
        server: String,
        /// The first position that differs.
        position: usize,
        /// The expected token, or "the end".
        ours: String,
        /// The server's token, or "the end".
        theirs: String,
    },
}

/// The failure of one attempt. The request is retried, on another server if there is one.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The connection failed, or the body was truncated.
    #[error("the connection failed: {message}")]
    Connection {
        /// The client's message.
        message: String,
    },
    /// The server did not answer in time.
    #[error("no answer within {seconds:.1} s")]
    TimedOut {
        /// The time waited.
        seconds: f64,
    },
    /// The server is overloaded or temporarily unavailable.
    #[error("status {status}: {message}")]
    Status {
        /// The status.
        status: u16,
        /// The server's message.
        message: String,
    },
    /// The body does not follow the API.
    #[error("the answer cannot be read: {message}")]
    Body {
        /// The error.
        message: String,
    },
    /// The body does not match the request.
    #[error("the answer is wrong: {0}")]
    Answer(#[from] AnswerError),
}

/// A well-formed answer that cannot belong to the request.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The number of rows is wrong.
    #[error("{got} rows where {expected} were asked for")]
    Rows {
        /// The number of rows requested.
        expected: usize,
        /// The number of rows received.
        got: usize,
    },
    /// The index of a row is repeated or out of range.
    #[error("row index {index} is repeated or not below {rows}")]
    Index {
        /// The index.
        index: usize,
        /// The number of rows requested.
        rows: usize,
    },
    /// The number of positions is wrong.
    #[error("row {row} has {got} positions where {expected} were asked for")]
    Positions {
        /// The row.
        row: usize,
        /// The number of positions requested.
        expected: usize,
        /// The number of positions received.
        got: usize,
    },
    /// The tokens of a row are not those that were sent.
    #[error("row {row} is of other tokens: at position {position} token {expected} was sent")]
    Tokens {
        /// The row.
        row: usize,
        /// The first position that differs, in the row.
        position: usize,
        /// The token sent.
        expected: TokenId,
    },
    /// A value is not a log-probability.
    #[error("row {row} has log-probability {value} at position {position}")]
    Value {
        /// The row.
        row: usize,
        /// Position in the span.
        position: usize,
        /// The value; NaN where the server sent none.
        value: f32,
    },
    /// A token has a higher log-probability than the most probable one.
    #[error("row {row} has log-probability {got} at position {position}, and its most likely token {top}")]
    Top {
        /// The row.
        row: usize,
        /// Position in the span.
        position: usize,
        /// The log-probability of the token.
        got: f32,
        /// The log-probability of the most probable token.
        top: f32,
    },
    /// Two rows that continue the same context disagree about the first token.
    #[error(
        "rows {first} and {second} continue one context under one policy, and their most likely first tokens have log-probabilities {one} and {other}"
    )]
    Disagreement {
        /// A row.
        first: usize,
        /// Another.
        second: usize,
        /// The value in the first.
        one: f32,
        /// The value in the second.
        other: f32,
    },
    /// The control row of a policy has other log-probabilities than at the check.
    #[error(
        "the control span has {got} nats per token under {policy}, and had {expected} at the check: these are not the weights that were checked"
    )]
    Control {
        /// The policy.
        policy: String,
        /// The mean log-probability at the check.
        expected: f32,
        /// The mean log-probability now.
        got: f32,
    },
    /// A row ended for an unexpected reason.
    #[error("row {row} ended by \"{reason}\" after {tokens} tokens")]
    Finish {
        /// The row.
        row: usize,
        /// The server's reason.
        reason: String,
        /// The number of tokens of the row.
        tokens: usize,
    },
}

impl Fault {
    pub(crate) fn body(message: impl std::fmt::Display) -> Self {
        Self::Body { message: message.to_string() }
    }
}
