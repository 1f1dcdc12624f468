//! Errors of checkpoints.

use std::path::{Path, PathBuf};

use thiserror::Error;

use super::hub::error::HubError;
use crate::{config::ConfigError, decoder::PrecisionError, memory::Shortage, text::TextError};

/// A checkpoint that cannot be loaded. Each message is one line that names the file and the fault.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum CheckpointError {
    /// A file cannot be opened or read.
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    /// A file that is not the expected JSON.
    #[error("{}: {source}", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
    /// A directory without weights in safetensors format.
    #[error("{}: neither model.safetensors nor model.safetensors.index.json is there", directory.display())]
    NoWeights { directory: PathBuf },
    /// An index that names a file outside its directory.
    #[error("{}: shard `{name}` is not a plain file name", path.display())]
    ShardName { path: PathBuf, name: String },
    /// An index without tensors.
    #[error("{}: `weight_map` names no tensor; fetch it again", path.display())]
    EmptyIndex { path: PathBuf },
    /// A file that is truncated or not in safetensors format.
    #[error("{}: not a complete safetensors file ({bytes} bytes): {source}", path.display())]
    Safetensors { path: PathBuf, bytes: u64, source: safetensors::SafeTensorError },
    /// A tensor that the model cannot use.
    #[error("{}: tensor `{name}` {fault}", path.display())]
    Tensor { path: PathBuf, name: String, fault: TensorFault },
    /// A file that is longer than its header says.
    #[error("{}: the file has {bytes} bytes more than its header says; fetch it again", path.display())]
    Trailing { path: PathBuf, bytes: usize },
    /// Weights that are not in safetensors format.
    #[error("{}: only safetensors are read; save with `safe_serialization=True`", path.display())]
    Pickled { path: PathBuf },
    /// An adapter in place of a model.
    #[error("{}: this is an adapter, not a model; give it with --blade, and its model here", directory.display())]
    NotAModel { directory: PathBuf },
    /// A model in place of an adapter.
    #[error("{}: this is a model, not an adapter; give it with --backbone, and an adapter here", directory.display())]
    NotAnAdapter { directory: PathBuf },
    /// An adapter setting that is not supported.
    #[error("{}: `{field}` is {value}: {reason}", path.display())]
    Adapter { path: PathBuf, field: String, value: String, reason: String },
    /// A tokenizer with ids that the model has no embedding for.
    #[error("{}: the tokenizer has {tokens} ids and the model embeds {vocab_size}; they do not belong together", directory.display())]
    Vocabulary { directory: PathBuf, tokens: usize, vocab_size: usize },
    /// Weights that do not fit into memory.
    #[error("{}: the weights take {shortage}; use a smaller model or another --device", directory.display())]
    Memory { directory: PathBuf, shortage: Shortage },
    /// The device fails to take the weights.
    #[error("{}: the device cannot take the weights: {message}; if it ran out of memory, use a smaller model or another --device", directory.display())]
    Device { directory: PathBuf, message: String },
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
    Nowhere { name: String, source: HubError },
    /// A file in place of its directory.
    #[error("{} is a file; name its directory, {}", path.display(), directory.display())]
    NotADirectory { path: PathBuf, directory: PathBuf },
    /// A hub id that cannot be resolved.
    #[error(transparent)]
    Hub(#[from] HubError),
}

/// Why a model cannot use a tensor.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum TensorFault {
    /// It is in the wrong shard, or in two shards. The path is that of the shard that the index
    /// names, or that also holds the tensor.
    #[error("should be in {}, or is in both; download the index and the shards again", .0.display())]
    Misplaced(PathBuf),
    /// No file holds it.
    #[error("is missing; {hint}")]
    Missing { hint: &'static str },
    /// It has no place in the model.
    #[error("belongs to no part of the model; {hint}")]
    Unexpected { hint: &'static str },
    /// Its shape does not fit the configuration.
    #[error("has shape {found:?} where {expected:?} was expected; {hint}")]
    Shape { found: Vec<usize>, expected: Vec<usize>, hint: &'static str },
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

/// Returns an I/O error with the file that it concerns.
pub(crate) fn io_error(action: &'static str, path: &Path, source: std::io::Error) -> CheckpointError {
    CheckpointError::Io { action, path: path.to_owned(), source }
}
