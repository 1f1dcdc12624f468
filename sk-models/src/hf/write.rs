//! Writing the files of a directory. Each is complete or unchanged.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;

use half::f16;
use safetensors::{Dtype, SafeTensorError, tensor::TensorView};
use serde::Serialize;

use super::error::{CheckpointError, io_error};
use crate::files;

/// The numbers of a tensor as a file holds them.
#[derive(Debug)]
pub(crate) struct TensorBytes {
    dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

impl TensorBytes {
    /// Returns the numbers in f32.
    pub(crate) fn f32(shape: Vec<usize>, values: &[f32]) -> Self {
        Self { dtype: Dtype::F32, shape, bytes: values.iter().flat_map(|value| value.to_le_bytes()).collect() }
    }

    /// Returns the numbers rounded to f16.
    pub(crate) fn f16(shape: Vec<usize>, values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect();
        Self { dtype: Dtype::F16, shape, bytes }
    }
}

/// Writes a safetensors file.
///
/// # Errors
///
/// If the file cannot be written.
pub(crate) fn write_tensors(
    path: &Path,
    tensors: &BTreeMap<String, TensorBytes>,
    metadata: Option<HashMap<String, String>>,
) -> Result<(), CheckpointError> {
    let view = |(name, tensor)| {
        let TensorBytes { dtype, shape, bytes }: &TensorBytes = tensor;
        TensorView::new(*dtype, shape.clone(), bytes).map(|view| (name, view))
    };
    let views: Result<Vec<_>, SafeTensorError> = tensors.iter().map(view).collect();
    views
        .and_then(|views| safetensors::serialize(views, metadata))
        .map_err(io::Error::other)
        .and_then(|bytes| files::write_atomically(path, &bytes))
        .map_err(|source| io_error("write", path, source))
}

/// Returns the metadata that `transformers` and PEFT expect.
pub(crate) fn pytorch() -> Option<HashMap<String, String>> {
    Some(HashMap::from([("format".to_owned(), "pt".to_owned())]))
}

/// Writes plain data as indented JSON.
///
/// # Errors
///
/// If the file cannot be written.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), CheckpointError> {
    let text = serde_json::to_string_pretty(value).expect("plain data always serialises") + "\n";
    files::write_atomically(path, text.as_bytes()).map_err(|source| io_error("write", path, source))
}
