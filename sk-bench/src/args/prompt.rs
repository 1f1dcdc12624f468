use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

/// What is asked of the model.
#[derive(Debug, Clone, Default, Args)]
pub struct PromptArgs {
    /// The prompt. `-`, or nothing when standard input is not a terminal, reads it from standard input.
    pub prompt: Option<String>,
    /// Read the prompt from a file.
    #[arg(long, value_name = "FILE", conflicts_with = "prompt", help_heading = "Prompt")]
    pub file: Option<PathBuf>,
}

impl PromptArgs {
    /// The files that are read.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.file.as_deref().into_iter()
    }
}

/// How a dialogue becomes a text for the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FramingArg {
    /// "Human: … Assistant:", as in the HH-RLHF data and the published runs.
    Hh,
    /// The chat template of the backbone's tokenizer.
    Chat,
    /// The prompt as it is; the model continues it.
    None,
}
