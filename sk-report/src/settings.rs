//! The settings that the responses of a scheme depend on. Every record has their digest; a file
//! beside the records has them in full.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::record::{RecordError, json_lines, plain_or_packed, unpacked};

/// Everything that responses depend on, except scheme name, weights, prompt and seed. Models,
/// adapters and heads are identified by their contents, not by their location. The device is not
/// included; it is part of each record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Version of the program.
    pub program: String,
    /// Digests of `backbone`, `drafter` and `tokenizer`, and of the model of each blade that reads
    /// another, as `blade NAME`.
    pub models: BTreeMap<String, String>,
    /// The numeric precision of backbone and drafter.
    pub precision: String,
    /// Digests of adapters, by blade.
    pub adapters: BTreeMap<String, String>,
    /// Digests of heads, by blade.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub heads: BTreeMap<String, String>,
    /// The convention for what the paper leaves open.
    pub convention: String,
    /// The template that turns a prompt into model input.
    pub framing: String,
    /// A system message above each prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The most tokens of a response.
    pub max_new_tokens: usize,
    /// The numbers of the scheme that are named parameters in plans of `tune`.
    pub numbers: BTreeMap<String, f64>,
    /// The canonical form of the scheme. Files of earlier versions have one text per slot.
    pub slots: Value,
}

/// [`Settings`] as stored: a line of the file beside the records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptSettings {
    /// The digest in the records: the beginning of the SHA-256 of the canonical JSON of `of`.
    pub settings: String,
    /// The locations of models, adapters and heads, from the plan.
    pub sources: BTreeMap<String, String>,
    /// The settings.
    pub of: Settings,
}

/// Returns the path of the settings of the records in `output`: `NAME.settings.jsonl` beside
/// `NAME.jsonl` or `NAME.jsonl.gz`.
pub fn beside(output: &Path) -> PathBuf {
    unpacked(output).with_extension("settings.jsonl")
}

/// Reads the settings beside the records of a sweep, by digest. The file may be gzipped; the result
/// is empty if it does not exist.
///
/// # Errors
/// If the file cannot be read or a line is invalid. The error names file and line.
pub fn read_settings(records: &Path) -> Result<HashMap<String, KeptSettings>, RecordError> {
    let Some(path) = plain_or_packed(&beside(records))? else { return Ok(HashMap::new()) };
    let lines = json_lines::<KeptSettings>(&path, "it is no line of settings: ")?;
    lines.map(|read| read.map(|(_, kept)| (kept.settings.clone(), kept))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_earlier_versions_are_read() {
        let line = r#"{"settings":"00112233","sources":{},"of":{"program":"0.1.0","models":{},"precision":"f32","adapters":{},
            "convention":"sound","framing":"hh","max_new_tokens":8,"numbers":{"temperature":8.0},
            "slots":{"selector":"SelectorConfig { kind: Champion, temperature: 8.0 }"}}}"#;
        let folder = tempfile::tempdir().unwrap();
        let records = folder.path().join("records.jsonl");
        std::fs::write(beside(&records), line.replace('\n', "") + "\n").unwrap();
        let kept = read_settings(&records).unwrap().remove("00112233").unwrap();
        assert_eq!((kept.of.numbers["temperature"], kept.of.slots["selector"].is_string()), (8.0, true));
    }
}
