//! Texts as token ids to train on.

use std::path::{Path, PathBuf};

use tokenizers::Tokenizer;

use super::{
    data::{END_OF_TEXT, END_OF_TURN},
    error::TrainError,
};
use crate::{
    files,
    hf::CheckpointError,
    text::{ASSISTANT, HUMAN, encode_turns},
};

/// A tokenizer, and the two tokens that the framing needs.
#[derive(Debug, Clone)]
pub struct Encoder {
    tokenizer: Tokenizer,
    /// One more than its largest id.
    vocab_size: usize,
    /// Its file.
    pub(super) path: PathBuf,
    /// Ends an assistant turn.
    pub end_of_turn: u32,
    /// Ends a document.
    pub end_of_text: u32,
}

impl Encoder {
    /// Reads the `tokenizer.json` in a directory, on disk or inside the program, without
    /// truncation, padding and special tokens in text.
    ///
    /// # Errors
    ///
    /// If it cannot be read, is of a kind with which no model is read, or lacks one of the two
    /// tokens.
    pub fn load(directory: &Path) -> Result<Self, TrainError> {
        let path = directory.join("tokenizer.json");
        let refuse = |reason: String| TrainError::Tokenizer { path: path.display().to_string(), reason };
        let bytes = files::read(&path).map_err(|error| refuse(error.to_string()))?;
        let checked = crate::text::Tokenizer::from_json(&path.display().to_string(), &bytes).map_err(CheckpointError::from)?;
        let vocab_size = checked.vocab_size();
        let mut tokenizer = checked.into_inner();
        tokenizer.set_encode_special_tokens(true);
        let find = |token: &str| {
            let id = tokenizer.token_to_id(token);
            id.ok_or_else(|| refuse(format!("has no token {token}, which marks the end of a turn or text")))
        };
        let (end_of_turn, end_of_text) = (find(END_OF_TURN)?, find(END_OF_TEXT)?);
        Ok(Self { tokenizer, vocab_size, path, end_of_turn, end_of_text })
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
            .map_err(|error| TrainError::Tokenizer { path: "tokenizer.json".into(), reason: error.to_string() })?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Encodes a document with its end-of-turn and end-of-text tokens.
    ///
    /// # Errors
    ///
    /// If the tokenizer refuses the text.
    pub fn document(&self, text: &str) -> Result<Vec<u32>, TrainError> {
        let text = text.trim_end();
        let mut ids = self.prompt(text)?;
        if text.rfind(ASSISTANT) > text.rfind(HUMAN) {
            ids.push(self.end_of_turn);
        }
        ids.push(self.end_of_text);
        Ok(ids)
    }

    /// Encodes a framed prompt, which ends with `Assistant:`; earlier assistant turns get their
    /// end-of-turn token.
    ///
    /// # Errors
    ///
    /// If the tokenizer refuses the text.
    pub fn prompt(&self, prompt: &str) -> Result<Vec<u32>, TrainError> {
        encode_turns(prompt, self.end_of_turn, |text| self.text(text))
    }
}
