//! HH-RLHF: pairs of dialogues that differ in their last answer.

use std::path::Path;

use serde::Deserialize;

use super::{Prompt, PromptSetError, framing};
use sk_report::lines::{json_fault, numbered_lines};

#[derive(Deserialize)]
struct Preference {
    chosen: String,
}

/// Reads the prompts of a file: each `chosen` dialogue up to and including its last `"
///
///
/// Assistant:"`.
pub(super) fn read(path: &Path) -> Result<Vec<Prompt>, PromptSetError> {
    let lines = numbered_lines(path).map_err(|source| PromptSetError::Read { path: path.to_owned(), source })?;
    let mut prompts = Vec::new();
    for (row, (line, text)) in lines.enumerate() {
        let wrong = |reason: String| PromptSetError::Line { path: path.to_owned(), line, reason };
        let text = text.map_err(|error| wrong(error.to_string()))?;
        let Preference { chosen } = serde_json::from_str(&text).map_err(|error| wrong(json_fault(&error)))?;
        let prompt = framing::before_last_answer(&chosen)
            .ok_or_else(|| wrong("field `chosen` has no turn of the assistant (\"\\n\\nAssistant:\")".to_owned()))?;
        prompts.push(Prompt::of_row(path, row, row, prompt.to_owned(), &[]));
    }
    Ok(prompts)
}
