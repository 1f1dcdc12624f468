//! Errors of tokenizers and chat templates.

use std::path::PathBuf;

use thiserror::Error;

/// A tokenizer or chat template that cannot be used, or an input that it cannot convert.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TextError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The text is not a tokenizer in the `tokenizer.json` format.
    #[error("{name}: not a tokenizer: {reason}")]
    Tokenizer {
        /// The file, or a name for the text.
        name: String,
        /// The parser's error.
        reason: String,
    },
    /// A tokenizer that does not work on bytes.
    #[error("{name}: its decoder is not ByteLevel; only byte-level BPE tokenizers are supported")]
    NotByteLevel {
        /// The file, or a name for the text.
        name: String,
    },
    /// A text that the tokenizer refuses.
    #[error("cannot tokenize the text: {0}")]
    Encode(String),
    /// A text that is longer than any model reads.
    #[error("a text of {bytes} bytes is longer than any model reads; {most} bytes are the most")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The largest number of bytes.
        most: usize,
    },
    /// A token id outside the vocabulary.
    #[error("token id {id} is outside the vocabulary of {size}")]
    UnknownId {
        /// The id.
        id: u32,
        /// Number of ids.
        size: usize,
    },
    /// `tokenizer_config.json` is malformed.
    #[error("{name}: {source}")]
    Config {
        /// The file.
        name: String,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// A checkpoint without a chat template.
    #[error("{name}: there is no chat template; use --framing hh or none")]
    NoTemplate {
        /// The file that should hold it.
        name: String,
    },
    /// A template with a syntax error, or one that fails on this conversation.
    #[error("chat template of {name}: {reason}")]
    Template {
        /// The file, or a name for the text.
        name: String,
        /// The error of the template engine.
        reason: String,
    },
}

/// Returns the innermost cause of an error in one line, where template and parser errors name the
/// fault.
pub(super) fn one_line(error: &dyn std::error::Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
