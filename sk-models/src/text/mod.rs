//! Text: token ids, streaming detokenisation, and the framings of a dialogue as a prompt.
//!
//! Token ids are the reference. Text is derived from them, never the reverse.

mod chat;
mod detokenizer;
mod error;
mod framing;
pub(crate) mod tokenizer;

pub use chat::{ChatOptions, ChatTemplate};
pub use detokenizer::Detokenizer;
pub use error::TextError;
pub(crate) use error::one_line;
pub use framing::{ASSISTANT, END_OF_TEXT, END_OF_TURN, HUMAN, Message, Role, plain_prompt};
pub(crate) use framing::{encode_turns, plain_dialogue, turns};
pub use tokenizer::Tokenizer;
