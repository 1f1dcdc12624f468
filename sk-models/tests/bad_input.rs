//! Faulty checkpoints and adapters: each fault gives a one-line error that names the file and the
//! faulty part.

mod common;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use common::{device, fixture, open};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::{Value, json};
use sk_models::{
    Qwen2Config,
    hf::{Checkpoint, CheckpointError, TensorFiles, load_adapter, load_model},
};
use tempfile::TempDir;

const WEIGHTS: &str = "model.safetensors";
const ADAPTER_WEIGHTS: &str = "adapter_model.safetensors";
const ADAPTER_CONFIG: &str = "adapter_config.json";

/// A copy of a fixture's directory, for a test to damage.
fn copy(directory: &Path) -> TempDir {
    let target = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), target.path().join(entry.file_name())).unwrap();
    }
    target
}

fn model() -> TempDir {
    copy(&fixture("tied/model"))
}

fn adapter() -> TempDir {
    copy(&fixture("tied/adapters/list"))
}

/// Loads the model of a directory.
fn load(directory: &Path) -> Result<(), CheckpointError> {
    let config = Qwen2Config::from_file(&directory.join("config.json"))?;
    load_model(&config, &TensorFiles::open(directory)?, &device()).map(drop)
}

/// Loads the adapter of a directory for the model of the fixture `tied`.
fn load_for_tied(directory: &Path) -> Result<(), CheckpointError> {
    let (config, files) = open("tied");
    load_adapter(directory, &config, &files, &device()).map(drop)
}

/// Edits the tensors of a file as a map from names to shapes and f32 bytes.
fn edit_tensors(path: &Path, edit: impl FnOnce(&mut BTreeMap<String, (Vec<usize>, Vec<u8>)>)) {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: BTreeMap<String, (Vec<usize>, Vec<u8>)> = file
        .iter()
        .map(|(name, view)| {
            assert_eq!(view.dtype(), Dtype::F32);
            (name.to_owned(), (view.shape().to_vec(), view.data().to_vec()))
        })
        .collect();
    edit(&mut tensors);
    let views = tensors.iter().map(|(name, (shape, data))| (name, TensorView::new(Dtype::F32, shape.clone(), data).unwrap()));
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

fn edit_json(path: &Path, edit: impl FnOnce(&mut Value)) {
    let mut value: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    edit(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

/// Fails unless the outcome is a one-line error that contains all the parts.
#[track_caller]
fn assert_refused(outcome: Result<(), CheckpointError>, parts: &[&str]) {
    let message = outcome.expect_err("must be refused").to_string();
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
    assert!(!message.contains('\n'), "more than one line: {message}");
}

fn path_text(directory: &TempDir, file: &str) -> String {
    PathBuf::from(directory.path()).join(file).display().to_string()
}

#[test]
fn the_fixtures_themselves_load() {
    load(model().path()).unwrap();
    load_for_tied(adapter().path()).unwrap();
}

#[test]
fn missing_weights() {
    let model = model();
    fs::remove_file(model.path().join(WEIGHTS)).unwrap();
    assert_refused(load(model.path()), &[&model.path().display().to_string(), "neither model.safetensors"]);

    let sharded = copy(&fixture("untied_sharded/model"));
    let shard = "model-00002-of-00003.safetensors";
    fs::remove_file(sharded.path().join(shard)).unwrap();
    assert_refused(load(sharded.path()), &["cannot open", &path_text(&sharded, shard)]);

    let adapter = adapter();
    fs::remove_file(adapter.path().join(ADAPTER_WEIGHTS)).unwrap();
    assert_refused(load_for_tied(adapter.path()), &["cannot open", &path_text(&adapter, ADAPTER_WEIGHTS)]);
}

#[test]
fn truncated_weights() {
    let whole = fs::read(fixture("tied/model").join(WEIGHTS)).unwrap();
    for length in [0, 4, 8, 100, whole.len() / 2, whole.len() - 1] {
        let model = model();
        fs::write(model.path().join(WEIGHTS), &whole[..length]).unwrap();
        let length = length.to_string();
        assert_refused(load(model.path()), &[&path_text(&model, WEIGHTS), "not a complete safetensors file", &length]);
    }
    let model = model();
    fs::write(model.path().join(WEIGHTS), b"<!DOCTYPE html><html>not weights</html>").unwrap();
    assert_refused(load(model.path()), &[&path_text(&model, WEIGHTS), "not a complete safetensors file"]);
}

#[test]
fn a_tensor_of_another_shape() {
    let model = model();
    let name = "model.layers.1.self_attn.k_proj.weight";
    edit_tensors(&model.path().join(WEIGHTS), |tensors| tensors.get_mut(name).unwrap().0.reverse());
    assert_refused(load(model.path()), &[&path_text(&model, WEIGHTS), name, "[32, 16]", "[16, 32]", "config.json"]);
}

#[test]
fn a_tensor_too_few_or_too_many() {
    let name = "model.layers.0.mlp.up_proj.weight";
    let short = model();
    edit_tensors(&short.path().join(WEIGHTS), |tensors| drop(tensors.remove(name)));
    assert_refused(load(short.path()), &[&path_text(&short, WEIGHTS), name, "missing"]);

    let extra = "model.layers.0.self_attn.q_norm.weight";
    let long = model();
    edit_tensors(&long.path().join(WEIGHTS), |tensors| {
        tensors.insert(extra.to_owned(), (vec![8], vec![0; 32]));
    });
    assert_refused(load(long.path()), &[&path_text(&long, WEIGHTS), extra, "no part of the model"]);
}

#[test]
fn an_index_that_names_missing_tensors() {
    let index = "model.safetensors.index.json";
    let model = copy(&fixture("untied_sharded/model"));
    edit_json(&model.path().join(index), |value| {
        value["weight_map"]["model.layers.9.mlp.up_proj.weight"] = json!("model-00001-of-00003.safetensors");
    });
    assert_refused(load(model.path()), &["model.layers.9.mlp.up_proj.weight", "model-00001-of-00003.safetensors"]);

    let model = copy(&fixture("untied_sharded/model"));
    edit_json(&model.path().join(index), |value| value["weight_map"]["lm_head.weight"] = json!("../elsewhere.safetensors"));
    assert_refused(load(model.path()), &[&path_text(&model, index), "`../elsewhere.safetensors`"]);

    // A tensor that is not in the shard that the index names.
    let name = "model.layers.0.mlp.up_proj.weight";
    let shards = |index: &Value| -> [String; 2] {
        let map = index["weight_map"].as_object().unwrap();
        let holds = map[name].as_str().unwrap();
        [holds.to_owned(), map.values().map(|file| file.as_str().unwrap()).find(|file| *file != holds).unwrap().to_owned()]
    };
    let model = copy(&fixture("untied_sharded/model"));
    let mut places = None;
    edit_json(&model.path().join(index), |value| {
        let [holds, other] = shards(value);
        value["weight_map"][name] = json!(other);
        places = Some([holds, other]);
    });
    let [holds, other] = places.unwrap();
    assert_refused(load(model.path()), &[&path_text(&model, &holds), name, &path_text(&model, &other)]);
    // A shard in place of another one, so its tensors are there twice.
    let model = copy(&fixture("untied_sharded/model"));
    fs::copy(model.path().join(&holds), model.path().join(&other)).unwrap();
    assert_refused(load(model.path()), &[&path_text(&model, &holds), "should be in", &path_text(&model, &other)]);

    let model = copy(&fixture("untied_sharded/model"));
    fs::write(model.path().join(index), r#"{"weight_map": {}}"#).unwrap();
    assert_refused(load(model.path()), &[&path_text(&model, index), "`weight_map`"]);

    let model = copy(&fixture("untied_sharded/model"));
    fs::write(model.path().join(index), "{").unwrap();
    assert_refused(load(model.path()), &[&path_text(&model, index)]);
}

#[test]
fn an_unsupported_architecture() {
    for (field, value) in [
        ("model_type", json!("llama")),
        ("hidden_act", json!("gelu")),
        ("use_sliding_window", json!(true)),
        ("architectures", json!(["Qwen2ForSequenceClassification"])),
        ("quantization_config", json!({"quant_method": "gptq", "bits": 4})),
        ("rope_scaling", json!({"type": "yarn", "factor": 4.0})),
        ("rope_parameters", json!({"rope_type": "yarn", "factor": 4.0})),
        ("rope_scaling", json!({"type": "yarn", "rope_type": "yarn", "factor": 4.0})),
        ("rope_scaling", json!({"type": "default", "rope_type": "linear", "factor": 4.0})),
        ("rope_scaling", json!({"factor": 4.0, "original_max_position_embeddings": 32768})),
        ("num_hidden_layers", json!(1_u64 << 60)),
        ("intermediate_size", json!(u64::MAX)),
        ("max_position_embeddings", json!(1_u64 << 40)),
        ("vocab_size", json!(1_u64 << 40)),
        ("hidden_size", json!(1_u64 << 30)),
    ] {
        let model = model();
        edit_json(&model.path().join("config.json"), |config| config[field] = value);
        assert_refused(load(model.path()), &[&path_text(&model, "config.json"), &format!("`{field}`")]);
    }
}

#[test]
fn unscaled_positions_by_either_name() {
    for rope in [json!({"type": "default", "rope_type": "default"}), json!({"rope_theta": 10000.0}), json!(null)] {
        let model = model();
        edit_json(&model.path().join("config.json"), |config| config["rope_scaling"] = rope);
        load(model.path()).unwrap();
    }
}

#[test]
fn a_tokenizer_that_asks_for_all_memory() {
    let text = r#"{"version": "1.0", "added_tokens": [], "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false}, "model": {"type": "BPE", "vocab": {"a": 4294967295}, "merges": []}}"#;
    let error = sk_models::text::Tokenizer::from_json("tokenizer.json", text.as_bytes()).map(drop).unwrap_err().to_string();
    assert!(error.contains("tokenizer.json") && error.contains("4294967295"), "{error}");
}

#[test]
fn an_adapter_for_another_model() {
    // An adapter for other widths.
    let outcome = load_for_tied(&fixture("untied_sharded/adapters/rslora"));
    assert_refused(outcome, &[ADAPTER_WEIGHTS, "q_proj.lora_A.weight", "[4, 48]", "[4, 32]", "another model"]);

    // An adapter for the same widths and more layers.
    let adapter = adapter();
    let extra = "base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight";
    edit_tensors(&adapter.path().join(ADAPTER_WEIGHTS), |tensors| {
        tensors.insert(extra.to_owned(), (vec![4, 32], vec![0; 4 * 4 * 32]));
    });
    assert_refused(load_for_tied(adapter.path()), &[&path_text(&adapter, ADAPTER_WEIGHTS), extra, "another model"]);
}

#[test]
fn an_adapter_key_that_matches_nothing() {
    let adapter = adapter();
    let stray = "base_model.model.model.layers.0.self_attn.qkv_proj.lora_A.weight";
    edit_tensors(&adapter.path().join(ADAPTER_WEIGHTS), |tensors| {
        tensors.insert(stray.to_owned(), (vec![1], vec![0; 4]));
    });
    assert_refused(load_for_tied(adapter.path()), &[&path_text(&adapter, ADAPTER_WEIGHTS), stray]);

    // Tensors of a module that is not among the targets.
    let narrowed = self::adapter();
    edit_json(&narrowed.path().join(ADAPTER_CONFIG), |config| config["target_modules"] = json!(["q_proj"]));
    assert_refused(load_for_tied(narrowed.path()), &["v_proj.lora_A.weight", "no part of the model"]);
}

#[test]
fn an_adapter_without_a_matrix_it_announces() {
    let adapter = adapter();
    edit_json(&adapter.path().join(ADAPTER_CONFIG), |config| {
        config["target_modules"] = json!(["q_proj", "v_proj", "up_proj"]);
    });
    assert_refused(load_for_tied(adapter.path()), &["up_proj.lora_A.weight", "missing"]);

    let other = self::adapter();
    edit_json(&other.path().join(ADAPTER_CONFIG), |config| config["target_modules"] = json!(["c_attn"]));
    assert_refused(load_for_tied(other.path()), &["`target_modules`", "no module"]);

    let rank = self::adapter();
    edit_json(&rank.path().join(ADAPTER_CONFIG), |config| config["r"] = json!(8));
    assert_refused(load_for_tied(rank.path()), &["q_proj.lora_A.weight", "[4, 32]", "[8, 32]"]);
}

#[test]
fn an_adapter_with_an_unsupported_feature() {
    for (field, value) in [
        ("use_dora", json!(true)),
        ("modules_to_save", json!(["embed_tokens"])),
        ("bias", json!("lora_only")),
        ("lora_bias", json!(true)),
        ("trainable_token_indices", json!({"embed_tokens": [1]})),
        ("init_lora_weights", json!("pissa")),
        ("layer_replication", json!([[0, 2], [0, 2]])),
        ("target_parameters", json!(["mlp.experts.gate_up_proj"])),
        ("alora_invocation_tokens", json!([3])),
        ("peft_type", json!("IA3")),
    ] {
        let adapter = adapter();
        edit_json(&adapter.path().join(ADAPTER_CONFIG), |config| config[field] = value);
        let parts = [path_text(&adapter, ADAPTER_CONFIG), format!("`{field}`")];
        assert_refused(load_for_tied(adapter.path()), &parts.each_ref().map(String::as_str));
    }
}

#[test]
fn an_adapter_that_brings_another_embedding() {
    let adapter = copy(&fixture("tied/adapters/embed_tokens"));
    let name = "base_model.model.model.embed_tokens.base_layer.weight";
    load_for_tied(adapter.path()).unwrap();
    edit_tensors(&adapter.path().join(ADAPTER_WEIGHTS), |tensors| tensors.get_mut(name).unwrap().1[0] ^= 1);
    assert_refused(load_for_tied(adapter.path()), &[&path_text(&adapter, ADAPTER_WEIGHTS), name, "replace"]);
}

#[test]
fn a_tokenizer_that_does_not_belong() {
    let model = model();
    assert_refused(Checkpoint::from_directory(model.path()).map(drop), &["cannot read", "tokenizer.json"]);

    let vocabulary: BTreeMap<String, u32> = (0..97).map(|id| (format!("t{id}"), id)).collect();
    let tokenizer = json!({
        "version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    });
    fs::write(model.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    assert_refused(Checkpoint::from_directory(model.path()).map(drop), &["97", "96", "do not belong together"]);
}

#[cfg(unix)]
#[test]
fn a_device_in_the_place_of_a_file() {
    let model = model();
    for (name, reason) in [(WEIGHTS, "neither model.safetensors nor"), ("config.json", "not a regular file")] {
        fs::remove_file(model.path().join(name)).unwrap();
        std::os::unix::fs::symlink("/dev/zero", model.path().join(name)).unwrap();
        assert_refused(load(model.path()), &[reason]);
    }
}

#[test]
fn a_missing_model() {
    let outcome = Checkpoint::open("./no/such/directory", &mut ()).map(drop);
    assert_refused(outcome, &["`./no/such/directory`", "neither a directory nor a hub id"]);
}

#[test]
fn a_tensor_that_is_not_finite() {
    let name = "model.layers.0.mlp.up_proj.weight";
    let spoil = |tensors: &mut BTreeMap<String, (Vec<usize>, Vec<u8>)>, name: &str| {
        tensors.get_mut(name).unwrap().1[4..8].copy_from_slice(&f32::NAN.to_le_bytes());
    };
    let model = model();
    edit_tensors(&model.path().join(WEIGHTS), |tensors| spoil(tensors, name));
    assert_refused(load(model.path()), &[&path_text(&model, WEIGHTS), name, "NaN or infinity"]);

    let adapter = adapter();
    let mut spoilt = String::new();
    edit_tensors(&adapter.path().join(ADAPTER_WEIGHTS), |tensors| {
        spoilt = tensors.keys().next_back().unwrap().clone();
        spoil(tensors, &spoilt);
    });
    assert_refused(load_for_tied(adapter.path()), &[&path_text(&adapter, ADAPTER_WEIGHTS), &spoilt, "NaN or infinity"]);
}

#[test]
fn a_tied_head_that_differs_from_the_embedding() {
    let model = model();
    let file = model.path().join(WEIGHTS);
    edit_tensors(&file, |tensors| {
        let embedding = tensors["model.embed_tokens.weight"].clone();
        tensors.insert("lm_head.weight".to_owned(), embedding);
    });
    load(model.path()).unwrap();
    edit_tensors(&file, |tensors| tensors.get_mut("lm_head.weight").unwrap().1[0] ^= 1);
    assert_refused(load(model.path()), &[&path_text(&model, WEIGHTS), "lm_head.weight", "tie_word_embeddings"]);
}

#[test]
fn bytes_after_the_last_tensor() {
    let model = model();
    let mut bytes = fs::read(model.path().join(WEIGHTS)).unwrap();
    bytes.extend([0; 4]);
    fs::write(model.path().join(WEIGHTS), bytes).unwrap();
    assert_refused(load(model.path()), &[&path_text(&model, WEIGHTS), "4 bytes more than its header says"]);
}

#[test]
fn weights_of_another_format() {
    let adapter = adapter();
    fs::rename(adapter.path().join(ADAPTER_WEIGHTS), adapter.path().join("adapter_model.bin")).unwrap();
    assert_refused(load_for_tied(adapter.path()), &[&path_text(&adapter, "adapter_model.bin"), "safe_serialization=True"]);
    for pickled in ["pytorch_model.bin", "pytorch_model.bin.index.json"] {
        let model = model();
        fs::rename(model.path().join(WEIGHTS), model.path().join(pickled)).unwrap();
        assert_refused(load(model.path()), &[&path_text(&model, pickled), "safe_serialization=True"]);
    }
}

#[test]
fn a_model_and_an_adapter_in_each_others_place() {
    let model = model();
    assert_refused(load_for_tied(model.path()), &[&model.path().display().to_string(), "is a model", "--backbone"]);
    let adapter = adapter();
    let outcome = Checkpoint::from_directory(adapter.path()).map(drop);
    assert_refused(outcome, &[&adapter.path().display().to_string(), "is an adapter", "--blade"]);
}

#[test]
fn of_whole_weights_and_an_index_the_whole_weights_are_read() {
    let model = model();
    let index = r#"{"weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors"}}"#;
    fs::write(model.path().join("model.safetensors.index.json"), index).unwrap();
    load(model.path()).unwrap();
}

#[cfg(unix)]
#[test]
fn a_pipe_in_the_place_of_a_file_is_refused() {
    type Read = fn(&Path) -> Result<(), CheckpointError>;
    let config: Read = |path| Ok(Qwen2Config::from_file(path).map(drop)?);
    let weights: Read = |path| TensorFiles::open_file(path, "").map(drop);
    let directory = tempfile::tempdir().unwrap();
    for (name, read) in [("config.json", config), (WEIGHTS, weights)] {
        let pipe = directory.path().join(name);
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        // Opening a pipe would block until a writer opens it.
        let (sender, done) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(read(&pipe).map_err(|error| error.to_string())));
        let error = done.recv_timeout(std::time::Duration::from_secs(60)).expect("the load ends").unwrap_err();
        assert!(error.contains(name) && error.contains("not a regular file"), "{error}");
    }
}

#[test]
fn a_packed_file_that_unpacks_to_a_line_without_end_is_refused() {
    use std::io::Write;

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.jsonl.gz");
    let mut packed = flate2::write::GzEncoder::new(fs::File::create(&path).unwrap(), flate2::Compression::fast());
    for _ in 0..65 {
        packed.write_all(&vec![b' '; 1 << 20]).unwrap();
    }
    packed.finish().unwrap();
    assert!(fs::metadata(&path).unwrap().len() < 1 << 20);
    let error = sk_models::train::data::read_rows(&path).unwrap_err().to_string();
    assert!(error.contains("data.jsonl.gz") && error.contains("64 MiB"), "{error}");
}
