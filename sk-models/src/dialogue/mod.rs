//! Dialogues with a steered model: framing a dialogue as a text, and answering it.

mod conversation;
mod framing;
mod reply_text;
mod session;

pub use conversation::Conversation;
pub use framing::{Framing, instructed, is_framed, tokens, tokens_of};
pub use session::{Reply, Session, SessionError, SessionParts};
