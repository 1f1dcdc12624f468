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
pub(crate) use framing::encode_turns;
pub use framing::{ASSISTANT, HUMAN, Message, Role, plain_prompt};
pub use tokenizer::Tokenizer;
