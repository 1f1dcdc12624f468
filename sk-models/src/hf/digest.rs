//! Digests that identify a model, an adapter or a head, wherever it is stored.

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::{
    ADAPTER_WEIGHTS,
    checkpoint::resolve,
    error::{CheckpointError, io_error},
    head,
    hub::{Progress, SMALL_FILES},
    safetensors::{INDEX_FILE, SINGLE_FILE, shard_names},
};
use crate::files;

/// The files of a head.
const HEAD_FILES: [&str; 2] = [head::CONFIG_FILE, head::WEIGHTS_FILE];

/// Returns SHA-256, in hexadecimal, over everything that loading a model, adapter or head reads:
/// the names and bytes of its settings, tokenizer and weights. The source is a directory or hub id,
/// resolved as [`Checkpoint::open`](super::Checkpoint::open) does.
///
/// Weights are read once, shards in parallel: gigabytes take seconds, and a later load finds them
/// in memory.
///
/// # Errors
///
/// If it cannot be found or downloaded, or a file cannot be read.
pub fn digest(source: &str, progress: &mut dyn Progress) -> Result<String, CheckpointError> {
    let directory = resolve(source, progress)?;
    let names = names(&directory)?;
    let digests = names.par_iter().map(|name| digest_of_file(&directory.join(name))).collect::<Result<Vec<_>, _>>()?;
    let mut all = Sha256::new();
    for (name, digest) in names.iter().zip(&digests) {
        all.update(name);
        all.update([0]);
        all.update(digest);
    }
    Ok(format!("{:x}", all.finalize()))
}

/// Returns the files that [`digest`] reads, in the order of their names.
///
/// # Errors
///
/// If the source cannot be found or downloaded, or its index cannot be read.
pub fn parts(source: &str, progress: &mut dyn Progress) -> Result<Vec<PathBuf>, CheckpointError> {
    let directory = resolve(source, progress)?;
    Ok(names(&directory)?.into_iter().map(|name| directory.join(name)).collect())
}

/// Returns the names of the files in a directory that loading reads.
fn names(directory: &Path) -> Result<Vec<String>, CheckpointError> {
    let mut names: Vec<String> = SMALL_FILES.into_iter().chain(HEAD_FILES).chain([ADAPTER_WEIGHTS]).map(str::to_owned).collect();
    let index = directory.join(INDEX_FILE);
    if files::is_file(&directory.join(SINGLE_FILE)) {
        names.push(SINGLE_FILE.to_owned());
    } else if files::is_file(&index) {
        names.extend(shard_names(&index)?.into_values());
    }
    names.retain(|name| files::is_file(&directory.join(name)));
    names.sort();
    names.dedup();
    Ok(names)
}

fn digest_of_file(path: &Path) -> Result<Vec<u8>, CheckpointError> {
    let contents = files::open(path).map_err(|source| io_error("open", path, source))?;
    let mut digest = Sha256::new();
    contents.visit(&mut |piece| digest.update(piece)).map_err(|source| io_error("read", path, source))?;
    Ok(digest.finalize().to_vec())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn of(directory: &Path) -> String {
        digest(&directory.display().to_string(), &mut ()).unwrap()
    }

    #[test]
    fn every_byte_that_is_loaded_counts_and_the_place_does_not() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let index = r#"{"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}"#;
        // Longer than a piece, so that a change in a later piece is tested.
        let long = vec![7; (1 << 24) + 3];
        for folder in [&first, &second] {
            let files: [(&str, &[u8]); 5] = [
                ("config.json", b"{}"),
                ("tokenizer.json", b"{}"),
                (INDEX_FILE, index.as_bytes()),
                ("one.safetensors", &long),
                ("two.safetensors", b"2"),
            ];
            files.into_iter().for_each(|(name, bytes)| fs::write(folder.path().join(name), bytes).unwrap());
        }
        let whole = of(first.path());
        assert_eq!(whole, of(second.path()));
        fs::write(second.path().join("README.md"), "what nobody loads").unwrap();
        assert_eq!(whole, of(second.path()));
        let mut last = long.clone();
        *last.last_mut().unwrap() = 8;
        for (name, bytes) in
            [("one.safetensors", last.as_slice()), ("two.safetensors", b"3"), ("tokenizer.json", b"{ }"), ("config.json", b"")]
        {
            let before = fs::read(second.path().join(name)).unwrap();
            fs::write(second.path().join(name), bytes).unwrap();
            assert_ne!(whole, of(second.path()), "{name}");
            fs::write(second.path().join(name), before).unwrap();
        }
        assert_eq!(whole, of(second.path()));
    }
}
