//! Dialogues with a steered model: framing a dialogue as a text, and answering it.

mod conversation;
mod framing;
mod reply_text;
mod session;

pub use conversation::Conversation;
pub use framing::{Framing, encode_dialogue, encode_messages, instructed, is_framed};
pub use session::{Reply, Session, SessionError, SessionParts};

/// The tokenizer of the model that ships with the program, which merges bytes into words.
#[cfg(test)]
const TOKENIZER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/backbone/tokenizer.json");
