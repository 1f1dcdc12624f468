//! What the responses of a scheme depend on: its digest in every record, and the whole of it in a
//! file beside them.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::record::{RecordError, read_lines, unpacked};

/// Everything but scheme name, weights, prompt and seed that responses depend on. Models, adapters
/// and heads count by their contents, wherever they lie; the device does not, and is part of each
/// record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Version of the program.
    pub program: String,
    /// Digests of `backbone` and `drafter`.
    pub models: BTreeMap<String, String>,
    /// Of backbone and drafter.
    pub precision: String,
    /// Digests of adapters, by blade.
    pub adapters: BTreeMap<String, String>,
    /// Digests of heads, by blade.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub heads: BTreeMap<String, String>,
    /// What fills in where the paper is silent.
    pub convention: String,
    /// How a prompt becomes a text for the model.
    pub framing: String,
    /// A system message above each prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Most tokens of a response.
    pub max_new_tokens: usize,
    /// The numbers of the scheme that have a name in plans of `tune`.
    pub numbers: BTreeMap<String, f64>,
    /// The canonical form of the scheme. Files of earlier versions have a text for each slot.
    pub slots: Value,
}

/// [`Settings`] as they are kept: a line of the file beside the records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptSettings {
    /// What records have of them: the beginning of SHA-256 over the canonical JSON of `of`.
    pub settings: String,
    /// Where models, adapters and heads were, from the plan.
    pub sources: BTreeMap<String, String>,
    /// The settings.
    pub of: Settings,
}

/// Where the settings of the records in `output` are kept.
pub fn beside(output: &Path) -> PathBuf {
    output.with_extension("settings.jsonl")
}

/// Reads the settings beside the records of a sweep, by their digests, gzipped or not; none where
/// there is no such file.
///
/// # Errors
/// When the file cannot be read or a line is not one of settings. Errors name file and line.
pub fn read_settings(records: &Path) -> Result<HashMap<String, KeptSettings>, RecordError> {
    let path = beside(&unpacked(records));
    let packed = path.with_extension("jsonl.gz");
    let Some(path) = [path, packed].into_iter().find(|path| path.exists()) else { return Ok(HashMap::new()) };
    let kept: Vec<KeptSettings> = read_lines(&path, "it is no line of settings")?;
    Ok(kept.into_iter().map(|kept| (kept.settings.clone(), kept)).collect())
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
