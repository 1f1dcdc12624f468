//! The formats of prompt files, and their detection.

use std::path::Path;

use serde_json::Value;

use super::{Prompt, PromptSetError, hh, json_lines, truthful_qa, xstest};
use crate::named::named;
use sk_report::lines;
use sk_report::record::RecordError;

named! {
    /// A format of prompts.
    PromptFormat {
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

/// Reads the prompts of a file, in the order of the file.
///
/// If no format is given, it is detected from the first line: a JSON object with `chosen` means
/// HH-RLHF, one with `prompt` means JSON lines, and a table is recognised by its columns. Gzip is
/// detected from the contents.
///
/// # Errors
/// If the file cannot be read, its format cannot be detected, a line does not match the format, or
/// there is no prompt. Errors name file and line.
pub fn read(path: &Path, format: Option<PromptFormat>) -> Result<Vec<Prompt>, PromptSetError> {
    let format = match format {
        Some(format) => format,
        None => detect(path)?.ok_or_else(|| PromptSetError::UnknownFormat { path: path.to_owned() })?,
    };
    let prompts = match format {
        PromptFormat::Hh => hh::read(path),
        PromptFormat::TruthfulQa => truthful_qa::read(path),
        PromptFormat::XsTest => xstest::read(path),
        PromptFormat::JsonLines => json_lines::read(path),
    }?;
    if prompts.is_empty() { Err(PromptSetError::Empty { path: path.to_owned() }) } else { Ok(prompts) }
}

fn detect(path: &Path) -> Result<Option<PromptFormat>, PromptSetError> {
    let failed = RecordError::reading(path);
    let mut lines = lines::lines(lines::open(path).map_err(&failed)?);
    let first = loop {
        match lines.next().transpose().map_err(&failed)? {
            Some(line) if line.trim().is_empty() => {}
            Some(line) => break line,
            None => return Err(PromptSetError::Empty { path: path.to_owned() }),
        }
    };
    if let Ok(Value::Object(row)) = serde_json::from_str(&first) {
        let has = |field| row.contains_key(field);
        return Ok(if has("prompt") { Some(PromptFormat::JsonLines) } else { has("chosen").then_some(PromptFormat::Hh) });
    }
    let columns: Vec<&str> = first.trim().split(',').collect();
    let has = |wanted: &[&str]| wanted.iter().all(|column| columns.contains(column));
    Ok(match () {
        () if has(&truthful_qa::COLUMNS) => Some(PromptFormat::TruthfulQa),
        () if has(&xstest::COLUMNS) => Some(PromptFormat::XsTest),
        () => None,
    })
}
