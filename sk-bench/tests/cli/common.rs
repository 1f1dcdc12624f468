//! A tiny random model on disk, and the program that runs on it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use tempfile::TempDir;

/// One token per byte and the three special tokens of Qwen2.
const TOKENIZER: &str = include_str!("../fixtures/bytes.json");

/// The blades of the tiny model.
pub(crate) const BLADES: [&str; 3] = ["helpful", "honest", "harmless"];

/// The context length of the tiny model.
pub(crate) const CONTEXT: usize = 512;

/// Embedding rows: a few more than the tokenizer has entries, as in Qwen2.5.
const VOCABULARY: usize = 264;
const HIDDEN: usize = 16;
const INTERMEDIATE: usize = 32;
const LAYERS: usize = 2;
const HEAD_DIM: usize = 8;

/// The directory with `backbone`, `drafter` and `blades/NAME`. Created once.
pub(crate) fn models() -> &'static Path {
    // It is never dropped, so its folder is one of those that `cargo clean` removes.
    static MODELS: OnceLock<TempDir> = OnceLock::new();
    MODELS
        .get_or_init(|| {
            let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            write_model(&directory.path().join("backbone"), 1);
            write_model(&directory.path().join("drafter"), 2);
            for (seed, name) in (3..).zip(BLADES) {
                write_adapter(&directory.path().join("blades").join(name), seed);
            }
            directory
        })
        .path()
}

/// The options that name the tiny model and its blades.
pub(crate) fn model_args() -> Vec<String> {
    let path = |part: &str| models().join(part).display().to_string();
    let mut args = vec!["--backbone".to_owned(), path("backbone"), "--drafter".to_owned(), path("drafter")];
    for name in BLADES {
        args.extend(["--blade".to_owned(), format!("{name}={}", path(&format!("blades/{name}")))]);
    }
    args.extend(["--device".to_owned(), "cpu".to_owned()]);
    args
}

/// The `[model]` section of a plan for the tiny model.
#[allow(dead_code)] // for the tests of sweeps, judges and tuning
pub(crate) fn model_section() -> String {
    let path = |part: &str| models().join(part).display().to_string();
    let mut text = format!("[model]\nbackbone = {:?}\ndrafter = {:?}\ndevice = \"cpu\"\n", path("backbone"), path("drafter"));
    text += "[model.blades]\n";
    for name in BLADES {
        text += &format!("{name} = {:?}\n", path(&format!("blades/{name}")));
    }
    text
}

/// The program, without the variables of the caller's environment that could change its behaviour.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_swiss-knife"));
    command.env("HF_HUB_OFFLINE", "1").stdin(Stdio::null());
    ["SWISS_KNIFE_API_KEY", "NO_COLOR", "CLICOLOR_FORCE"].iter().for_each(|name| _ = command.env_remove(name));
    command
}

/// Runs the program.
pub(crate) fn run(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
    program().args(args).output().unwrap()
}

/// Runs a command of the program on the tiny model.
pub(crate) fn run_on_models(command: &str, args: &[&str]) -> Output {
    program().arg(command).args(model_args()).args(args).output().unwrap()
}

/// Runs a command on the tiny model with `input` on standard input.
pub(crate) fn run_with_input(command: &str, args: &[&str], input: &str) -> Output {
    let mut child = program()
        .arg(command)
        .args(model_args())
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Standard output of a run that succeeded.
pub(crate) fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Standard error of a run.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Asserts that a run was refused as bad input: status 2, no standard output, and one line of error
/// that contains `parts`.
pub(crate) fn assert_refused(output: &Output, parts: &[&str]) {
    let error = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.starts_with("error: "), "{error}");
    for part in parts {
        assert!(error.contains(part), "{error:?} lacks {part:?}");
    }
}

/// Copies a directory of the tiny model, for a test to damage.
pub(crate) fn copy_of(part: &str, to: &Path) -> PathBuf {
    let target = to.join(Path::new(part).file_name().unwrap());
    fs::create_dir_all(&target).unwrap();
    for entry in fs::read_dir(models().join(part)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), target.join(entry.file_name())).unwrap();
    }
    target
}

/// Changes a JSON file.
pub(crate) fn edit_json(path: &Path, edit: impl FnOnce(&mut Value)) {
    let mut value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    edit(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

type Tensors = BTreeMap<String, (Vec<usize>, Vec<u8>)>;

fn write_model(directory: &Path, seed: u64) {
    fs::create_dir_all(directory).unwrap();
    let config = json!({
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu",
        "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS, "num_attention_heads": 2, "num_key_value_heads": 1,
        "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "tie_word_embeddings": false, "bos_token_id": 256, "eos_token_id": 258, "torch_dtype": "float32",
    });
    fs::write(directory.join("config.json"), config.to_string()).unwrap();
    fs::write(directory.join("tokenizer.json"), TOKENIZER).unwrap();
    let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    let tokenizer = json!({"eos_token": "<|im_end|>", "chat_template": template});
    fs::write(directory.join("tokenizer_config.json"), tokenizer.to_string()).unwrap();

    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut tensors = Tensors::new();
    let mut add = |name: String, shape: &[usize], centre: f32, spread: f32| {
        tensors.insert(name, (shape.to_vec(), random(shape, centre, spread, &mut rng)));
    };
    let (heads, keys) = (2 * HEAD_DIM, HEAD_DIM);
    add("model.embed_tokens.weight".into(), &[VOCABULARY, HIDDEN], 0.0, 1.0);
    add("lm_head.weight".into(), &[VOCABULARY, HIDDEN], 0.0, 1.0);
    add("model.norm.weight".into(), &[HIDDEN], 1.0, 0.2);
    for layer in 0..LAYERS {
        let name = |part: &str| format!("model.layers.{layer}.{part}");
        for (projection, rows) in [("q", heads), ("k", keys), ("v", keys)] {
            add(name(&format!("self_attn.{projection}_proj.weight")), &[rows, HIDDEN], 0.0, 0.5);
            add(name(&format!("self_attn.{projection}_proj.bias")), &[rows], 0.0, 0.5);
        }
        add(name("self_attn.o_proj.weight"), &[HIDDEN, heads], 0.0, 0.5);
        add(name("mlp.gate_proj.weight"), &[INTERMEDIATE, HIDDEN], 0.0, 0.5);
        add(name("mlp.up_proj.weight"), &[INTERMEDIATE, HIDDEN], 0.0, 0.5);
        add(name("mlp.down_proj.weight"), &[HIDDEN, INTERMEDIATE], 0.0, 0.5);
        add(name("input_layernorm.weight"), &[HIDDEN], 1.0, 0.2);
        add(name("post_attention_layernorm.weight"), &[HIDDEN], 1.0, 0.2);
    }
    write_tensors(&directory.join("model.safetensors"), &tensors);
}

fn write_adapter(directory: &Path, seed: u64) {
    const RANK: usize = 4;
    fs::create_dir_all(directory).unwrap();
    let config = json!({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": 8, "bias": "none",
        "target_modules": ["q_proj", "down_proj"], "base_model_name_or_path": "backbone",
    });
    fs::write(directory.join("adapter_config.json"), config.to_string()).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut tensors = Tensors::new();
    for layer in 0..LAYERS {
        for (module, input, output) in [("self_attn.q_proj", HIDDEN, 2 * HEAD_DIM), ("mlp.down_proj", INTERMEDIATE, HIDDEN)] {
            let name = |side: &str| format!("base_model.model.model.layers.{layer}.{module}.lora_{side}.weight");
            tensors.insert(name("A"), (vec![RANK, input], random(&[RANK, input], 0.0, 0.5, &mut rng)));
            tensors.insert(name("B"), (vec![output, RANK], random(&[output, RANK], 0.0, 0.5, &mut rng)));
        }
    }
    write_tensors(&directory.join("adapter_model.safetensors"), &tensors);
}

/// Uniform values within `spread` of `centre`, as little-endian f32.
fn random(shape: &[usize], centre: f32, spread: f32, rng: &mut ChaCha8Rng) -> Vec<u8> {
    let count = shape.iter().product::<usize>();
    (0..count).flat_map(|_| (centre + spread * (2.0 * rng.random::<f32>() - 1.0)).to_le_bytes()).collect()
}

fn write_tensors(path: &Path, tensors: &Tensors) {
    let views = tensors.iter().map(|(name, (shape, bytes))| (name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
    safetensors::tensor::serialize_to_file(views, None, path).unwrap();
}
