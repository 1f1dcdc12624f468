//! HH-RLHF: pairs of dialogues that differ in their last answer.

use std::path::Path;

use serde::Deserialize;
use sk_models::text::ASSISTANT;

use super::{Prompt, PromptSetError};
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
        let prompt = before_last_answer(&chosen)
            .ok_or_else(|| RecordError::line(path, line, "field `chosen` has no turn of the assistant (\"\\n\\nAssistant:\")"))?;
        prompts.push(Prompt::of_row(path, row, row, prompt.to_owned(), &[]));
    }
    Ok(prompts)
}

/// Returns a dialogue up to and including its last `"\n\nAssistant:"`, if it has one.
fn before_last_answer(dialogue: &str) -> Option<&str> {
    dialogue.rfind(ASSISTANT).map(|start| &dialogue[..start + ASSISTANT.len()])
}

#[cfg(test)]
mod tests {
    use super::super::{frame, is_framed};
    use super::*;

    #[test]
    fn the_last_answer_is_cut_and_earlier_ones_stay() {
        let dialogue = "\n\nHuman: Hi\n\nAssistant: Hello.\n\nHuman: Bye\n\nAssistant: Farewell.";
        let prompt = before_last_answer(dialogue).unwrap();
        assert_eq!(prompt, "\n\nHuman: Hi\n\nAssistant: Hello.\n\nHuman: Bye\n\nAssistant:");
        assert!(is_framed(prompt) && !is_framed(dialogue) && is_framed(&frame("Why?")));
        assert_eq!(before_last_answer("Human: Hi"), None);
    }
}
