//! Plain JSON lines, which are also the output format.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::{Prompt, frame, is_framed, naming};
use crate::Error;
use sk_report::record::{RecordError, json_lines};

#[derive(Deserialize)]
struct PromptLine {
    prompt: String,
    id: Option<Value>,
    source: Option<String>,
    row: Option<usize>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// Reads the prompts of a file. A prompt without framing becomes a dialogue of one turn. A prompt
/// without an id gets one from its file and row.
pub(super) fn read(path: &Path) -> Result<Vec<Prompt>, Error> {
    let stem = naming::stem(path);
    let (mut prompts, mut ids) = (Vec::new(), HashSet::new());
    for (index, read) in json_lines(path, "")?.enumerate() {
        let (line, PromptLine { prompt, id, source, row, labels }) = read?;
        let wrong = |reason: &str| RecordError::line(path, line, reason).into();
        if prompt.trim().is_empty() {
            return Err(wrong("field `prompt` is empty"));
        }
        let id = match id {
            Some(Value::String(id)) => id,
            Some(Value::Number(id)) => id.to_string(),
            None => format!("{stem}:{index}"),
            Some(_) => return Err(wrong("field `id` is neither a text nor a number")),
        };
        if !ids.insert(id.clone()) {
            return Err(wrong(&format!("id \"{id}\" is taken by an earlier line")));
        }
        prompts.push(Prompt {
            id,
            prompt: if is_framed(&prompt) { prompt } else { frame(&prompt) },
            source: source.unwrap_or_else(|| naming::name(path)),
            row: row.unwrap_or(index),
            labels,
        });
    }
    Ok(prompts)
}

/// Writes prompts as JSON lines, which [`read`](super::read) reads back unchanged.
///
/// # Errors
/// If `out` fails.
pub fn write(prompts: &[Prompt], mut out: impl Write) -> io::Result<()> {
    for prompt in prompts {
        serde_json::to_writer(&mut out, prompt)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}
