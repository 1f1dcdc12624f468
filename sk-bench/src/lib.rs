#![doc = include_str!("../README.md")]

pub mod args;
mod batches;
pub mod cli;
pub mod commands;
mod conversation;
mod document;
mod error;
mod explain;
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
mod reply;
pub mod ruler;
mod screen;
mod session;
pub mod sweep;
pub mod trace;
pub mod tune;

pub use conversation::{Conversation, DialogueFraming, Framing};
pub use error::Error;
pub use progress::Loading;
pub use reply::ReplyText;
pub use screen::Screen;
pub use session::{Reply, Session};
pub use sk_models::local::Models;
pub use sk_models::whole_file;
pub use sk_report::record::Ended;
pub use sk_scheme as scheme;
pub use sk_scheme::suggest;
