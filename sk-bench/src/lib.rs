#![doc = include_str!("../README.md")]

pub mod args;
mod batches;
pub mod cli;
pub mod commands;
mod document;
mod error;
mod explain;
mod framing;
pub mod interrupt;
pub mod judge;
pub mod memory;
pub mod models;
mod plural;
pub mod pool;
mod progress;
pub mod promise;
pub mod prompt_sets;
mod record_file;
pub mod ruler;
mod screen;
pub mod session;
mod shell;
pub mod sweep;
pub mod trace;
pub mod tune;

pub use error::Error;
pub use framing::DialogueFraming;
pub use progress::Loading;
pub use screen::Screen;
pub use sk_core::Ended;
pub use sk_models::dialogue::{Conversation, Framing, Reply, ReplyText, Session};
pub use sk_models::local::Models;
pub use sk_models::whole_file;
pub use sk_scheme as scheme;
pub use sk_scheme::suggest;
