#![doc = include_str!("../README.md")]
pub mod assets;
pub mod config;
pub mod decoder;
pub mod device;
pub mod dialogue;
pub mod engine;
mod files;
pub mod head;
pub mod hf;
mod json;
pub mod judge;
mod kernels;
pub mod local;
pub mod lora;
mod memory;
pub mod model;
mod precision;
pub mod roofline;
mod team;
pub mod text;
pub mod train;
pub mod whole_file;

pub use config::{ConfigError, Qwen2Config};
