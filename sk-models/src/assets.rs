//! The model that ships with the crate: a backbone, a drafter and its blades, inside the binary.
//!
//! The files are those of `assets/`, a directory in Hugging Face format per part:
//!
//! ```text
//! assets/backbone/        config.json, model.safetensors, tokenizer.json, …
//! assets/drafter/         likewise
//! assets/blades/NAME/     adapter_config.json, adapter_model.safetensors
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// The embedded files in a directory of their own, which is removed when this is dropped. What is mapped or loaded by then stays.
#[derive(Debug)]
pub struct Unpacked(tempfile::TempDir);

/// Whether this build holds a model.
#[must_use]
pub fn is_embedded() -> bool {
    FILES.iter().any(|(name, _)| *name == "backbone/config.json")
}

/// The names of the embedded blades, in order.
#[must_use]
pub fn blades() -> Vec<&'static str> {
    let name = |path: &'static str| path.strip_prefix("blades/")?.strip_suffix("/adapter_config.json");
    FILES.iter().filter_map(|(path, _)| name(path)).collect()
}

/// Writes the embedded files to a temporary directory: checkpoints are read by mapping files.
///
/// # Errors
/// When the temporary directory cannot be written to.
pub fn unpack() -> io::Result<Unpacked> {
    let directory = tempfile::Builder::new().prefix("swiss-knife-").tempdir()?;
    for (name, bytes) in FILES {
        let path = directory.path().join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, bytes)?;
    }
    Ok(Unpacked(directory))
}

impl Unpacked {
    /// The directory of the backbone.
    #[must_use]
    pub fn backbone(&self) -> PathBuf {
        self.path().join("backbone")
    }

    /// The directory of the drafter.
    #[must_use]
    pub fn drafter(&self) -> PathBuf {
        self.path().join("drafter")
    }

    /// The directory of a blade, by its name.
    #[must_use]
    pub fn blade(&self, name: &str) -> PathBuf {
        self.path().join("blades").join(name)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}
