#![doc = include_str!("../README.md")]

pub mod args;
mod batches;
mod certificates;
pub mod cli;
mod commands;
mod document;
mod error;
mod explain;
mod framing;
pub mod interrupt;
pub mod judge;
mod memory;
pub mod message;
pub mod models;
mod named;
mod output;
mod plural;
pub mod pool;
mod progress;
pub mod prompt_sets;
mod record_file;
mod ruler;
mod screen;
mod session;
mod shell;
pub mod sweep;
mod terminal;
mod trace;
pub mod tune;
mod wrap;

pub use error::Error;
pub(crate) use framing::DialogueFraming;
pub use progress::Loading;
pub use record_file::RecordFileError;
pub use sk_scheme as scheme;
pub(crate) use sk_scheme::suggest;
