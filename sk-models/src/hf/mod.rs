//! Hugging Face directories: models, adapters, and the hub they come from.

mod error;
mod hub;
mod safetensors;

pub use error::CheckpointError;
pub use hub::{Hub, HubError, ModelId, Progress};
pub use safetensors::TensorFiles;
