//! The model that ships with the crate: a backbone, a drafter, its blades and heads, inside the
//! binary.
//!
//! The files are those of `assets/`, a directory in Hugging Face format per part. They are read in
//! place from memory, under paths that begin with `embedded:`. Such a path can be given wherever a
//! model or an adapter is loaded by name:
//!
//! ```text
//! embedded:backbone        config.json, model.safetensors, tokenizer.json, …
//! embedded:drafter         likewise
//! embedded:blades/NAME     adapter_config.json, adapter_model.safetensors
//! embedded:heads/NAME      head_config.json, head.safetensors
//! embedded:judge/NAME      judge_config.json, judge.safetensors; of fluency, those of a model
//! ```

use std::io;
use std::path::{Path, PathBuf};

include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// Sixty questions of everyday life that the model was not trained on, as JSON lines of `id`,
/// `prompt` and `labels`.
pub const QUESTIONS: &str = include_str!("../assets/questions.jsonl");

/// The prefix of the path of an embedded file.
const ROOT: &str = "embedded:";

/// The model inside this build of the program.
#[derive(Debug, Clone, Copy)]
pub struct Embedded(());

/// Returns the model inside this build, if there is one.
#[must_use]
pub fn embedded() -> Option<Embedded> {
    FILES.iter().any(|(name, _)| *name == "backbone/config.json").then_some(Embedded(()))
}

impl Embedded {
    /// Returns the directory of the backbone.
    #[must_use]
    pub fn backbone(self) -> PathBuf {
        path("backbone")
    }

    /// Returns the directory of the drafter.
    #[must_use]
    pub fn drafter(self) -> PathBuf {
        path("drafter")
    }

    /// Returns the names of the blades, in order.
    #[must_use]
    pub fn blades(self) -> Vec<&'static str> {
        parts("blades/", "/adapter_config.json")
    }

    /// Returns the directory of a blade, by its name.
    #[must_use]
    pub fn blade(self, name: &str) -> PathBuf {
        path(&format!("blades/{name}"))
    }

    /// Returns the directory of the offline judge.
    #[must_use]
    pub fn judge(self) -> PathBuf {
        path("judge")
    }

    /// Returns the names of the heads, in order.
    #[must_use]
    pub fn heads(self) -> Vec<&'static str> {
        parts("heads/", "/head_config.json")
    }

    /// Returns the directory of a head, by its name.
    #[must_use]
    pub fn head(self, name: &str) -> PathBuf {
        path(&format!("heads/{name}"))
    }
}

/// Returns the files of an embedded directory: name and contents. None for a path on disk.
pub fn files(directory: &Path) -> impl Iterator<Item = (&'static str, &'static [u8])> {
    let directory = name(directory);
    let of = move |(path, bytes): &(&'static str, &'static [u8])| {
        let file = path.strip_prefix(directory.as_deref()?)?.strip_prefix('/')?;
        (!file.contains('/')).then_some((file, *bytes))
    };
    FILES.iter().filter_map(of)
}

/// Returns the names between a prefix and a suffix of the embedded paths that have both.
fn parts(prefix: &str, suffix: &str) -> Vec<&'static str> {
    FILES.iter().filter_map(|(path, _)| path.strip_prefix(prefix)?.strip_suffix(suffix)).collect()
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(format!("{ROOT}{name}"))
}

/// Returns the name under `assets/` that a path stands for; `None` for a path on disk.
fn name(path: &Path) -> Option<String> {
    Some(path.to_str()?.strip_prefix(ROOT)?.replace('\\', "/"))
}

/// Returns the contents of an embedded file, or an error if there is no such file; `None` for a
/// path on disk.
pub(crate) fn find(path: &Path) -> Option<io::Result<&'static [u8]>> {
    let name = name(path)?;
    let found = FILES.iter().find(|(file, _)| *file == name).map(|(_, bytes)| *bytes);
    Some(found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "this build of the program holds no such file")))
}

/// Returns whether a path is that of an embedded directory.
pub(crate) fn is_dir(path: &Path) -> bool {
    let below = |name: &str| FILES.iter().any(|(file, _)| file.strip_prefix(name).is_some_and(|rest| rest.starts_with('/')));
    name(path).is_some_and(|name| below(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files;

    #[test]
    fn paths_on_disk_are_left_alone() {
        for path in ["backbone/config.json", "./embedded:backbone/config.json", "/tmp", ""] {
            assert!(find(Path::new(path)).is_none() && !is_dir(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn unknown_embedded_paths_are_not_found() {
        let path = path("backbone/no.such.file");
        let error = files::open(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(!files::is_file(&path) && !files::is_dir(&path));
        assert!(!files::is_dir(Path::new("embedded:back")));
    }

    #[cfg(feature = "embedded-model")]
    #[test]
    fn embedded_files_are_those_of_the_repository() {
        let model = embedded().unwrap();
        assert_eq!(model.blades(), ["harmless", "helpful", "honest"]);
        let parts = [model.backbone(), model.drafter(), model.blade("honest")];
        for (part, directory) in parts.iter().zip(["backbone", "drafter", "blades/honest"]) {
            assert!(files::is_dir(part));
            let on_disk = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets").join(directory);
            for entry in std::fs::read_dir(on_disk).unwrap() {
                let path = entry.unwrap().path();
                let embedded = part.join(path.file_name().unwrap());
                let mut bytes = Vec::new();
                files::open(&embedded).unwrap().visit(&mut |piece| bytes.extend_from_slice(piece)).unwrap();
                assert_eq!(bytes, std::fs::read(&path).unwrap(), "{}", embedded.display());
                assert!(files::is_file(&embedded));
            }
        }
    }
}
