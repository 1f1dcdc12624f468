//! Evaluation prompts: reading public data sets, rebuilding the paper's sets, and stratified
//! sampling.
//!
//! | format | reads | labels of a prompt |
//! |---|---|---|
//! | [`PromptFormat::Hh`] | HH-RLHF, `.jsonl` or `.jsonl.gz` | |
//! | [`PromptFormat::TruthfulQa`] | TruthfulQA, CSV | `type`, `category` |
//! | [`PromptFormat::XsTest`] | XSTest, CSV | `type`, `label`, `focus` |
//! | [`PromptFormat::JsonLines`] | `{"prompt": …}` in lines, and what [`write`](fn@write) writes | whatever `labels` holds |
//!
//! Every prompt becomes a dialogue in the framing of HH-RLHF that ends with `"\n\nAssistant:"`,
//! ready for a model to continue.

mod format;
mod json_lines;
mod naming;
mod paper;
mod sample;
mod source;
mod table;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

use serde::Serialize;
use sk_models::text::{ASSISTANT, HUMAN};

pub use format::{PromptFormat, read};
pub use json_lines::write;
pub use paper::{AXES, PaperSet};
pub use sample::{Allocation, sample};
pub use sk_models::dialogue::is_framed;
pub(crate) use source::files;
pub use source::{load, load_all};

/// A prompt and its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Prompt {
    /// The id of the prompt in its set, such as `helpful-base/test:456`.
    pub id: String,
    /// The dialogue so far, framed; it ends with `"\n\nAssistant:"`.
    pub prompt: String,
    /// Name of its file, without machine-specific folders.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// Its row in the file, from 0, without the header.
    pub row: usize,
    /// Labels for stratification, such as `axis` or `category`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl Prompt {
    /// Returns the prompt of a row of a file. Its id is the name of the file, followed by `id`.
    fn of_row(path: &Path, row: usize, id: impl Display, prompt: String, labels: &[(&str, &str)]) -> Self {
        Self {
            id: format!("{}:{id}", naming::stem(path)),
            prompt,
            source: naming::name(path),
            row,
            labels: labels.iter().map(|&(label, value)| (label.to_owned(), value.to_owned())).collect(),
        }
    }
}

/// Returns a question as a dialogue of one turn.
fn frame(question: &str) -> String {
    format!("{HUMAN} {question}{ASSISTANT}")
}
