//! Writing the files of a directory. Each is complete or unchanged.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::path::Path;

use half::f16;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::Serialize;

use super::error::{CheckpointError, io_error};
use crate::files;
use crate::whole_file::WholeFile;

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

/// The data of a safetensors file begins at a multiple of this number of bytes.
const ALIGNMENT: usize = 8;

/// Writes a safetensors file, tensor by tensor.
///
/// # Errors
///
/// If the file cannot be written.
pub(crate) fn write_tensors(
    path: &Path,
    tensors: &BTreeMap<String, TensorBytes>,
    metadata: Option<HashMap<String, String>>,
) -> Result<(), CheckpointError> {
    // Widest numbers first, so that all are aligned.
    let mut tensors: Vec<(&String, &TensorBytes)> = tensors.iter().collect();
    tensors.sort_by_key(|(_, tensor)| Reverse(tensor.dtype));
    let mut end = 0;
    let info = |&(name, tensor): &(&String, &TensorBytes)| {
        let TensorBytes { dtype, shape, bytes } = tensor;
        end += bytes.len();
        (name.clone(), TensorInfo { dtype: *dtype, shape: shape.clone(), data_offsets: (end - bytes.len(), end) })
    };
    let infos = tensors.iter().map(info).collect();
    let write = || {
        let header = Metadata::new(metadata, infos).map_err(io::Error::other)?;
        let mut header = serde_json::to_vec(&header)?;
        header.resize(header.len().next_multiple_of(ALIGNMENT), b' ');
        let mut file = WholeFile::create(path)?;
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        tensors.iter().try_for_each(|(_, tensor)| file.write_all(&tensor.bytes))?;
        file.finish()
    };
    write().map_err(|source| io_error("write", path, source))
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

#[cfg(test)]
mod tests {
    use safetensors::tensor::TensorView;

    use super::*;

    #[test]
    fn a_file_has_the_bytes_of_the_reference_writer() {
        let values: Vec<f32> = (0..6).map(|value| value as f32 / 3.0).collect();
        let tensors = BTreeMap::from([
            ("a".to_owned(), TensorBytes::f16(vec![3], &values[..3])),
            ("b".to_owned(), TensorBytes::f32(vec![2, 3], &values)),
            ("c".to_owned(), TensorBytes::f16(vec![1, 2], &values[..2])),
            ("d".to_owned(), TensorBytes::f32(vec![0], &[])),
        ]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        for metadata in [None, pytorch()] {
            write_tensors(&path, &tensors, metadata.clone()).unwrap();
            let views = tensors
                .iter()
                .map(|(name, tensor)| (name, TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes).unwrap()));
            let expected = safetensors::serialize(views, metadata).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), expected);
        }
    }
}
