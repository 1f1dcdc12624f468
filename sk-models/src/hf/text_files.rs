//! The text files of a checkpoint, which are all that is needed for a model that runs elsewhere.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::Error;

use super::{error::CheckpointError, read::read_json_or_default};
use crate::{
    json,
    text::{ChatTemplate, END_OF_TEXT, END_OF_TURN, TextError, Tokenizer, tokenizer::MOST_TOKENS},
};

/// Tokens that end a turn or a text in every Qwen2 vocabulary. An instruct drafter ends its turns
/// with them even if its backbone was never tuned and does not list them.
const TURN_ENDS: [&str; 2] = [END_OF_TURN, END_OF_TEXT];

/// The file with the shape of a model.
pub(super) const CONFIG_FILE: &str = "config.json";

/// The tokenizer of a model directory, and the settings of its configuration that concern text. The
/// directory needs neither weights nor an architecture that runs in this process.
#[derive(Debug)]
pub struct TextFiles {
    pub(super) directory: PathBuf,
    /// The tokenizer.
    pub tokenizer: Tokenizer,
    /// Tokens that end a response.
    pub end_of_text: Vec<u32>,
    /// Rows of the embedding: at least the tokens of the tokenizer.
    pub vocab_size: usize,
    /// The largest number of tokens that the model holds, if `config.json` states it.
    pub context_limit: Option<usize>,
}

/// The fields of `config.json` that concern text, whatever the architecture. `generation_config.json`
/// may have the last.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawConfig {
    vocab_size: usize,
    max_position_embeddings: Option<usize>,
    #[serde(deserialize_with = "json::ids")]
    eos_token_id: Vec<u32>,
}

impl TextFiles {
    /// Reads `tokenizer.json`, and `config.json` and `generation_config.json` if they are there.
    ///
    /// # Errors
    /// If there is no tokenizer, or a file cannot be read or is malformed.
    pub fn from_directory(directory: &Path) -> Result<Self, CheckpointError> {
        let tokenizer = Tokenizer::from_file(&directory.join("tokenizer.json"))?;
        let path = directory.join(CONFIG_FILE);
        let config: RawConfig = read_json_or_default(&path)?;
        if config.vocab_size > MOST_TOKENS {
            let reason = format!("vocab_size is {}, more than any model has", config.vocab_size);
            return Err(CheckpointError::Json { path, source: serde_json::Error::custom(reason) });
        }
        let generation: RawConfig = read_json_or_default(&directory.join("generation_config.json"))?;
        let mut end_of_text = generation.eos_token_id;
        end_of_text.extend(config.eos_token_id);
        end_of_text.extend(TURN_ENDS.iter().filter_map(|token| tokenizer.id_of(token)));
        end_of_text.sort_unstable();
        end_of_text.dedup();
        Ok(Self {
            directory: directory.to_owned(),
            vocab_size: config.vocab_size.max(tokenizer.vocab_size()),
            context_limit: config.max_position_embeddings,
            tokenizer,
            end_of_text,
        })
    }

    /// Returns the path of the model's configuration, whether it is there or not.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.directory.join(CONFIG_FILE)
    }

    /// Returns the chat template.
    ///
    /// # Errors
    /// If there is none, or it has a syntax error.
    pub fn chat_template(&self) -> Result<ChatTemplate, TextError> {
        ChatTemplate::from_directory(&self.directory)
    }

    /// Returns the bytes of each row of the embedding, by id. Spare rows have none.
    #[must_use]
    pub fn token_bytes(&self) -> Vec<Box<[u8]>> {
        (0..self.vocab_size).map(|token| self.tokenizer.token_bytes(token as u32).unwrap_or_default().into()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: &str = r#"{"version": "1.0", "added_tokens": [{"id": 1, "content": "<|im_end|>", "single_word": false,
        "lstrip": false, "rstrip": false, "normalized": false, "special": true}], "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
        "use_regex": false}, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}"#;

    #[test]
    fn a_directory_needs_no_weights_and_no_known_architecture() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        assert!(TextFiles::from_directory(directory.path()).unwrap_err().to_string().contains("tokenizer.json"));
        write("tokenizer.json", BYTES);
        let files = TextFiles::from_directory(directory.path()).unwrap();
        assert_eq!((files.vocab_size, files.context_limit, &files.end_of_text[..]), (2, None, &[1][..]));
        write(
            "config.json",
            r#"{"model_type": "llama", "vocab_size": 4, "max_position_embeddings": 99, "eos_token_id": [3, 1]}"#,
        );
        let files = TextFiles::from_directory(directory.path()).unwrap();
        assert_eq!((files.vocab_size, files.context_limit, &files.end_of_text[..]), (4, Some(99), &[1, 3][..]));
        assert_eq!(
            files.token_bytes(),
            [Box::from(*b"a"), Box::from(*b"<|im_end|>"), Box::from([]), Box::from([])] as [Box<[u8]>; 4]
        );
        for count in ["\"many\"", "1000000000000000000"] {
            write("config.json", &format!("{{\"vocab_size\": {count}}}"));
            assert!(TextFiles::from_directory(directory.path()).unwrap_err().to_string().contains("vocab_size"), "{count}");
        }
    }
}
