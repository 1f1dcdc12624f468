#![doc = include_str!("../README.md")]

pub mod args;
mod batches;
pub mod commands;
mod conversation;
mod error;
mod explain;
pub mod interrupt;
pub mod judge;
mod lines;
pub mod memory;
mod models;
mod progress;
pub mod promise;
mod prompt;
pub mod prompt_sets;
mod reply;
pub mod report;
pub mod scheme;
mod screen;
mod session;
pub mod stats;
pub mod suggest;
pub mod sweep;
pub mod table;
pub mod trace;
mod weights;
pub mod whole_file;

pub use conversation::{Conversation, Framing};
pub use error::Error;
pub use models::Models;
pub use progress::Loading;
pub use reply::ReplyText;
pub use screen::Screen;
pub use session::{Ended, Reply, Session};
pub use weights::NamedWeights;
