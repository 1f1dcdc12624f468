use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::Error;
use crate::scheme::text;

/// What is asked of the model.
#[derive(Debug, Clone, Default, Args)]
pub struct PromptArgs {
    /// The prompt. `-`, or nothing when standard input is not a terminal, reads it from standard
    /// input, without the line breaks at its end.
    pub prompt: Option<String>,
    /// Read the prompt from a file, without the line breaks at its end.
    #[arg(long, value_name = "FILE", conflicts_with = "prompt", help_heading = "Prompt")]
    pub file: Option<PathBuf>,
}

impl PromptArgs {
    /// Reads the prompt from the argument, the file, or standard input. The line breaks at the end
    /// of a file or of standard input are dropped.
    ///
    /// # Errors
    /// If there is no prompt, it is blank, or it cannot be read as UTF-8.
    pub fn read(&self) -> Result<String, Error> {
        let unbroken = |text: String| text.trim_end_matches(['\n', '\r']).to_owned();
        let text = match (&self.prompt, &self.file) {
            (_, Some(path)) => unbroken(text::read(path).map_err(Error::reading(path))?),
            (Some(prompt), None) if prompt != "-" => prompt.replace("\r\n", "\n"),
            (None, None) if std::io::stdin().is_terminal() => return Err(Error::EmptyPrompt),
            _ => unbroken(text::read_from(std::io::stdin()).map_err(Error::reading(Path::new("standard input")))?),
        };
        if text.trim().is_empty() { Err(Error::EmptyPrompt) } else { Ok(text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_keeps_its_line_breaks() {
        let args = PromptArgs { prompt: Some("List:\n\n".to_owned()), ..PromptArgs::default() };
        assert_eq!(args.read().unwrap(), "List:\n\n");
        let args = PromptArgs { prompt: Some("Human: Hi\r\n\r\nAssistant:".to_owned()), ..PromptArgs::default() };
        assert_eq!(args.read().unwrap(), "Human: Hi\n\nAssistant:");
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_prompt() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let args = PromptArgs { file: Some(file.path().to_owned()), ..PromptArgs::default() };
        std::fs::write(file.path(), "\u{feff}How are you?\r\n").unwrap();
        assert_eq!(args.read().unwrap(), "How are you?");
        std::fs::write(file.path(), "\u{feff}\n").unwrap();
        assert!(matches!(args.read(), Err(Error::EmptyPrompt)));
    }
}
