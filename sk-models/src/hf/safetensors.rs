//! Tensors on disk: one `safetensors` file, or the shards that an index names.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
};

use half::{bf16, f16};
use rayon::prelude::*;
use safetensors::{Dtype, SafeTensorError, tensor::Metadata};
use serde::Deserialize;

use super::error::{CheckpointError, TensorFault, io_error};
use super::read::read_json;
use crate::files::{self, Contents};

/// The weights of a model in one file.
pub(crate) const SINGLE_FILE: &str = "model.safetensors";
/// The index of a model in several files.
pub(crate) const INDEX_FILE: &str = "model.safetensors.index.json";
/// Weights that are not read.
pub(crate) const PICKLED: [&str; 2] = ["pytorch_model.bin", "pytorch_model.bin.index.json"];

/// An open file and its table of tensors.
#[derive(Debug)]
struct Shard {
    path: PathBuf,
    contents: Contents,
    metadata: Metadata,
    /// Where tensor data starts: after the length word and the header.
    data_start: usize,
}

impl Shard {
    fn open(path: PathBuf) -> Result<Self, CheckpointError> {
        let contents = files::open(&path).map_err(|source| io_error("open", &path, source))?;
        let bytes = contents.len();
        let broken = |source| CheckpointError::Safetensors { path: path.clone(), bytes: bytes as u64, source };
        let header = header(&contents).map_err(|source| io_error("read", &path, source))?.map_err(broken)?;
        let text = std::str::from_utf8(&header).map_err(SafeTensorError::InvalidHeader).map_err(broken)?;
        let metadata: Metadata =
            serde_json::from_str(text).map_err(SafeTensorError::InvalidHeaderDeserialization).map_err(broken)?;
        let data_start = size_of::<u64>() + header.len();
        match data_start.checked_add(metadata.data_len()).and_then(|end| bytes.checked_sub(end)) {
            Some(0) => Ok(Self { path, contents, metadata, data_start }),
            Some(bytes) => Err(CheckpointError::Trailing { path, bytes }),
            None => Err(broken(SafeTensorError::MetadataIncompleteBuffer)),
        }
    }
}

/// Bytes of the longest header, as in the library.
const LONGEST_HEADER: usize = 100_000_000;

/// Reads the header, whose length comes before it.
fn header(contents: &Contents) -> io::Result<Result<Vec<u8>, SafeTensorError>> {
    const WORD: usize = size_of::<u64>();
    if contents.len() < WORD {
        return Ok(Err(SafeTensorError::HeaderTooSmall));
    }
    let mut buffer = Vec::new();
    let word = contents.bytes(0..WORD, &mut buffer)?.try_into().expect("as many bytes as were asked for");
    let length = usize::try_from(u64::from_le_bytes(word)).ok().filter(|&length| length <= LONGEST_HEADER);
    let Some(length) = length else { return Ok(Err(SafeTensorError::HeaderTooLarge)) };
    if length > contents.len() - WORD {
        return Ok(Err(SafeTensorError::InvalidHeaderLength));
    }
    contents.bytes(WORD..WORD + length, &mut buffer).map(<[u8]>::to_vec).map(Ok)
}

/// The named tensors of a checkpoint, read on demand.
///
/// Opening reads only the headers. Each read converts one tensor to f32.
#[derive(Debug)]
pub struct TensorFiles {
    shards: Vec<Shard>,
    /// Tensor name to position in `shards`.
    place: BTreeMap<String, usize>,
    /// The hint for a tensor that is missing or does not fit.
    hint: &'static str,
}

/// The hint for tensors of a model that do not fit its configuration.
const MODEL_HINT: &str = "do these weights belong to this config.json?";
/// The hint for tensors of an adapter that do not fit the model.
pub(super) const ADAPTER_HINT: &str = "was the adapter made for another model?";

/// The used part of `model.safetensors.index.json`.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Returns the file of each tensor in an index.
///
/// # Errors
///
/// If the file cannot be read, is not an index, names no tensor, or names a file outside the
/// directory.
pub(super) fn shard_names(path: &Path) -> Result<BTreeMap<String, String>, CheckpointError> {
    let index: Index = read_json(path)?;
    if index.weight_map.is_empty() {
        return Err(CheckpointError::EmptyIndex { path: path.to_owned() });
    }
    match index.weight_map.values().find(|name| Path::new(name).file_name() != Some(name.as_ref())) {
        Some(name) => Err(CheckpointError::ShardName { path: path.to_owned(), name: name.clone() }),
        None => Ok(index.weight_map),
    }
}

impl TensorFiles {
    /// Opens the weights of a model directory: `model.safetensors` if there is one, else the shards
    /// of its index, as in transformers.
    ///
    /// # Errors
    ///
    /// If there are no weights, a shard is missing, or a file is truncated or malformed.
    pub fn open(directory: &Path) -> Result<Self, CheckpointError> {
        let single = directory.join(SINGLE_FILE);
        if files::is_file(&single) {
            return Self::open_file(&single, MODEL_HINT);
        }
        let index = directory.join(INDEX_FILE);
        if files::is_file(&index) {
            return Self::open_shards(directory, &shard_names(&index)?);
        }
        let mut pickled = PICKLED.into_iter().map(|name| directory.join(name));
        if let Some(path) = pickled.find(|path| files::is_file(path)) {
            return Err(CheckpointError::Pickled { path });
        }
        Err(CheckpointError::NoWeights { directory: directory.to_owned() })
    }

    /// Opens one file; `hint` is the advice in errors about tensors that are missing or do not fit.
    ///
    /// # Errors
    ///
    /// If it is missing, truncated or malformed.
    pub fn open_file(path: &Path, hint: &'static str) -> Result<Self, CheckpointError> {
        let shard = Shard::open(path.to_owned())?;
        let place = shard.metadata.offset_keys().into_iter().map(|name| (name, 0)).collect();
        Ok(Self { shards: vec![shard], place, hint })
    }

    fn open_shards(directory: &Path, weight_map: &BTreeMap<String, String>) -> Result<Self, CheckpointError> {
        let files: BTreeSet<&String> = weight_map.values().collect();
        let mut shards: Vec<Shard> = Vec::with_capacity(files.len());
        let mut place = BTreeMap::new();
        for (position, file) in files.into_iter().enumerate() {
            let shard = Shard::open(directory.join(file))?;
            for name in shard.metadata.offset_keys() {
                // The index may be right or a file may be a leftover, so neither tensor is chosen.
                let told = weight_map.get(&name).filter(|told| *told != file).map(|told| directory.join(told));
                let found = place.insert(name.clone(), position).map(|first: usize| shards[first].path.clone());
                if let Some(other) = told.or(found) {
                    return Err(CheckpointError::Tensor { path: shard.path, name, fault: TensorFault::Misplaced(other) });
                }
            }
            shards.push(shard);
        }
        // The index may name tensors that no shard holds.
        if let Some((name, file)) = weight_map.iter().find(|(name, _)| !place.contains_key(*name)) {
            let fault = TensorFault::Missing { hint: "model.safetensors.index.json says it is there" };
            return Err(CheckpointError::Tensor { path: directory.join(file), name: name.clone(), fault });
        }
        Ok(Self { shards, place, hint: MODEL_HINT })
    }

    /// Calls `see` with the bytes of the files, piece by piece.
    ///
    /// # Errors
    ///
    /// If a file cannot be read.
    pub(crate) fn visit(&self, see: &mut dyn FnMut(&[u8])) -> Result<(), CheckpointError> {
        self.shards.iter().try_for_each(|shard| shard.contents.visit(see).map_err(|source| io_error("read", &shard.path, source)))
    }

    /// Returns the names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.place.keys().map(String::as_str)
    }

    /// Returns whether there is a tensor of this name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.place.contains_key(name)
    }

    /// Returns the shape of a tensor, if there is one of this name.
    #[must_use]
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        let shard = &self.shards[*self.place.get(name)?];
        shard.metadata.info(name).map(|info| info.shape.as_slice())
    }

    /// Returns an error for the first tensor that `known` does not recognise.
    pub(super) fn refuse_unknown(&self, known: impl Fn(&str) -> bool) -> Result<(), CheckpointError> {
        match self.names().find(|name| !known(name)) {
            None => Ok(()),
            Some(name) => Err(self.fault(name, TensorFault::Unexpected { hint: self.hint })),
        }
    }

    /// Reads a tensor as f32 in the order of the file.
    ///
    /// # Errors
    ///
    /// If the tensor is missing, of another shape, not of a floating-point type, or holds NaN or
    /// infinity, or if the file cannot be read.
    pub fn read(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, CheckpointError> {
        let tensor = self.find(name, shape)?;
        let mut values = vec![0.0; shape.iter().product()];
        let finite = values.par_chunks_mut(CHUNK).enumerate().map_init(Vec::new, |buffer, (chunk, out)| {
            (tensor.decode)(tensor.values(chunk * CHUNK, out.len(), buffer)?, out);
            Ok::<_, CheckpointError>(are_finite(out))
        });
        let finite = finite.try_reduce(|| true, |a, b| Ok(a & b))?;
        if finite { Ok(values) } else { Err(self.fault(name, TensorFault::NotFinite)) }
    }

    /// Reads a matrix of shape `[rows, columns]` as f32 and transposes it to `[columns, rows]`.
    ///
    /// Files store a linear layer as `[out, in]`; the model uses `[in, out]`.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn read_transposed(&self, name: &str, [rows, columns]: [usize; 2]) -> Result<Vec<f32>, CheckpointError> {
        let tensor = self.find(name, &[rows, columns])?;
        let StoredTensor { width, decode, .. } = tensor;
        let mut values = vec![0.0; rows * columns];
        if values.is_empty() {
            // The file may claim any number of empty rows.
            return Ok(values);
        }
        let mut buffer = Vec::new();
        let mut finite = true;
        // As many rows at a time as fit into the buffer.
        let band = (BAND / (columns * width)).clamp(1, rows);
        for top in (0..rows).step_by(band) {
            let height = band.min(rows - top);
            let bytes = tensor.values(top * columns, height * columns, &mut buffer)?;
            // Each task owns `BLOCK` columns of the source, which are whole rows of the result, and
            // walks down the source: each loaded cache line gives a full block of values.
            let blocks = values.par_chunks_mut(BLOCK * rows).enumerate().map(|(block, out)| {
                let first = block * BLOCK;
                let count = BLOCK.min(columns - first);
                let mut line = [0.0; BLOCK];
                let mut finite = true;
                for row in 0..height {
                    let start = (row * columns + first) * width;
                    decode(&bytes[start..start + count * width], &mut line[..count]);
                    finite &= are_finite(&line[..count]);
                    for (column, &value) in line[..count].iter().enumerate() {
                        out[column * rows + top + row] = value;
                    }
                }
                finite
            });
            finite &= blocks.reduce(|| true, |a, b| a & b);
        }
        if finite { Ok(values) } else { Err(self.fault(name, TensorFault::NotFinite)) }
    }

    /// Checks that a tensor exists, has the given shape and is of a floating-point type, without
    /// reading it.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), except for its values.
    pub fn check(&self, name: &str, shape: &[usize]) -> Result<(), CheckpointError> {
        self.find(name, shape).map(drop)
    }

    /// Returns whether a tensor equals tensor `theirs` of `other`, which has the same shape and may
    /// have another type.
    pub(super) fn equals(&self, name: &str, shape: &[usize], other: &Self, theirs: &str) -> Result<bool, CheckpointError> {
        let (one, two) = (self.find(name, shape)?, other.find(theirs, shape)?);
        let same = || -> Result<bool, CheckpointError> {
            let (mut ours, mut others) = (Vec::new(), Vec::new());
            let all: usize = shape.iter().product();
            for start in (0..all).step_by(CHUNK) {
                let count = CHUNK.min(all - start);
                if one.values(start, count, &mut ours)? != two.values(start, count, &mut others)? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        if one.dtype == two.dtype && same()? {
            return Ok(true);
        }
        Ok(self.read(name, shape)? == other.read(theirs, shape)?)
    }

    /// Returns an error that names a tensor and its file, or the first file if none holds it.
    pub(super) fn fault(&self, name: &str, fault: TensorFault) -> CheckpointError {
        let shard = &self.shards[self.place.get(name).copied().unwrap_or(0)];
        CheckpointError::Tensor { path: shard.path.clone(), name: name.to_owned(), fault }
    }

    /// Finds a tensor and checks its shape and type.
    fn find(&self, name: &str, shape: &[usize]) -> Result<StoredTensor<'_>, CheckpointError> {
        let shard = self.place.get(name).map(|&position| &self.shards[position]);
        let Some((shard, info)) = shard.and_then(|shard| Some((shard, shard.metadata.info(name)?))) else {
            return Err(self.fault(name, TensorFault::Missing { hint: self.hint }));
        };
        if info.shape != shape {
            let (found, expected) = (info.shape.clone(), shape.to_owned());
            return Err(self.fault(name, TensorFault::Shape { found, expected, hint: self.hint }));
        }
        let unsupported = || self.fault(name, TensorFault::Dtype(format!("{:?}", info.dtype)));
        let (width, decode) = float(info.dtype).ok_or_else(unsupported)?;
        let (start, _) = info.data_offsets;
        Ok(StoredTensor { shard, dtype: info.dtype, width, decode, start: shard.data_start + start })
    }
}

/// Returns whether all values are finite. Computed without branches.
fn are_finite(values: &[f32]) -> bool {
    values.iter().fold(true, |finite, value| finite & value.is_finite())
}

/// A tensor in its file.
struct StoredTensor<'a> {
    shard: &'a Shard,
    dtype: Dtype,
    /// Bytes per value.
    width: usize,
    decode: Decode,
    /// Where its bytes begin.
    start: usize,
}

impl StoredTensor<'_> {
    /// Returns the bytes of `count` values from value `first` on.
    fn values<'b>(&'b self, first: usize, count: usize, buffer: &'b mut Vec<u8>) -> Result<&'b [u8], CheckpointError> {
        let Self { shard, width, .. } = *self;
        let start = self.start + first * width;
        shard.contents.bytes(start..start + count * width, buffer).map_err(|source| io_error("read", &shard.path, source))
    }
}

/// Values that a task converts at a time.
const CHUNK: usize = 1 << 16;
/// Bytes that are read before they are transposed.
const BAND: usize = 1 << 24;
/// Columns that a task transposes at a time: 64 bytes of a 16-bit source, a cache line.
const BLOCK: usize = 32;

/// Converts little-endian values to f32, exactly.
type Decode = fn(&[u8], &mut [f32]);

/// Returns the bytes per value of a floating-point type that weights are stored in, and its
/// conversion.
fn float(dtype: Dtype) -> Option<(usize, Decode)> {
    fn each<const WIDTH: usize>(bytes: &[u8], out: &mut [f32], convert: impl Fn([u8; WIDTH]) -> f32) {
        for (value, raw) in out.iter_mut().zip(bytes.as_chunks::<WIDTH>().0) {
            *value = convert(*raw);
        }
    }
    Some(match dtype {
        Dtype::F32 => (4, |bytes, out| each(bytes, out, f32::from_le_bytes)),
        Dtype::F16 => (2, |bytes, out| each(bytes, out, |raw| f16::from_le_bytes(raw).to_f32())),
        Dtype::BF16 => (2, |bytes, out| each(bytes, out, |raw| bf16::from_le_bytes(raw).to_f32())),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use safetensors::tensor::TensorView;

    use super::*;

    /// Writes one tensor and returns its directory.
    fn file_with(dtype: Dtype, shape: &[usize], bytes: &[u8]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let view = TensorView::new(dtype, shape.to_vec(), bytes).unwrap();
        safetensors::serialize_to_file([("t", view)], None, &directory.path().join(SINGLE_FILE)).unwrap();
        directory
    }

    fn bytes_of(values: &[f32], encode: impl Fn(f32) -> Vec<u8>) -> Vec<u8> {
        values.iter().flat_map(|&value| encode(value)).collect()
    }

    #[test]
    fn every_stored_type_reads_the_same_values() {
        // Exact in all three types.
        let values: Vec<f32> = (0..6).map(|i| i as f32 * 0.25 - 1.0).collect();
        for (dtype, bytes) in [
            (Dtype::F32, bytes_of(&values, |v| v.to_le_bytes().to_vec())),
            (Dtype::F16, bytes_of(&values, |v| f16::from_f32(v).to_le_bytes().to_vec())),
            (Dtype::BF16, bytes_of(&values, |v| bf16::from_f32(v).to_le_bytes().to_vec())),
        ] {
            let directory = file_with(dtype, &[2, 3], &bytes);
            let files = TensorFiles::open(directory.path()).unwrap();
            assert_eq!(files.read("t", &[2, 3]).unwrap(), values);
            assert_eq!(
                files.read_transposed("t", [2, 3]).unwrap(),
                [values[0], values[3], values[1], values[4], values[2], values[5]]
            );
        }
    }

    #[test]
    fn transposing_agrees_with_the_definition_across_block_edges() {
        for (rows, columns) in [(1, 1), (5, 31), (7, 32), (3, 33), (65, 70)] {
            let values: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
            let directory = file_with(Dtype::F32, &[rows, columns], &bytes_of(&values, |v| v.to_le_bytes().to_vec()));
            let files = TensorFiles::open(directory.path()).unwrap();
            let transposed = files.read_transposed("t", [rows, columns]).unwrap();
            for row in 0..rows {
                for column in 0..columns {
                    assert_eq!(transposed[column * rows + row], values[row * columns + column]);
                }
            }
        }
    }

    #[test]
    fn nan_and_infinity_are_refused_by_name_at_every_place() {
        for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for place in [0, 40, 33 * 33 - 1] {
                let mut values = vec![0.5; 33 * 33];
                values[place] = broken;
                let directory = file_with(Dtype::F32, &[33, 33], &bytes_of(&values, |v| v.to_le_bytes().to_vec()));
                let files = TensorFiles::open(directory.path()).unwrap();
                for message in [files.read("t", &[33, 33]), files.read_transposed("t", [33, 33])] {
                    let message = message.unwrap_err().to_string();
                    assert!(message.contains(SINGLE_FILE) && message.contains("`t` holds NaN or infinity"), "{message}");
                }
            }
        }
    }

    #[test]
    fn a_matrix_larger_than_the_buffer_is_transposed_whole() {
        let (rows, columns) = (BAND / 4 / 1000 + 7, 1001);
        let values: Vec<f32> = (0..rows * columns).map(|i| (i % 65_521) as f32).collect();
        let directory = file_with(Dtype::F32, &[rows, columns], &bytes_of(&values, |v| v.to_le_bytes().to_vec()));
        let files = TensorFiles::open(directory.path()).unwrap();
        let transposed = files.read_transposed("t", [rows, columns]).unwrap();
        let whole =
            (0..rows).all(|row| (0..columns).all(|column| transposed[column * rows + row] == values[row * columns + column]));
        assert!(whole);
    }

    /// If the file were mapped, the first read beyond its end would kill the program.
    #[test]
    fn a_file_that_is_shortened_in_use_is_an_error() {
        let values = vec![0.5_f32; 1 << 16];
        let directory = file_with(Dtype::F32, &[256, 256], &bytes_of(&values, |v| v.to_le_bytes().to_vec()));
        let files = TensorFiles::open(directory.path()).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(directory.path().join(SINGLE_FILE)).unwrap();
        file.set_len(5000).unwrap();
        let equal = files.equals("t", &[256, 256], &files, "t").map(|_| Vec::new());
        let visited = files.visit(&mut |_| {}).map(|()| Vec::new());
        for outcome in [files.read("t", &[256, 256]), files.read_transposed("t", [256, 256]), equal, visited] {
            let message = outcome.unwrap_err().to_string();
            assert!(message.contains(SINGLE_FILE) && message.contains("shortened while it was in use"), "{message}");
        }
    }

    #[test]
    fn integers_are_refused_by_name() {
        let directory = file_with(Dtype::I8, &[4], &[1, 2, 3, 4]);
        let files = TensorFiles::open(directory.path()).unwrap();
        let message = files.read("t", &[4]).unwrap_err().to_string();
        assert!(message.contains("`t`") && message.contains("I8"), "{message}");
    }
}
