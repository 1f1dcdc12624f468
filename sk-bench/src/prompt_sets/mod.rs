//! Evaluation prompts: read from public data sets, rebuilt as the paper drew them, sampled by
//! stratum.
//!
//! | format | reads | labels of a prompt |
//! |---|---|---|
//! | [`PromptFormat::Hh`] | HH-RLHF, `.jsonl` or `.jsonl.gz` | |
//! | [`PromptFormat::TruthfulQa`] | TruthfulQA, CSV | `type`, `category` |
//! | [`PromptFormat::XsTest`] | XSTest, CSV | `type`, `label`, `focus` |
//! | [`PromptFormat::JsonLines`] | `{"prompt": …}` in lines, and what [`write`](fn@write) writes | whatever `labels` holds |
//!
//! Every prompt becomes a dialogue in the framing of HH-RLHF that ends with `"\n\nAssistant:"`,
//! ready for a model to go on.

mod error;
mod format;
mod framing;
mod hh;
mod json_lines;
mod naming;
mod paper;
mod sample;
mod source;
mod table;
mod truthful_qa;
mod xstest;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use error::PromptSetError;
pub use format::{PromptFormat, read};
pub use json_lines::write;
pub use paper::{AXES, PaperSet};
pub use sample::{Allocation, sample};
pub use sk_models::dialogue::is_framed;
pub(crate) use source::files;
pub use source::{load, load_all};

/// A prompt, and where it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// Names the prompt within its set, such as `helpful-base/test:456`.
    pub id: String,
    /// The dialogue so far, framed; it ends with `"\n\nAssistant:"`.
    pub prompt: String,
    /// Name of the file it came from, without the folders that differ from machine to machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// Its row there, from 0, a header not counted.
    #[serde(default)]
    pub row: usize,
    /// What can be stratified by, such as `axis` or `category`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl Prompt {
    /// The prompt of a row of a file; its id there follows the name of the file.
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
