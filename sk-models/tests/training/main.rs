//! Training end to end on a handful of sentences: a tokenizer, a language model and an adapter, and
//! resuming a run of each.

mod data;
mod outcome;
mod resume;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sk_models::Qwen2Config;
use sk_models::decoder::Precision;
use sk_models::head::HeadKind;
use sk_models::lora::Target;
use sk_models::train::data::{DataOptions, Source, frame};
use sk_models::train::dpo::DpoOptions;
use sk_models::train::head::HeadOptions;
use sk_models::train::lm::LmOptions;
use sk_models::train::optimizer::Rule;
use sk_models::train::preference::PreferenceLoss;
use sk_models::train::run::RunOptions;
use sk_models::train::state::WeightType;
use sk_models::train::tokenizer::{TokenizerOptions, train_tokenizer};

/// Held by each workspace: all threads share the device's generator, which draws the
/// weights.
static GENERATOR: Mutex<()> = Mutex::new(());

const VERBS: [&str; 8] = ["open", "close", "paint", "clean", "sell", "find", "carry", "mend"];
const THINGS: [&str; 8] = ["door", "window", "boat", "kettle", "chair", "garden", "letter", "coat"];

/// Writes sixty-four questions: as pairs of a kind and an unkind answer, and as dialogues with the
/// kind answer.
fn write_data(directory: &Path) -> (PathBuf, PathBuf) {
    let (mut pairs, mut texts) = (String::new(), String::new());
    for verb in VERBS {
        for thing in THINGS {
            let prompt = format!("How do I {verb} the {thing}?");
            let chosen = format!("You can {verb} the {thing} with both hands.");
            let rejected = format!("Who would {verb} a {thing}?");
            pairs += &serde_json::json!({"prompt": prompt, "chosen": chosen, "rejected": rejected}).to_string();
            pairs.push('\n');
            texts += &serde_json::json!({"text": format!("{} {chosen}", frame(&prompt))}).to_string();
            texts.push('\n');
        }
    }
    let (pair_file, text_file) = (directory.join("pairs.jsonl"), directory.join("texts.jsonl"));
    fs::write(&pair_file, pairs).unwrap();
    fs::write(&text_file, texts).unwrap();
    (pair_file, text_file)
}

fn data(path: &Path) -> DataOptions {
    DataOptions { sources: vec![Source { path: path.to_owned(), weight: 1.0 }], exclude: Vec::new(), held_out: 0.2 }
}

/// Returns options after a change.
fn with<O>(mut options: O, change: impl FnOnce(&mut O)) -> O {
    change(&mut options);
    options
}

/// A directory with training data and a tokenizer.
struct Workspace {
    root: tempfile::TempDir,
    pairs: PathBuf,
    texts: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

impl Workspace {
    fn new() -> Self {
        let alone = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
        let root = tempfile::tempdir().unwrap();
        let (pairs, texts) = write_data(root.path());
        train_tokenizer(&TokenizerOptions {
            data: data(&texts),
            vocab_size: 320,
            output: root.path().join("tokenizer"),
            max_length: 64,
        })
        .unwrap();
        Self { root, pairs, texts, _alone: alone }
    }

    fn lm(&self, output: &str) -> LmOptions {
        LmOptions {
            config: Qwen2Config {
                vocab_size: 1,
                hidden_size: 16,
                intermediate_size: 32,
                num_hidden_layers: 2,
                num_attention_heads: 2,
                num_key_value_heads: 1,
                head_dim: 8,
                rope_theta: 10_000.0,
                rms_norm_eps: 1e-6,
                max_position_embeddings: 64,
                tie_word_embeddings: true,
                bos_token_id: None,
                eos_token_ids: Vec::new(),
                pad_token_id: None,
            },
            initial: None,
            keep_layers: None,
            tokenizer: self.root.path().join("tokenizer"),
            data: data(&self.texts),
            output: self.root.path().join(output),
            run: RunOptions {
                steps: 8,
                batch: 2,
                accumulate: 2,
                length: 24,
                rate: 1e-2,
                warmup: 2,
                floor: 0.1,
                weight_decay: 0.1,
                clip: 1.0,
                seed: 7,
                evaluate_every: 4,
                save_every: 3,
            },
            optimizer: Rule::Muon,
            evaluate_windows: 4,
            precision: WeightType::F32,
        }
    }

    fn dpo(&self, model: &str, output: &str) -> DpoOptions {
        DpoOptions {
            model: self.root.path().join(model),
            base: "owner/model".to_owned(),
            chat: false,
            data: data(&self.pairs),
            tests: Vec::new(),
            output: self.root.path().join(output),
            targets: Target::ALL.to_vec(),
            rank: 2,
            alpha: 4.0,
            loss: PreferenceLoss { beta: 0.5, label_smoothing: 0.0, length_normalised: false },
            precision: Precision::F32,
            run: RunOptions {
                steps: 8,
                batch: 4,
                accumulate: 1,
                length: 48,
                rate: 1e-2,
                warmup: 2,
                floor: 0.1,
                weight_decay: 0.0,
                clip: 1.0,
                seed: 3,
                evaluate_every: 4,
                save_every: 3,
            },
        }
    }

    fn head(&self, kind: HeadKind, model: &str, output: &str) -> HeadOptions {
        HeadOptions {
            kind,
            attribute: "kind".to_owned(),
            model: self.root.path().join(model),
            data: data(&self.pairs),
            output: self.root.path().join(output),
            length: 64,
            batch: 5,
            pairs: None,
            memory: 1 << 20,
            l2: 1e-4,
            iterations: 200,
            seed: 1,
        }
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.root.path().join(name)).unwrap()
    }
}
