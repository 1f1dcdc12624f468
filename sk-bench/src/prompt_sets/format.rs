//! The formats of prompt files, and their detection.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use sk_models::text::ASSISTANT;

use super::table::rows;
use super::{Prompt, frame, json_lines};
use crate::Error;
use crate::named::named;
use sk_report::lines;
use sk_report::record::{self, RecordError};

named! {
    /// A format of prompts.
    pub PromptFormat {
        /// HH-RLHF: `{"chosen": …, "rejected": …}` in lines.
        Hh = "hh",
        /// TruthfulQA: CSV with the columns Type, Category and Question.
        TruthfulQa = "truthful-qa",
        /// XSTest: CSV with the columns id, prompt, type, label and focus.
        XsTest = "xstest",
        /// `{"prompt": …}` in lines, with `id` and `labels` if there are any.
        JsonLines = "jsonl",
    }
}

/// The columns of TruthfulQA that are read. A file with all of them is recognised as TruthfulQA.
const TRUTHFUL_QA: [&str; 3] = ["Type", "Category", "Question"];
/// The columns of XSTest that are read. A file with all of them is recognised as XSTest.
const XSTEST: [&str; 5] = ["id", "prompt", "type", "label", "focus"];

/// Reads the prompts of a file, in the order of the file.
///
/// If no format is given, it is detected from the first line: a JSON object with `chosen` means
/// HH-RLHF, one with `prompt` means JSON lines, and a table is recognised by its columns. Gzip is
/// detected from the contents.
///
/// # Errors
/// If the file cannot be read, its format cannot be detected, a line does not match the format, or
/// there is no prompt. Errors name file and line.
pub fn read(path: &Path, format: Option<PromptFormat>) -> Result<Vec<Prompt>, Error> {
    let format = match format {
        Some(format) => format,
        None => detect(path)?.ok_or_else(|| {
            let path = path.display();
            Error::Input(format!(
                "{path}: cannot tell its format; JSON lines need a field \"prompt\" or \"chosen\". Otherwise give --format, or \
                 format in [prompts] of a plan (hh, truthful-qa, xstest or jsonl)"
            ))
        })?,
    };
    let prompts = match format {
        PromptFormat::Hh => hh(path),
        PromptFormat::TruthfulQa => truthful_qa(path),
        PromptFormat::XsTest => xstest(path),
        PromptFormat::JsonLines => json_lines::read(path),
    }?;
    if prompts.is_empty() { Err(empty(path)) } else { Ok(prompts) }
}

/// Returns the error of a file without a prompt.
fn empty(path: &Path) -> Error {
    Error::Input(format!("{}: it holds no prompt", path.display()))
}

fn detect(path: &Path) -> Result<Option<PromptFormat>, Error> {
    let failed = RecordError::reading(path);
    let first = lines::numbered_lines(path).map_err(&failed)?.next();
    let (_, first) = first.ok_or_else(|| empty(path))?;
    let first = first.map_err(&failed)?;
    if let Ok(Value::Object(row)) = serde_json::from_str(&first) {
        let has = |field| row.contains_key(field);
        return Ok(if has("prompt") { Some(PromptFormat::JsonLines) } else { has("chosen").then_some(PromptFormat::Hh) });
    }
    let columns: Vec<&str> = first.trim().split(',').collect();
    let has = |wanted: &[&str]| wanted.iter().all(|column| columns.contains(column));
    Ok(match () {
        () if has(&TRUTHFUL_QA) => Some(PromptFormat::TruthfulQa),
        () if has(&XSTEST) => Some(PromptFormat::XsTest),
        () => None,
    })
}

#[derive(Deserialize)]
struct Preference {
    chosen: String,
}

/// Reads HH-RLHF, pairs of dialogues that differ in their last answer: each `chosen` dialogue up to
/// and including its last `"\n\nAssistant:"`.
fn hh(path: &Path) -> Result<Vec<Prompt>, Error> {
    let mut prompts = Vec::new();
    for (row, read) in record::json_lines(path, "")?.enumerate() {
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

/// Reads TruthfulQA, questions that invite a common misconception: each question as a dialogue of
/// one turn.
fn truthful_qa(path: &Path) -> Result<Vec<Prompt>, Error> {
    rows(path, TRUTHFUL_QA, |row, [kind, category, question]| {
        if question.trim().is_empty() {
            return Err("its Question is empty".to_owned());
        }
        Ok(Prompt::of_row(path, row, row, frame(question), &[("type", kind), ("category", category)]))
    })
}

/// Reads XSTest, safe prompts that look unsafe and unsafe ones that look alike: each as a dialogue
/// of one turn. `label` is `safe` or `unsafe`.
fn xstest(path: &Path) -> Result<Vec<Prompt>, Error> {
    let mut rows_of = HashMap::new();
    rows(path, XSTEST, |row, [id, prompt, kind, label, focus]| {
        if prompt.trim().is_empty() {
            return Err("its prompt is empty".to_owned());
        }
        if !matches!(label, "safe" | "unsafe") {
            return Err(format!("its label is \"{label}\", not safe or unsafe"));
        }
        if let Some(earlier) = rows_of.insert(id.to_owned(), row) {
            return Err(format!("its id {id} is also that of row {}, counted without the header", earlier + 1));
        }
        Ok(Prompt::of_row(path, row, id, frame(prompt), &[("type", kind), ("label", label), ("focus", focus)]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt_sets::is_framed;

    #[test]
    fn the_last_answer_is_cut_and_earlier_ones_stay() {
        let dialogue = "\n\nHuman: Hi\n\nAssistant: Hello.\n\nHuman: Bye\n\nAssistant: Farewell.";
        let prompt = before_last_answer(dialogue).unwrap();
        assert_eq!(prompt, "\n\nHuman: Hi\n\nAssistant: Hello.\n\nHuman: Bye\n\nAssistant:");
        assert!(is_framed(prompt) && !is_framed(dialogue) && is_framed(&frame("Why?")));
        assert_eq!(before_last_answer("Human: Hi"), None);
    }
}
