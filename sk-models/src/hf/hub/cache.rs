//! The hub's cache on disk.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::{
    error::{HubError, io_error},
    id::{Kind, ModelId},
};
use crate::{
    files::{self, write_atomically},
    hf::{
        ADAPTER_WEIGHTS, CheckpointError,
        safetensors::{INDEX_FILE, SINGLE_FILE, shard_names},
    },
};

/// Files other than weights that a model or an adapter may need, all at the root of its repository.
pub(in crate::hf) const SMALL_FILES: [&str; 6] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "adapter_config.json",
];

/// The directory of a model or a data set in the cache.
pub(super) struct Repository(PathBuf);

impl Repository {
    pub(super) fn new(cache: &Path, kind: Kind, id: &ModelId) -> Self {
        Self(cache.join(id.cache_name(kind)))
    }

    /// Returns the directory of contents, named by their hash.
    pub(super) fn blobs(&self) -> PathBuf {
        self.0.join("blobs")
    }

    /// Returns the directory of the files of a commit, by name.
    pub(super) fn snapshot(&self, commit: &str) -> PathBuf {
        self.0.join("snapshots").join(commit)
    }

    fn references(&self) -> PathBuf {
        self.0.join("refs")
    }

    /// Returns the snapshot of a revision if `is_complete` accepts it. A revision without an entry
    /// is read as a commit.
    pub(super) fn complete(&self, revision: &str, is_complete: impl Fn(&Path) -> bool) -> Option<PathBuf> {
        let commit = files::read_to_string(&self.references().join(revision))
            .map_or_else(|_| revision.to_owned(), |commit| commit.trim().to_owned());
        let snapshot = self.snapshot(&commit);
        is_complete(&snapshot).then_some(snapshot)
    }

    /// Creates the directories of a commit and returns its snapshot.
    pub(super) fn create(&self, commit: &str) -> Result<PathBuf, HubError> {
        let snapshot = self.snapshot(commit);
        for directory in [&snapshot, &self.blobs()] {
            fs::create_dir_all(directory).map_err(|source| io_error("create", directory, source))?;
        }
        Ok(snapshot)
    }

    /// Records the commit that a revision stands for. A revision with slashes is in a folder.
    pub(super) fn refer(&self, revision: &str, commit: &str) -> Result<(), HubError> {
        let reference = self.references().join(revision);
        let folder = reference.parent().unwrap_or(&self.0);
        fs::create_dir_all(folder).map_err(|source| io_error("create", folder, source))?;
        write_atomically(&reference, commit.as_bytes()).map_err(|source| io_error("write", &reference, source))
    }
}

/// Returns whether a snapshot holds all files of a model or an adapter.
pub(super) fn is_model(snapshot: &Path) -> bool {
    let present = |name: &str| snapshot.join(name).is_file();
    let adapter = present("adapter_config.json") && present(ADAPTER_WEIGHTS);
    let shards = || shards_of(&snapshot.join(INDEX_FILE)).is_ok_and(|shards| shards.iter().all(|name| present(name)));
    let weights = present(SINGLE_FILE) || shards();
    let model = present("config.json") && present("tokenizer.json") && weights;
    adapter || model
}

/// Returns the shard files that an index names.
pub(super) fn shards_of(index: &Path) -> Result<BTreeSet<String>, HubError> {
    match shard_names(index) {
        Ok(shards) => Ok(shards.into_values().collect()),
        Err(CheckpointError::Io { action, path, source }) => Err(HubError::Io { action, path, source }),
        Err(error) => Err(HubError::Answer { url: INDEX_FILE.to_owned(), reason: error.to_string() }),
    }
}

/// Makes the file `name` of a snapshot refer to `blob`: by a relative link if the system has links,
/// else by moving the file.
pub(super) fn link(blob: &Path, snapshot: &Path, name: &str) -> Result<(), HubError> {
    let target = snapshot.join(name);
    let failed = |source| io_error("link", &target, source);
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    #[cfg(unix)]
    {
        // One level up for each folder of the name, and two to the repository.
        let up = "../".repeat(name.matches('/').count() + 2);
        let relative = Path::new(&up).join("blobs").join(blob.file_name().unwrap_or_default());
        // A link to contents that are gone, of a cache that was moved for instance, gives way.
        if target.is_symlink() && !target.exists() {
            fs::remove_file(&target).or_else(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Ok(()),
                _ => Err(failed(error)),
            })?;
        }
        match std::os::unix::fs::symlink(relative, &target) {
            // Another program has created the link.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && target.exists() => Ok(()),
            outcome => outcome.map_err(failed),
        }
    }
    #[cfg(not(unix))]
    {
        fs::rename(blob, &target).map_err(failed)
    }
}
