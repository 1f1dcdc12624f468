//! Errors of checkpoints.

use std::path::{Path, PathBuf};

use thiserror::Error;

use super::hub::error::HubError;
use crate::{config::ConfigError, decoder::PrecisionError, device::Shortage, text::TextError};

/// A checkpoint that cannot be loaded. Each message is one line that names the file and the fault.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// A file cannot be opened, mapped or read.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A file that is not the expected JSON.
    #[error("{}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// A directory without weights in safetensors format.
    #[error("{}: neither model.safetensors nor model.safetensors.index.json is there", directory.display())]
    NoWeights {
        /// The directory.
        directory: PathBuf,
    },
    /// An index that names a file outside its directory.
    #[error("{}: shard `{name}` is not a plain file name", path.display())]
    ShardName {
        /// The index.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// An index without tensors.
    #[error("{}: `weight_map` names no tensor; fetch it again, or remove it where model.safetensors has the weights", path.display())]
    EmptyIndex {
        /// The index.
        path: PathBuf,
    },
    /// A file that is truncated or not in safetensors format.
    #[error("{}: not a complete safetensors file ({bytes} bytes): {source}", path.display())]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// The parser's error.
        source: safetensors::SafeTensorError,
    },
    /// A tensor that the model cannot use.
    #[error("{}: tensor `{name}` {fault}", path.display())]
    Tensor {
        /// The file that holds it or should hold it.
        path: PathBuf,
        /// Its name.
        name: String,
        /// What is wrong with it.
        fault: TensorFault,
    },
    /// A file that is longer than its header says.
    #[error("{}: the file has {bytes} bytes more than its header says; fetch it again", path.display())]
    Trailing {
        /// The file.
        path: PathBuf,
        /// The number of extra bytes.
        bytes: usize,
    },
    /// Weights that are not in safetensors format.
    #[error("{}: only safetensors are read; save with `safe_serialization=True`", path.display())]
    Pickled {
        /// The file that is there.
        path: PathBuf,
    },
    /// An adapter setting that is not supported.
    #[error("{}: `{field}` is {value}: {reason}", path.display())]
    Adapter {
        /// The `adapter_config.json`.
        path: PathBuf,
        /// The setting.
        field: String,
        /// Its value.
        value: String,
        /// Why it is refused.
        reason: String,
    },
    /// A tokenizer with ids that the model has no embedding for.
    #[error("{}: the tokenizer has {tokens} ids and the model embeds {vocab_size}; they do not belong together", directory.display())]
    Vocabulary {
        /// The directory.
        directory: PathBuf,
        /// Ids of the tokenizer.
        tokens: usize,
        /// Rows of the embedding.
        vocab_size: usize,
    },
    /// Weights that do not fit into memory.
    #[error("{}: the weights take {shortage}; use a smaller model or another --device", directory.display())]
    Memory {
        /// The directory.
        directory: PathBuf,
        /// The bytes of the weights, and the free bytes.
        shortage: Shortage,
    },
    /// The device fails to take the weights.
    #[error("{}: the device cannot take the weights: {message}; if it ran out of memory, use a smaller model or another --device", directory.display())]
    Device {
        /// The directory.
        directory: PathBuf,
        /// The device's message.
        message: String,
    },
    /// A precision that the device does not support.
    #[error(transparent)]
    Precision(#[from] PrecisionError),
    /// A model configuration that is not supported.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A tokenizer or chat template that is not supported.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A name that is neither a directory nor found on the hub.
    #[error("there is no directory `{name}` here, and looking it up on the hub failed: {source}")]
    Nowhere {
        /// The given name.
        name: String,
        /// The hub's error.
        source: HubError,
    },
    /// A file in place of its directory.
    #[error("{} is a file; name its directory, {}", path.display(), directory.display())]
    NotADirectory {
        /// The file.
        path: PathBuf,
        /// The directory it is in.
        directory: PathBuf,
    },
    /// A hub id that cannot be resolved.
    #[error(transparent)]
    Hub(#[from] HubError),
}

/// Why a model cannot use a tensor.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TensorFault {
    /// It is in the wrong shard, or in two shards. The path is that of the shard that the index
    /// names, or that also holds the tensor.
    #[error("should be in {}, or is in both; download the index and the shards again", .0.display())]
    Misplaced(PathBuf),
    /// No file holds it.
    #[error("is missing; {hint}")]
    Missing {
        /// What to check.
        hint: &'static str,
    },
    /// It has no place in the model.
    #[error("belongs to no part of the model; {hint}")]
    Unexpected {
        /// What to check.
        hint: &'static str,
    },
    /// Its shape does not fit the configuration.
    #[error("has shape {found:?} where {expected:?} was expected; {hint}")]
    Shape {
        /// Its shape.
        found: Vec<usize>,
        /// The expected shape.
        expected: Vec<usize>,
        /// What to check.
        hint: &'static str,
    },
    /// It holds NaN or infinity.
    #[error("holds NaN or infinity; it is damaged, or overflowed where it was made")]
    NotFinite,
    /// It is a head that is tied to the embedding and differs from it.
    #[error("differs from the embedding that config.json ties it to; set `tie_word_embeddings` to false or remove the tensor")]
    Untied,
    /// Its type is not supported.
    #[error("is of type {0}; F32, F16 and BF16 are supported")]
    Dtype(String),
    /// It is a tensor of an adapter that differs from the backbone's own.
    #[error("would replace the backbone's own and differs from it; only low-rank changes are supported")]
    Replaces,
}

/// An I/O error with the file it happened on.
pub(crate) fn io_error(action: &'static str, path: &Path, source: std::io::Error) -> CheckpointError {
    CheckpointError::Io { action, path: path.to_owned(), source }
}
