//! Heads on disk: `head_config.json` and `head.safetensors`.

use std::{collections::BTreeMap, fs, path::Path};

use serde::{Deserialize, Serialize};

use super::{
    error::{CheckpointError, io_error},
    read::read_json,
    safetensors::TensorFiles,
    write::{TensorBytes, write_json, write_tensors},
};
use crate::{
    config::Qwen2Config,
    head::{Head, HeadKind},
};

/// The description of a head.
pub(super) const CONFIG_FILE: &str = "head_config.json";
/// The weights of a head.
pub(crate) const WEIGHTS_FILE: &str = "head.safetensors";
/// The tensor of shape `[H]`.
const WEIGHT: &str = "weight";
/// The tensor of shape `[1]`.
const BIAS: &str = "bias";
/// The hint for a head that does not fit the model.
const HINT: &str = "was the head trained for another model?";

/// The text of `head_config.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeadConfig {
    kind: HeadKind,
    attribute: String,
}

/// Returns the kind of the head in a directory without reading its weights.
///
/// # Errors
///
/// If `head_config.json` is missing or malformed, or the kind is unknown.
pub fn head_kind(directory: &Path) -> Result<HeadKind, CheckpointError> {
    read_json::<HeadConfig>(&directory.join(CONFIG_FILE)).map(|config| config.kind)
}

/// Reads the head in a directory for the given backbone.
pub(super) fn load_head(directory: &Path, config: &Qwen2Config) -> Result<Head, CheckpointError> {
    let HeadConfig { kind, attribute } = read_json(&directory.join(CONFIG_FILE))?;
    let files = TensorFiles::open_file(&directory.join(WEIGHTS_FILE), HINT)?;
    files.refuse_unknown(|name| name == WEIGHT || name == BIAS)?;
    let weight = files.read(WEIGHT, &[config.hidden_size])?;
    let bias = files.read(BIAS, &[1])?[0];
    Ok(Head { kind, attribute, weight, bias })
}

/// Writes a head in f32.
///
/// # Errors
///
/// If the directory or a file cannot be written. Each file is complete or unchanged.
pub fn save_head(head: &Head, directory: &Path) -> Result<(), CheckpointError> {
    fs::create_dir_all(directory).map_err(|source| io_error("create", directory, source))?;
    let tensors = BTreeMap::from([
        (WEIGHT.to_owned(), TensorBytes::f32(vec![head.width()], &head.weight)),
        (BIAS.to_owned(), TensorBytes::f32(vec![1], &[head.bias])),
    ]);
    let config = HeadConfig { kind: head.kind, attribute: head.attribute.clone() };
    write_json(&directory.join(CONFIG_FILE), &config)?;
    // Last, since a folder with weights counts as finished.
    write_tensors(&directory.join(WEIGHTS_FILE), &tensors, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(hidden_size: usize) -> Qwen2Config {
        Qwen2Config::small([9, hidden_size, 4, 1, 1, 1])
    }

    fn head() -> Head {
        let weight = vec![1.0, -0.1, 1e-30, 7.25];
        Head { kind: HeadKind::Discriminator, attribute: "kind".to_owned(), weight, bias: -0.3 }
    }

    #[test]
    fn a_saved_head_is_loaded_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/head");
        for kind in [HeadKind::Discriminator, HeadKind::Reward] {
            let head = Head { kind, ..head() };
            save_head(&head, &path).unwrap();
            assert_eq!(load_head(&path, &config(4)).unwrap(), head);
        }
        let files = fs::read_dir(&path).unwrap().count();
        assert_eq!(files, 2, "no temporary file is left");
    }

    /// A folder with weights counts as finished, so a run that is interrupted must not leave
    /// weights without their description.
    #[test]
    fn the_weights_are_written_last() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join(CONFIG_FILE)).unwrap();
        assert!(save_head(&head(), directory.path()).is_err());
        assert!(!directory.path().join(WEIGHTS_FILE).exists());
    }

    #[test]
    fn errors_name_the_fault() {
        let directory = tempfile::tempdir().unwrap();
        let said = |width| load_head(directory.path(), &config(width)).unwrap_err().to_string();
        assert!(said(4).contains("head_config.json"), "{}", said(4));
        save_head(&head(), directory.path()).unwrap();
        let message = said(8);
        assert!(message.contains("[4]") && message.contains("[8]") && message.contains("another model"), "{message}");
        fs::write(directory.path().join(CONFIG_FILE), r#"{"kind": "judge", "attribute": "kind"}"#).unwrap();
        let message = said(4);
        assert!(message.contains("judge") && message.contains("discriminator") && message.contains("reward"), "{message}");
        fs::write(directory.path().join(CONFIG_FILE), r#"{"kind": "reward", "attribute": "kind"}"#).unwrap();
        let weights = directory.path().join(WEIGHTS_FILE);
        fs::write(&weights, &fs::read(&weights).unwrap()[..20]).unwrap();
        assert!(said(4).contains("head.safetensors"), "{}", said(4));
    }
}
