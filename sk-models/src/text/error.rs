//! Errors of tokenizers and chat templates.

use std::path::PathBuf;

use thiserror::Error;

/// A tokenizer or chat template that cannot be used, or an input that it cannot convert.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum TextError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// The text is not a tokenizer in the `tokenizer.json` format.
    #[error("{name}: not a tokenizer: {reason}")]
    Tokenizer { name: String, reason: String },
    /// A tokenizer that does not work on bytes.
    #[error("{name}: its decoder is not ByteLevel; only byte-level BPE tokenizers are supported")]
    NotByteLevel { name: String },
    /// A text that the tokenizer refuses.
    #[error("cannot tokenize the text: {0}")]
    Encode(String),
    /// A text that is longer than any model reads.
    #[error("a text of {bytes} bytes is longer than any model reads; {most} bytes are the most")]
    TooLong { bytes: usize, most: usize },
    /// A token id outside the vocabulary.
    #[error("token id {id} is outside the vocabulary of {size}")]
    UnknownId { id: u32, size: usize },
    /// `tokenizer_config.json` is malformed.
    #[error("{name}: {source}")]
    Config { name: String, source: serde_json::Error },
    /// A checkpoint without a chat template.
    #[error("{name}: there is no chat template; use --framing hh or none")]
    NoTemplate { name: String },
    /// A template with a syntax error, or one that fails on this conversation.
    #[error("chat template of {name}: {reason}")]
    Template { name: String, reason: String },
}

/// Returns the message of an error in one line.
pub(crate) fn one_line(error: &dyn std::error::Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
