//! HH-RLHF: pairs of dialogues that differ in their last answer.

use std::path::Path;

use serde::Deserialize;

use super::{Prompt, PromptSetError, framing};
use sk_report::record::{RecordError, json_lines};

#[derive(Deserialize)]
struct Preference {
    chosen: String,
}

/// Reads the prompts of a file: each `chosen` dialogue up to and including its last
/// `"\n\nAssistant:"`.
pub(super) fn read(path: &Path) -> Result<Vec<Prompt>, PromptSetError> {
    let mut prompts = Vec::new();
    for (row, read) in json_lines(path, "")?.enumerate() {
        let (line, Preference { chosen }) = read?;
        let prompt = framing::before_last_answer(&chosen)
            .ok_or_else(|| RecordError::line(path, line, "field `chosen` has no turn of the assistant (\"\\n\\nAssistant:\")"))?;
        prompts.push(Prompt::of_row(path, row, row, prompt.to_owned(), &[]));
    }
    Ok(prompts)
}
