//! Texts as token ids to train on.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokenizers::Tokenizer;

use super::error::TrainError;
use crate::{
    files,
    hf::CheckpointError,
    text::{self, ASSISTANT, ChatTemplate, END_OF_TEXT, END_OF_TURN, HUMAN, Message, Role, encode_turns, turns},
};

/// A tokenizer, and the two tokens that the framing needs.
#[derive(Debug, Clone)]
pub struct Encoder {
    tokenizer: Tokenizer,
    /// Frames prompts instead of the labels of HH-RLHF.
    chat: Option<Arc<Chat>>,
    /// One more than its largest id.
    vocab_size: usize,
    /// Its file.
    pub(super) path: PathBuf,
    /// Ends an assistant turn.
    pub end_of_turn: u32,
    /// Ends a document.
    pub end_of_text: u32,
}

/// A chat template, and the tokenizer that reads its special tokens.
#[derive(Debug)]
struct Chat {
    template: ChatTemplate,
    tokenizer: text::Tokenizer,
}

impl Encoder {
    /// Reads the `tokenizer.json` in a directory, on disk or inside the program, without
    /// truncation, padding and special tokens in text.
    ///
    /// # Errors
    ///
    /// If it cannot be read, is of an unsupported kind, or lacks one of the two tokens.
    pub fn load(directory: &Path) -> Result<Self, TrainError> {
        let path = directory.join("tokenizer.json");
        let refuse = |reason: String| TrainError::Tokenizer { path: path.display().to_string(), reason };
        let bytes = files::read(&path).map_err(|error| refuse(error.to_string()))?;
        let checked = text::Tokenizer::from_json(&path.display().to_string(), &bytes).map_err(CheckpointError::from)?;
        let vocab_size = checked.vocab_size();
        let mut tokenizer = checked.into_inner();
        tokenizer.set_encode_special_tokens(true);
        let find = |token: &str| {
            let id = tokenizer.token_to_id(token);
            id.ok_or_else(|| refuse(format!("has no token {token}, which marks the end of a turn or text")))
        };
        let (end_of_turn, end_of_text) = (find(END_OF_TURN)?, find(END_OF_TEXT)?);
        Ok(Self { tokenizer, chat: None, vocab_size, path, end_of_turn, end_of_text })
    }

    /// As [`load`](Self::load), but prompts are framed with the chat template in the directory.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load), and if the directory has no usable template.
    pub fn load_chat(directory: &Path) -> Result<Self, TrainError> {
        let encoder = Self::load(directory)?;
        let template = ChatTemplate::from_directory(directory).map_err(CheckpointError::from)?;
        let tokenizer = text::Tokenizer::from_file(&encoder.path).map_err(CheckpointError::from)?;
        Ok(Self { chat: Some(Arc::new(Chat { template, tokenizer })), ..encoder })
    }

    /// Returns one more than the largest id: the rows that an embedding needs.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// Returns the tokenizer.
    #[must_use]
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Encodes ordinary text, never as special tokens.
    ///
    /// # Errors
    ///
    /// If the tokenizer refuses the text.
    pub fn text(&self, text: &str) -> Result<Vec<u32>, TrainError> {
        let encoding = self
            .tokenizer
            .encode_fast(text, false)
            .map_err(|error| TrainError::Tokenizer { path: self.path.display().to_string(), reason: error.to_string() })?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Encodes a document with its end-of-turn and end-of-text tokens.
    ///
    /// # Errors
    ///
    /// If the tokenizer refuses the text.
    pub fn document(&self, text: &str) -> Result<Vec<u32>, TrainError> {
        let text = text.trim_end();
        let mut ids = encode_turns(text, self.end_of_turn, |text| self.text(text))?;
        if text.rfind(ASSISTANT) > text.rfind(HUMAN) {
            ids.push(self.end_of_turn);
        }
        ids.push(self.end_of_text);
        Ok(ids)
    }

    /// Encodes a framed prompt, which ends with `Assistant:`. Earlier assistant turns get their
    /// end-of-turn token. With a chat template, the turns are framed anew, and text before the
    /// first of them is the system message.
    ///
    /// # Errors
    ///
    /// If the tokenizer or the template refuses the text.
    pub fn prompt(&self, prompt: &str) -> Result<Vec<u32>, TrainError> {
        let Some(Chat { template, tokenizer }) = self.chat.as_deref() else {
            return encode_turns(prompt, self.end_of_turn, |text| self.text(text));
        };
        let first = prompt.find(HUMAN).map(|human| prompt[..human].find(ASSISTANT).unwrap_or(human));
        let (system, dialogue) = prompt.split_at(first.unwrap_or(0));
        let system = Some(system.trim()).filter(|text| !text.is_empty()).map(|text| Message::new(Role::System, text));
        let messages: Vec<Message> = system.into_iter().chain(turns(dialogue)).collect();
        let ids = template.prompt(&messages).and_then(|text| tokenizer.encode(&text)).map_err(CheckpointError::from)?;
        Ok(ids)
    }

    /// Encodes an answer after a prompt, with its end-of-turn token.
    ///
    /// # Errors
    ///
    /// If the tokenizer refuses the text.
    pub fn answer(&self, answer: &str) -> Result<Vec<u32>, TrainError> {
        // A template ends with white space of its own, where the label `Assistant:` has none.
        let mut ids = self.text(if self.chat.is_some() { answer.trim_start() } else { answer })?;
        ids.push(self.end_of_turn);
        Ok(ids)
    }
}
