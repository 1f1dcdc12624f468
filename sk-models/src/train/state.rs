//! Named parameters, checkpoints, and Hugging Face weight files.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
};

use burn::{
    module::{Module, ModuleMapper, Param},
    tensor::{Device, Tensor, TensorData},
};
use half::f16;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    data::Cursor,
    error::TrainError,
    optimizer::{Optimizer, named_parameters},
    recipe::Recipe,
};
use crate::{
    files,
    hf::{SINGLE_FILE, TensorBytes, pytorch, write_json, write_tensors},
    model::Qwen2,
};

/// The type of the numbers in a weight file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightType {
    /// Half precision.
    F16,
    /// Single precision.
    F32,
}

impl WeightType {
    /// Returns its name in `config.json`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "float16",
            Self::F32 => "float32",
        }
    }

    /// Returns the first of some values that this type can only hold as an infinity.
    fn overflow(self, values: &[f32]) -> Option<f32> {
        let overflows = |value: f32| self == Self::F16 && value.is_finite() && f16::from_f32(value).is_infinite();
        values.iter().copied().find(|&value| overflows(value))
    }

    fn tensor(self, shape: Vec<usize>, values: &[f32]) -> TensorBytes {
        match self {
            Self::F16 => TensorBytes::f16(shape, values),
            Self::F32 => TensorBytes::f32(shape, values),
        }
    }
}

/// Replaces every float parameter of a module. The error names the first that is missing or of
/// another shape.
fn load_parameters<M: Module>(module: M, values: BTreeMap<String, TensorData>) -> Result<M, String> {
    struct Replace {
        path: Vec<String>,
        values: BTreeMap<String, TensorData>,
        problem: Option<String>,
    }
    impl ModuleMapper for Replace {
        fn enter_module(&mut self, name: &str, _container: &str) {
            self.path.push(name.to_owned());
        }
        fn exit_module(&mut self, _name: &str, _container: &str) {
            self.path.pop();
        }
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let name = self.path.join(".");
            let Some(data) = self.values.remove(&name) else {
                self.problem.get_or_insert_with(|| format!("`{name}` is missing"));
                return param;
            };
            let (id, old, mapper) = param.consume();
            if data.shape().as_slice() != old.dims().as_slice() {
                self.problem.get_or_insert_with(|| format!("`{name}` has shape {:?}, expected {:?}", data.shape(), old.dims()));
                return Param::from_mapped_value(id, old, mapper);
            }
            let tracked = old.is_require_grad();
            let new = Tensor::<D>::from_data(data, &old.device());
            let new = if tracked { new.require_grad() } else { new };
            Param::from_mapped_value(id, new, mapper)
        }
    }
    let mut replace = Replace { path: Vec::new(), values, problem: None };
    let module = module.map(&mut replace);
    match replace.problem {
        Some(problem) => Err(problem),
        None => Ok(module),
    }
}

/// The file in the output directory that an interrupted run resumes from.
pub(super) const CHECKPOINT: &str = "checkpoint.safetensors";

/// The key of a checkpoint's progress in the file's metadata.
const PROGRESS: &str = "progress";
/// The key of the SHA-256 over its tensors and progress.
const DIGEST: &str = "sha256";
const PARAMETER: &str = "parameter.";
const OPTIMIZER: &str = "optimizer.";

/// Writes parameters, optimizer state and progress to one file in f32, so that a run resumes
/// exactly.
pub(super) fn save_checkpoint(
    path: &Path,
    module: &impl Module,
    optimizer: &Optimizer,
    progress: &RunProgress,
) -> Result<(), TrainError> {
    let mut tensors = BTreeMap::new();
    let parameters = named_parameters(module).into_iter().map(|(name, data)| (format!("{PARAMETER}{name}"), data));
    let memory = optimizer.state().into_iter().map(|(name, data)| (format!("{OPTIMIZER}{name}"), data));
    for (name, data) in parameters.chain(memory) {
        let shape = data.shape().as_slice().to_vec();
        let values: Vec<f32> = data.iter::<f32>().collect();
        tensors.insert(name, TensorBytes::f32(shape, &values));
    }
    let progress = serde_json::to_string(progress).expect("progress is plain data");
    let digest = digest(&progress, tensors.iter().map(|(name, tensor)| (name.as_str(), &tensor.shape[..], &tensor.bytes[..])));
    let metadata = HashMap::from([(PROGRESS.to_owned(), progress), (DIGEST.to_owned(), digest)]);
    Ok(write_tensors(path, &tensors, Some(metadata))?)
}

/// Returns the SHA-256 over the progress and the tensors of a checkpoint, by name.
fn digest<'a>(progress: &str, tensors: impl Iterator<Item = (&'a str, &'a [usize], &'a [u8])>) -> String {
    let mut digest = Sha256::new_with_prefix(progress);
    for (name, shape, bytes) in tensors {
        digest.update(format!("\n{name} {shape:?} "));
        digest.update(bytes);
    }
    format!("{:x}", digest.finalize())
}

/// The folder of a run, which no other run may write to until this is dropped.
#[derive(Debug)]
pub struct OutputFolder {
    directory: PathBuf,
    /// Whether the folder was there before the run.
    existed: bool,
    /// The folder itself, locked; absent where the system does not open or lock folders.
    _lock: Option<File>,
}

impl OutputFolder {
    /// Locks the folder of a run, which is created. The run overwrites none of `results`, unless it
    /// resumes from `checkpoint`.
    ///
    /// # Errors
    ///
    /// If the folder cannot be created or written to, another run has it, or one of the results is
    /// there.
    pub fn claim(directory: &Path, checkpoint: Option<&Path>, results: &[&str]) -> Result<Self, TrainError> {
        let existed = directory.exists();
        fs::create_dir_all(directory).map_err(|source| TrainError::io(directory, source))?;
        let lock = File::open(directory).ok();
        if let Some(Err(TryLockError::WouldBlock)) = lock.as_ref().map(File::try_lock) {
            return Err(TrainError::Busy { path: directory.display().to_string() });
        }
        // A folder that cannot be written to is refused before the work, not after it.
        tempfile::tempfile_in(directory).map_err(|error| TrainError::io(directory, error))?;
        let output = Self { directory: directory.to_owned(), existed, _lock: lock };
        if checkpoint.is_some_and(Path::exists) {
            return Ok(output);
        }
        match results.iter().map(|result| directory.join(result)).find(|path| path.exists()) {
            Some(path) => Err(TrainError::Finished { path: path.display().to_string() }),
            None => Ok(output),
        }
    }
}

impl Drop for OutputFolder {
    /// Removes the folder if the run has created it and left it empty.
    fn drop(&mut self) {
        if !self.existed {
            let _ = fs::remove_dir(&self.directory);
        }
    }
}

/// The progress of a run.
#[derive(Serialize, Deserialize)]
pub(super) struct RunProgress {
    /// Steps done.
    pub(super) step: u64,
    /// The place of a language-model run in its text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cursor: Option<Cursor>,
    pub(super) recipe: Recipe,
}

/// Continues the run of a checkpoint if the file exists: returns the module with its parameters,
/// and the progress of the run. The checkpoint must have been made by this recipe, within `steps`.
pub(super) fn resume<M: Module>(
    path: &Path,
    recipe: &Recipe,
    steps: u64,
    module: M,
    optimizer: &mut Optimizer,
    device: &Device,
) -> Result<(M, Option<RunProgress>), TrainError> {
    let bytes = match files::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((module, None)),
        Err(source) => return Err(TrainError::io(path, source)),
    };
    let refuse = |reason: String| TrainError::Checkpoint { path: path.display().to_string(), reason };
    let damaged = |reason: String| refuse(format!("{reason}; delete it, or give another --output"));
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|error| damaged(error.to_string()))?;
    let record = |key: &str| header.metadata().as_ref().and_then(|metadata| metadata.get(key));
    let progress = record(PROGRESS).ok_or_else(|| damaged("has no progress record".into()))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|error| damaged(error.to_string()))?;
    let mut tensors = file.tensors();
    tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
    let found = digest(progress, tensors.iter().map(|(name, view)| (name.as_str(), view.shape(), view.data())));
    if record(DIGEST) != Some(&found) {
        return Err(damaged("is damaged, or was written by another version: its checksum does not match".into()));
    }
    let progress: RunProgress = serde_json::from_str(progress).map_err(|error| damaged(error.to_string()))?;
    let (mut parameters, mut memory) = (BTreeMap::new(), BTreeMap::new());
    for (name, view) in tensors {
        if view.dtype() != Dtype::F32 {
            return Err(damaged(format!("`{name}` is not in f32")));
        }
        let values: Vec<f32> = view.data().as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
        let data = TensorData::new(values, view.shape().to_vec());
        if let Some(name) = name.strip_prefix(PARAMETER) {
            parameters.insert(name.to_owned(), data);
        } else if let Some(name) = name.strip_prefix(OPTIMIZER) {
            memory.insert(name.to_owned(), data);
        }
    }
    recipe.check(&progress.recipe, path)?;
    if progress.step > steps {
        let reason = format!("is at step {}, beyond --steps {steps}; raise --steps, or give another --output", progress.step);
        return Err(refuse(reason));
    }
    let module = load_parameters(module, parameters).map_err(refuse)?;
    optimizer.restore(&module, memory, device).map_err(refuse)?;
    Ok((module, Some(progress)))
}

/// Transposes a row-major matrix.
fn transposed(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|column| (0..rows).map(move |row| values[row * columns + column])).collect()
}

/// Writes `config.json`, `generation_config.json` and `model.safetensors`, as `transformers` reads
/// them. Writes nothing if a value does not fit into the type.
pub(super) fn save_pretrained(model: &Qwen2, directory: &Path, precision: WeightType) -> Result<(), TrainError> {
    fs::create_dir_all(directory).map_err(|source| TrainError::io(directory, source))?;
    let config = &model.config;
    let mut tensors = BTreeMap::new();
    for (name, data) in named_parameters(model) {
        let shape = data.shape().as_slice().to_vec();
        let values: Vec<f32> = data.iter::<f32>().collect();
        // Files store a linear layer as `[out, in]`; the model uses `[in, out]`.
        let (name, turned) = match name.as_str() {
            "lm_head" if config.tie_word_embeddings => continue,
            "lm_head" => ("lm_head.weight".to_owned(), true),
            "embed_tokens" => ("model.embed_tokens.weight".to_owned(), false),
            _ => (format!("model.{name}"), shape.len() == 2),
        };
        if let Some(value) = precision.overflow(&values) {
            let reason =
                format!("`{name}` has the value {value}, which f16 cannot hold; repeat the command with --precision f32");
            return Err(TrainError::Weights { path: directory.join(SINGLE_FILE).display().to_string(), reason });
        }
        let tensor = if turned {
            precision.tensor(vec![shape[1], shape[0]], &transposed(&values, shape[0], shape[1]))
        } else {
            precision.tensor(shape, &values)
        };
        tensors.insert(name, tensor);
    }
    let path = directory.join("config.json");
    files::write_atomically(&path, config.to_json(precision.name()).as_bytes())
        .map_err(|source| TrainError::io(&path, source))?;
    let generation = serde_json::json!({
        "bos_token_id": config.bos_token_id,
        "eos_token_id": config.eos_token_ids,
        "pad_token_id": config.pad_token_id,
        "do_sample": true,
    });
    write_json(&directory.join("generation_config.json"), &generation)?;
    Ok(write_tensors(&directory.join(SINGLE_FILE), &tensors, pytorch())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Qwen2Config;

    #[test]
    fn weights_beyond_f16_are_refused_before_anything_is_written() {
        let device = Device::flex();
        let mut model = Qwen2::init(&Qwen2Config::small([8, 4, 8, 1, 1, 1]), &device);
        let [rows, columns] = model.embed_tokens.val().dims();
        model.embed_tokens = Param::from_tensor(Tensor::full([rows, columns], 70_000.0, &device));
        let folder = tempfile::tempdir().unwrap();
        let message = save_pretrained(&model, folder.path(), WeightType::F16).unwrap_err().to_string();
        assert!(message.contains("`model.embed_tokens.weight` has the value 70000"), "{message}");
        assert!(message.contains("--precision f32"), "{message}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        save_pretrained(&model, folder.path(), WeightType::F32).unwrap();
    }
}
