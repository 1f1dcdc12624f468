//! Reading the JSON files of a directory.

use std::{io::ErrorKind, path::Path};

use serde::de::DeserializeOwned;

use super::error::{CheckpointError, io_error};
use crate::{files, json};

/// Reads an object.
///
/// # Errors
///
/// If the file cannot be read, or is not the expected JSON. The error names the field.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, CheckpointError> {
    let text = files::read_to_string(path).map_err(|source| io_error("read", path, source))?;
    json::parse(&text).map_err(|source| CheckpointError::Json { path: path.to_owned(), source })
}

/// As [`read_json`], but returns the default if there is no such file.
pub(super) fn read_json_or_default<T: DeserializeOwned + Default>(path: &Path) -> Result<T, CheckpointError> {
    match read_json(path) {
        Err(CheckpointError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(T::default()),
        outcome => outcome,
    }
}
