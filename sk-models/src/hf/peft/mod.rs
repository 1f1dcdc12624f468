//! Adapters in the format of PEFT: `adapter_config.json` and `adapter_model.safetensors`.
//!
//! Features of PEFT that this crate does not support are rejected by name. An adapter that loads
//! computes what PEFT computes.

mod config;
mod load;
mod module;
mod save;

pub(super) use config::AdapterConfig;
pub use config::target_modules;
pub(super) use load::adapter_bytes;
pub use load::{check_adapter, load_adapter};
pub use save::save_adapter;

/// The settings of an adapter.
pub(super) const CONFIG_FILE: &str = "adapter_config.json";
/// The matrices of an adapter.
pub const WEIGHTS_FILE: &str = "adapter_model.safetensors";
/// PEFT's prefix of module paths.
const PREFIX: &str = "base_model.model.";
