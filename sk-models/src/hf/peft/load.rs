//! Reading adapters from PEFT's files.

use std::{collections::BTreeSet, path::Path};

use burn::tensor::Device;

use super::{CONFIG_FILE, PREFIX, WEIGHTS_FILE, config::AdapterConfig, module::Module};
use crate::{
    config::Qwen2Config,
    decoder::low_rank_bytes,
    device::persistent,
    files,
    hf::{
        error::{CheckpointError, TensorFault},
        layout::{EMBEDDING, HEAD},
        safetensors::{ADAPTER_HINT, TensorFiles},
        text_files::CONFIG_FILE as MODEL_CONFIG,
        weights::transposed,
    },
    lora::{LoraAdapter, LowRank},
};

/// Checks the settings of an adapter. Does not read its weights.
///
/// # Errors
///
/// If the directory is not that of an adapter, or the adapter uses an unsupported feature.
pub fn check_adapter(directory: &Path) -> Result<(), CheckpointError> {
    settings(directory).map(drop)
}

fn settings(directory: &Path) -> Result<AdapterConfig, CheckpointError> {
    let config = directory.join(CONFIG_FILE);
    if !files::is_file(&config) && files::is_file(&directory.join(MODEL_CONFIG)) {
        return Err(CheckpointError::NotAnAdapter { directory: directory.to_owned() });
    }
    AdapterConfig::from_file(&config)
}

/// Returns the most bytes that the adapter in a directory takes, by its settings.
///
/// # Errors
///
/// As [`check_adapter`].
pub(crate) fn adapter_bytes(directory: &Path, config: &Qwen2Config) -> Result<u64, CheckpointError> {
    let settings = settings(directory)?;
    let bytes = |module: Module| {
        let ((rank, _), (input, output)) = (settings.rank_and_scale(module), module.dims(config));
        low_rank_bytes([input, rank, output])
    };
    Ok(Module::all(config).filter(|&module| settings.targets(module)).map(bytes).sum())
}

/// Reads the adapter in a directory for the given backbone.
///
/// `backbone` are the backbone's own tensors. PEFT stores a copy of an embedding or head that is
/// targeted; it is accepted only if it equals the backbone's.
///
/// # Errors
///
/// If the adapter uses an unsupported feature, lacks a matrix that its configuration announces, has
/// one that belongs to no module, or was made for another model.
pub fn load_adapter(
    directory: &Path,
    config: &Qwen2Config,
    backbone: &TensorFiles,
    device: &Device,
) -> Result<LoraAdapter, CheckpointError> {
    let config_path = directory.join(CONFIG_FILE);
    let settings = settings(directory)?;
    let weights = directory.join(WEIGHTS_FILE);
    let pickled = weights.with_extension("bin");
    if !files::is_file(&weights) && files::is_file(&pickled) {
        return Err(CheckpointError::Pickled { path: pickled });
    }
    let files = TensorFiles::open_file(&weights, ADAPTER_HINT)?;
    let targets: Vec<Module> = Module::all(config).filter(|&module| settings.targets(module)).collect();
    if targets.is_empty() {
        return Err(CheckpointError::Adapter {
            path: config_path,
            field: "target_modules".to_owned(),
            value: "set".to_owned(),
            reason: "it matches no module of the backbone".to_owned(),
        });
    }

    let mut adapter = LoraAdapter::empty(config);
    let mut taken = BTreeSet::new();
    for module in targets {
        let path = module.path();
        let (rank, scale) = settings.rank_and_scale(module);
        let (input, output) = module.dims(config);
        let [a, b] = module.suffixes().map(|suffix| format!("{PREFIX}{path}.{suffix}"));
        let change = LowRank {
            a: persistent(transposed(&files, &a, [rank, input], device)?),
            b: persistent(transposed(&files, &b, [output, rank], device)?),
            scale,
        };
        taken.extend([a, b]);
        match module {
            Module::Linear { layer, target } => adapter.layers[layer].set(target, change),
            Module::Embedding => adapter.embed_tokens = Some(change),
            Module::Head => adapter.lm_head = Some(change),
        }
    }
    for name in files.names().filter(|name| !taken.contains(*name)) {
        let Some(own) = copied(name, config) else { continue };
        check_equal(&files, name, backbone, own)?;
    }
    files.refuse_unknown(|name| taken.contains(name) || copied(name, config).is_some())?;
    Ok(adapter)
}

/// Returns the name of the backbone's tensor that an adapter's tensor copies, if any.
fn copied(name: &str, config: &Qwen2Config) -> Option<&'static str> {
    let path = name.strip_prefix(PREFIX)?;
    let path = path.strip_suffix(".base_layer.weight").or_else(|| path.strip_suffix(".weight"))?;
    match path {
        "model.embed_tokens" => Some(EMBEDDING),
        "lm_head" if config.tie_word_embeddings => Some(EMBEDDING),
        "lm_head" => Some(HEAD),
        _ => None,
    }
}

/// Checks that a tensor of an adapter equals the backbone's.
fn check_equal(files: &TensorFiles, name: &str, backbone: &TensorFiles, own: &str) -> Result<(), CheckpointError> {
    let replaces = || files.fault(name, TensorFault::Replaces);
    let shape = backbone.shape(own).ok_or_else(replaces)?;
    if files.shape(name) != Some(shape) || !files.equals(name, shape, backbone, own)? {
        return Err(replaces());
    }
    Ok(())
}
