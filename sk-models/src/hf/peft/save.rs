//! Writing adapters to PEFT's files.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
};

use burn::tensor::Tensor;
use serde_json::{Map, Value, json};

use super::{CONFIG_FILE, PREFIX, WEIGHTS_FILE, module::Module};
use crate::{
    config::Qwen2Config,
    hf::error::{CheckpointError, io_error},
    hf::write::{TensorBytes, pytorch, write_json, write_tensors},
    lora::{LoraAdapter, LowRank},
};

/// Writes an adapter in f32, so that PEFT computes the same low-rank updates.
///
/// Ranks and scales that most modules share become `r` and `lora_alpha`, the others patterns.
/// `base` is the directory or hub id of the backbone, from which PEFT loads it; `None` for one that
/// PEFT cannot load. A hub id may end with `@` and a revision.
///
/// # Errors
///
/// If a file cannot be written, or the device fails to hand over a matrix.
pub fn save_adapter(
    adapter: &LoraAdapter,
    config: &Qwen2Config,
    base: Option<&str>,
    directory: &Path,
) -> Result<(), CheckpointError> {
    std::fs::create_dir_all(directory).map_err(|source| io_error("create", directory, source))?;
    let weights = directory.join(WEIGHTS_FILE);

    let mut tensors = BTreeMap::new();
    let mut changes = Vec::new();
    for module in Module::all(config) {
        let Some(change) = change_of(adapter, module) else { continue };
        for (suffix, matrix) in module.suffixes().into_iter().zip([&change.a, &change.b]) {
            let [rows, columns] = matrix.dims();
            let values = transposed(matrix).map_err(|source| io_error("write", &weights, source))?;
            tensors.insert(format!("{PREFIX}{}.{suffix}", module.path()), TensorBytes::f32(vec![columns, rows], &values));
        }
        changes.push((module, change));
    }
    write_tensors(&weights, &tensors, pytorch())?;
    write_json(&directory.join(CONFIG_FILE), &settings(&changes, config, base))
}

fn change_of(adapter: &LoraAdapter, module: Module) -> Option<&LowRank> {
    match module {
        Module::Linear { layer, target } => adapter.layers.get(layer)?.get(target),
        Module::Embedding => adapter.embed_tokens.as_ref(),
        Module::Head => adapter.lm_head.as_ref(),
    }
}

/// Returns the transpose of a matrix, row by row.
fn transposed(matrix: &Tensor<2>) -> io::Result<Vec<f32>> {
    let data = matrix.clone().transpose().try_into_data().map_err(io::Error::other)?;
    Ok(data.iter::<f32>().collect())
}

/// Returns the contents of `adapter_config.json`.
fn settings(changes: &[(Module, &LowRank)], config: &Qwen2Config, base: Option<&str>) -> Value {
    let rank = most_common(changes.iter().map(|(_, change)| change.rank() as f64)).unwrap_or(1.0);
    let alpha_of = |change: &LowRank| change.scale * change.rank() as f64;
    let alpha = most_common(changes.iter().map(|(_, change)| alpha_of(change))).unwrap_or(1.0);
    let exceptions = |value: &dyn Fn(&LowRank) -> f64, usual: f64| -> Map<String, Value> {
        let differs = changes.iter().filter(|(_, change)| value(change) != usual);
        // A path is also a valid pattern, since its dots match themselves.
        differs.map(|(module, change)| (format!("^{}", module.path()), number(value(change)))).collect()
    };
    let pinned = base.filter(|base| !Path::new(base).is_dir()).and_then(|base| base.split_once('@'));
    json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": pinned.map(|(id, _)| id).or(base),
        "revision": pinned.map(|(_, revision)| revision),
        "inference_mode": true,
        "r": number(rank),
        "lora_alpha": number(alpha),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": false,
        "init_lora_weights": true,
        "use_rslora": false,
        "target_modules": target_names(changes, config),
        "rank_pattern": exceptions(&|change| change.rank() as f64, rank),
        "alpha_pattern": exceptions(&alpha_of, alpha),
    })
}

/// Returns the shortest list that matches exactly the changed modules: a bare name if every layer
/// is changed, else the path.
fn target_names(changes: &[(Module, &LowRank)], config: &Qwen2Config) -> BTreeSet<String> {
    let layers_with = |wanted| {
        changes.iter().filter(|(module, _)| matches!(module, Module::Linear { target, .. } if *target == wanted)).count()
    };
    let name = |module: Module| match module {
        Module::Linear { target, .. } if layers_with(target) == config.num_hidden_layers => target.name().to_owned(),
        Module::Embedding => "embed_tokens".to_owned(),
        Module::Linear { .. } | Module::Head => module.path(),
    };
    changes.iter().map(|&(module, _)| name(module)).collect()
}

/// Returns the most frequent value, the first of equals.
fn most_common(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut counts: Vec<(f64, usize)> = Vec::new();
    for value in values {
        match counts.iter_mut().find(|(known, _)| *known == value) {
            Some((_, count)) => *count += 1,
            None => counts.push((value, 1)),
        }
    }
    counts.into_iter().reduce(|best, next| if next.1 > best.1 { next } else { best }).map(|(value, _)| value)
}

/// Returns an integral JSON number if possible, as PEFT's types expect.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < f64::from(u32::MAX) { json!(value as i64) } else { json!(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_names_the_revision_of_its_backbone() {
        let config = Qwen2Config::small([10, 8, 8, 1, 2, 1]);
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("a@b");
        std::fs::create_dir(&directory).unwrap();
        let directory = directory.to_str().unwrap();
        for (base, id, revision) in [
            (Some("me/tiny@v1"), Some("me/tiny"), Some("v1")),
            (Some("me/tiny"), Some("me/tiny"), None),
            (Some(directory), Some(directory), None),
            (None, None, None),
        ] {
            let settings = settings(&[], &config, base);
            assert_eq!((settings["base_model_name_or_path"].as_str(), settings["revision"].as_str()), (id, revision));
        }
    }
}
