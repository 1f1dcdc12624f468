use sk_core::TokenId;

use crate::AddressError;

/// Why servers could not draft or read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// An address that cannot be read.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The server does not do what is asked, and will not the next time.
    #[error("{server} refuses {task} with status {status}: {message}")]
    Refused {
        /// Its address.
        server: String,
        /// What it was asked for, with the policies.
        task: String,
        /// The status of the answer.
        status: u16,
        /// What the server says.
        message: String,
    },
    /// No server gave a usable answer.
    #[error("{task} found no usable answer in {attempts} attempts and {seconds:.1} s; the last, from {server}: {last}")]
    Unanswered {
        /// The server asked last.
        server: String,
        /// What it was asked for, with the policies.
        task: String,
        /// Attempts on all servers.
        attempts: u32,
        /// The time that they took.
        seconds: f64,
        /// What went wrong last.
        #[source]
        last: Fault,
    },
    /// The context fills the model.
    #[error(
        "the context has {tokens} tokens with what continues it, and the {role} holds {limit}; shorten the prompt or the response"
    )]
    ContextFull {
        /// Which model.
        role: &'static str,
        /// Tokens of the context and of its continuation.
        tokens: usize,
        /// What the server holds.
        limit: usize,
    },
    /// A policy that has neither an adapter nor an instruction.
    #[error("no adapter or instruction is called \"{name}\"; known: {known}")]
    UnknownPolicy {
        /// The name asked for.
        name: String,
        /// The names known, comma-separated.
        known: String,
    },
    /// A context without tokens.
    #[error("the context of {policy} has no tokens; give a prompt, or an instruction, of at least one")]
    EmptyContext {
        /// The policy.
        policy: String,
    },
    /// Something that a server cannot do.
    #[error("behind a server, {what} cannot be had: {reason}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// Why not, and what can be had.
        reason: &'static str,
    },
    /// An adapter that a server would apply in part.
    #[error(
        "the adapter of blade \"{blade}\" changes {module}, which the servers leave out when they score; train it without {module}"
    )]
    AdapterModule {
        /// The blade.
        blade: String,
        /// The module.
        module: String,
    },
    /// An adapter that a server did not load.
    #[error("{server} did not load the adapter \"{adapter}\": {message}")]
    AdapterRefused {
        /// Its address.
        server: String,
        /// The name for the server.
        adapter: String,
        /// What the server says.
        message: String,
    },
    /// Too short a text to check a server with.
    #[error("the text of the check has {tokens} tokens; give at least {least}")]
    ShortProbe {
        /// Its tokens.
        tokens: usize,
        /// What is needed.
        least: usize,
    },
    /// A span that has one log-probability here and another there.
    #[error(
        "{server} {way} scores token {token} at position {position} under {policy} {got:.4}, and {reference} {expected:.4}: more than \
         {tolerance} nats apart; do not use this server until both agree"
    )]
    Mismatch {
        /// The address of the server.
        server: String,
        /// In which way it was asked, such as "in a mixed batch".
        way: &'static str,
        /// The policy.
        policy: String,
        /// Position in the span.
        position: usize,
        /// The token there.
        token: TokenId,
        /// What the number is compared with.
        reference: String,
        /// The log-probability there, in nats.
        expected: f32,
        /// The log-probability here, in nats.
        got: f32,
        /// The most that they may differ.
        tolerance: f32,
    },
    /// An adapter whose numbers are those of the base model.
    #[error(
        "{server} scores under adapter \"{adapter}\" as under the base model: {got:.6} and {base:.6} nats per token; is it loaded and does \
         it change this model?"
    )]
    SameAsBase {
        /// The address of the server.
        server: String,
        /// The adapter.
        adapter: String,
        /// Mean log-probability under the adapter.
        got: f32,
        /// Mean log-probability under the base model.
        base: f32,
    },
    /// A server whose drafted tokens, at temperature 1, have other log-probabilities than when it
    /// reads them.
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
    /// A server with another tokenizer.
    #[error(
        "{server} has another tokenizer: at position {position} of the text of the check it has {theirs}, and {ours} is expected; use \
         the tokenizer.json of the model that it serves"
    )]
    Tokenizer {
        /// Its address.
        server: String,
        /// The first position that differs.
        position: usize,
        /// The token expected, or "the end".
        ours: String,
        /// The server's token, or "the end".
        theirs: String,
    },
}

/// What went wrong in one attempt. The request is made again, on another server if there is one.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The connection failed, or the body was cut.
    #[error("the connection failed: {message}")]
    Connection {
        /// What the client says.
        message: String,
    },
    /// The server took too long.
    #[error("no answer within {seconds:.1} s")]
    TimedOut {
        /// How long was waited.
        seconds: f64,
    },
    /// The server is overloaded, or broken for now.
    #[error("status {status}: {message}")]
    Status {
        /// The status.
        status: u16,
        /// What the server says.
        message: String,
    },
    /// The body is not what the API describes.
    #[error("the answer cannot be read: {message}")]
    Body {
        /// What is wrong with it.
        message: String,
    },
    /// The body contradicts the request.
    #[error("the answer is wrong: {0}")]
    Answer(#[from] AnswerError),
}

/// An answer of the right form that cannot be one to the request.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// Another number of rows.
    #[error("{got} rows where {expected} were asked for")]
    Rows {
        /// Rows asked for.
        expected: usize,
        /// Rows that came.
        got: usize,
    },
    /// A row whose index is taken or too large.
    #[error("row index {index} is repeated or not below {rows}")]
    Index {
        /// The index.
        index: usize,
        /// Rows asked for.
        rows: usize,
    },
    /// Another number of positions.
    #[error("row {row} has {got} positions where {expected} were asked for")]
    Positions {
        /// The row.
        row: usize,
        /// Positions asked for.
        expected: usize,
        /// Positions that came.
        got: usize,
    },
    /// A row of other tokens.
    #[error("row {row} is of other tokens: at position {position} token {expected} was sent")]
    Tokens {
        /// The row.
        row: usize,
        /// The first position that differs, in the row.
        position: usize,
        /// The token sent.
        expected: TokenId,
    },
    /// A value that is no log-probability.
    #[error("row {row} has log-probability {value} at position {position}")]
    Value {
        /// The row.
        row: usize,
        /// Position in the span.
        position: usize,
        /// The value; NaN where the server sent none.
        value: f32,
    },
    /// A token likelier than the likeliest.
    #[error("row {row} has log-probability {got} at position {position}, and its likeliest token {top}")]
    Top {
        /// The row.
        row: usize,
        /// Position in the span.
        position: usize,
        /// The log-probability of the token.
        got: f32,
        /// That of the likeliest.
        top: f32,
    },
    /// Two rows that go on from one context and disagree about the first token.
    #[error(
        "rows {first} and {second} continue one context under one policy, and their likeliest first tokens have log-probabilities {one} and {other}"
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
    /// The control row of a policy has other numbers than at the check.
    #[error(
        "the control span has {got} nats per token under {policy}, and had {expected} at the check: these are not the weights that were checked"
    )]
    Control {
        /// The policy.
        policy: String,
        /// Mean log-probability at the check.
        expected: f32,
        /// Mean log-probability now.
        got: f32,
    },
    /// A row that ended for a reason that was not asked for.
    #[error("row {row} ended by \"{reason}\" after {tokens} tokens")]
    Finish {
        /// The row.
        row: usize,
        /// The server's reason.
        reason: String,
        /// Tokens of the row.
        tokens: usize,
    },
}

impl Fault {
    pub(crate) fn body(message: impl std::fmt::Display) -> Self {
        Self::Body { message: message.to_string() }
    }
}
