//! Text in and out: token ids, streaming detokenisation, and the framings that turn a dialogue into a prompt.
//!
//! Token ids are the truth of a generation; text is derived from them, never the other way round.

mod chat;
mod detokenizer;
mod error;
mod framing;
pub(crate) mod tokenizer;

pub use chat::{ChatOptions, ChatTemplate};
pub use detokenizer::Detokenizer;
pub use error::TextError;
pub use framing::{Message, Role, plain_prompt};
pub use tokenizer::Tokenizer;
