//! Hugging Face directories: models, adapters, heads, and the hub they come from.

mod checkpoint;
mod digest;
mod error;
mod head;
mod hub;
mod layout;
mod peft;
mod read;
mod safetensors;
mod text_files;
mod weights;
mod write;

pub use checkpoint::{Checkpoint, check_settings, resolve};
pub use digest::{digest, parts};
pub(crate) use error::io_error;
pub use error::{CheckpointError, TensorFault};
pub(crate) use head::WEIGHTS_FILE as HEAD_WEIGHTS;
pub use head::{head_kind, save_head};
pub use hub::{Hub, HubError, ModelId, Progress};
pub use layout::tensor_shapes;
pub use peft::WEIGHTS_FILE as ADAPTER_WEIGHTS;
pub use peft::{check_adapter, load_adapter, save_adapter, target_modules};
pub(crate) use read::read_json;
pub use safetensors::TensorFiles;
pub(crate) use safetensors::{INDEX_FILE, PICKLED, SINGLE_FILE};
pub use text_files::TextFiles;
pub use weights::load_model;
pub(crate) use write::{TensorBytes, pytorch, write_json, write_tensors};
