//! Training end to end on a handful of sentences: a tokenizer, a language model and an adapter, and
//! resuming a run of each.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use burn::tensor::Device;
use sk_models::{
    Qwen2Config,
    decoder::Precision as FrozenPrecision,
    head::HeadKind,
    hf::Checkpoint,
    lora::Target,
    train::{
        TrainError,
        data::{ASSISTANT, Corpus, Excluded, HUMAN, Row, frame},
        data::{
            Cursor, END_OF_TEXT, END_OF_TURN, Marks, Source, Windows, encode, encode_document, encode_prompt, read_rows,
            write_rows,
        },
        dpo::{DpoEvent, DpoOptions, train_dpo, unseen_pairs},
        head::{HeadEvent, HeadOptions, train_head},
        lm::{LmEvent, LmOptions, train_lm},
        optimizer::{OptimizerSettings, Rule},
        preference::PreferenceLoss,
        state::Precision,
        tokenizer::{TokenizerOptions, load_tokenizer, train_tokenizer},
    },
};

/// Held by each test that trains: all threads share the device's generator, which draws the
/// weights.
static GENERATOR: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

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

fn source(path: &Path) -> Source {
    Source { path: path.to_owned(), weight: 1.0 }
}

/// A directory with training data and a tokenizer.
struct Workspace {
    root: tempfile::TempDir,
    pairs: PathBuf,
    texts: PathBuf,
}

impl Workspace {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let (pairs, texts) = write_data(root.path());
        train_tokenizer(&TokenizerOptions {
            sources: vec![source(&texts)],
            exclude: Vec::new(),
            vocab_size: 320,
            output: root.path().join("tokenizer"),
            held_out: 0.2,
            max_length: 64,
        })
        .unwrap();
        Self { root, pairs, texts }
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
            sources: vec![source(&self.texts)],
            exclude: Vec::new(),
            held_out: 0.2,
            output: self.root.path().join(output),
            steps: 8,
            batch: 2,
            accumulate: 2,
            length: 24,
            rate: 1e-2,
            warmup: 2,
            floor: 0.1,
            optimizer: OptimizerSettings::default(),
            seed: 7,
            evaluate_every: 4,
            evaluate_windows: 4,
            save_every: 3,
            precision: Precision::F32,
        }
    }

    fn dpo(&self, model: &str, output: &str) -> DpoOptions {
        DpoOptions {
            model: self.root.path().join(model),
            sources: vec![source(&self.pairs)],
            exclude: Vec::new(),
            held_out: 0.2,
            tests: Vec::new(),
            output: self.root.path().join(output),
            targets: Target::ALL.to_vec(),
            rank: 2,
            alpha: 4.0,
            loss: PreferenceLoss { beta: 0.5, label_smoothing: 0.0, length_normalised: false },
            precision: FrozenPrecision::F32,
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
        }
    }

    fn head(&self, kind: HeadKind, model: &str, output: &str) -> HeadOptions {
        HeadOptions {
            kind,
            attribute: "kind".to_owned(),
            model: self.root.path().join(model),
            sources: vec![source(&self.pairs)],
            exclude: Vec::new(),
            held_out: 0.2,
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

/// Stops a run after its first checkpoint by a panic, as a power failure would.
fn interrupted(run: impl FnOnce(&mut dyn FnMut(bool))) {
    let outcome = catch_unwind(AssertUnwindSafe(|| run(&mut |saved| assert!(!saved, "interrupted here"))));
    assert!(outcome.is_err(), "the run was not interrupted");
}

fn interrupted_lm(options: &LmOptions, device: &Device) {
    interrupted(|stop| {
        let _ = train_lm(options, device, &mut |event| stop(matches!(event, LmEvent::Saved { .. })));
    });
}

fn interrupted_dpo(options: &DpoOptions, device: &Device) {
    interrupted(|stop| {
        let _ = train_dpo(options, device, &mut |event| stop(matches!(event, DpoEvent::Saved { .. })));
    });
}

#[test]
fn an_interrupted_language_model_run_resumes_to_the_same_bytes() {
    let _alone = alone();
    let workspace = Workspace::new();
    let device = Device::flex();
    for rule in [Rule::Muon, Rule::Adamw] {
        let options = |output: &str| {
            let mut options = workspace.lm(output);
            options.optimizer.rule = rule;
            options
        };
        let whole = format!("whole-{rule:?}");
        let parts = format!("parts-{rule:?}");
        train_lm(&options(&whole), &device, &mut |_| {}).unwrap();
        interrupted_lm(&options(&parts), &device);
        let mut resumed = 0;
        train_lm(&options(&parts), &device, &mut |event| {
            if let LmEvent::Started { resumed: step, .. } = event {
                resumed = step;
            }
        })
        .unwrap();
        assert_eq!(resumed, 3);
        assert_eq!(
            workspace.bytes(&format!("{whole}/model.safetensors")),
            workspace.bytes(&format!("{parts}/model.safetensors"))
        );
        assert!(!workspace.root.path().join(&parts).join("checkpoint.safetensors").exists());
    }
}

/// A change of an option, and a part of the error when the checkpoint is refused.
type Change<O> = (fn(&mut O), &'static str);

#[test]
fn a_language_model_run_does_not_resume_another() {
    let _alone = alone();
    let workspace = Workspace::new();
    let device = Device::flex();
    interrupted_lm(&workspace.lm("run"), &device);
    let changes: [Change<LmOptions>; 11] = [
        (|o| o.batch = 4, "--batch 2, not 4"),
        (|o| o.accumulate = 1, "--accumulate 2, not 1"),
        (|o| o.length = 32, "--length 24, not 32"),
        (|o| o.rate = 2e-2, "--rate 0.01, not 0.02"),
        (|o| o.floor = 0.2, "--floor 0.1, not 0.2"),
        (|o| o.optimizer.rule = Rule::Adamw, "--optimizer muon, not adamw"),
        (|o| o.optimizer.clip = 0.0, "--clip 1, not 0"),
        (|o| o.held_out = 0.3, "--held-out 0.2, not 0.3"),
        (|o| o.config.hidden_size = 24, "--hidden 16, not 24"),
        (|o| o.sources[0].weight = 2.0, "another --data"),
        (|o| o.exclude = vec![o.sources[0].path.with_file_name("other.jsonl")], "another --exclude"),
    ];
    fs::write(workspace.root.path().join("other.jsonl"), "{\"text\": \"nothing of the kind\"}\n").unwrap();
    for (change, part) in changes {
        let mut options = workspace.lm("run");
        change(&mut options);
        let message = train_lm(&options, &device, &mut |_| {}).unwrap_err().to_string();
        assert!(message.contains("checkpoint.safetensors") && message.contains(part), "{part}: {message}");
    }
    let mut text = fs::read_to_string(&workspace.texts).unwrap();
    text.push_str("{\"text\": \"one more\"}\n");
    fs::write(&workspace.texts, text).unwrap();
    let message = train_lm(&workspace.lm("run"), &device, &mut |_| {}).unwrap_err().to_string();
    assert!(message.contains("another --data"), "{message}");
}

#[test]
fn a_preference_run_does_not_resume_another() {
    let _alone = alone();
    let workspace = Workspace::new();
    let device = Device::flex();
    train_lm(&workspace.lm("model"), &device, &mut |_| {}).unwrap();
    train_lm(&LmOptions { seed: 8, ..workspace.lm("other") }, &device, &mut |_| {}).unwrap();
    interrupted_dpo(&workspace.dpo("model", "run"), &device);
    let changes: [Change<DpoOptions>; 7] = [
        (|o| (o.batch, o.accumulate) = (2, 2), "--batch 4, not 2"),
        (|o| o.precision = FrozenPrecision::Bf16, "--precision the default, not bf16"),
        (|o| o.rate = 2e-2, "--rate 0.01, not 0.02"),
        (|o| o.loss.beta = 1.0, "--beta 0.5, not 1"),
        (|o| o.loss.label_smoothing = 0.1, "--label-smoothing 0, not 0.1"),
        (|o| o.alpha = 8.0, "--alpha 4, not 8"),
        (|o| o.model = o.model.with_file_name("other"), "another --model"),
    ];
    for (change, part) in changes {
        let mut options = workspace.dpo("model", "run");
        change(&mut options);
        let message = train_dpo(&options, &device, &mut |_| {}).unwrap_err().to_string();
        assert!(message.contains(part), "{part}: {message}");
    }
    // The same number of pairs, with other contents.
    let pairs = fs::read_to_string(&workspace.pairs).unwrap();
    fs::write(&workspace.pairs, pairs.replace("both hands", "two hands")).unwrap();
    let message = train_dpo(&workspace.dpo("model", "run"), &device, &mut |_| {}).unwrap_err().to_string();
    assert!(message.contains("another --data"), "{message}");
    // A larger number of steps continues the same run.
    fs::write(&workspace.pairs, pairs).unwrap();
    train_dpo(&DpoOptions { steps: 9, ..workspace.dpo("model", "run") }, &device, &mut |_| {}).unwrap();
}

#[test]
fn windows_do_not_exceed_the_longest_context() {
    let _alone = alone();
    let workspace = Workspace::new();
    let message =
        train_lm(&LmOptions { length: 65, ..workspace.lm("model") }, &Device::flex(), &mut |_| {}).unwrap_err().to_string();
    assert!(message.contains("`length` is 65") && message.contains("64") && message.contains("--max-length"), "{message}");
}

#[test]
fn training_lowers_the_loss_and_the_result_loads() {
    let _alone = alone();
    let workspace = Workspace::new();
    let mut options = workspace.lm("model");
    options.steps = 60;
    let mut first = None;
    let last = train_lm(&options, &Device::flex(), &mut |event| {
        if let LmEvent::Step { loss, .. } = event {
            first.get_or_insert(loss);
        }
    })
    .unwrap();
    let first = first.unwrap();
    // 64 sentences with one pattern: sixty steps must halve the initial loss, about ln 320 = 5.8.
    assert!(last < 0.5 * first, "from {first} to {last}");
    let checkpoint = Checkpoint::from_directory(&workspace.root.path().join("model")).unwrap();
    let model = checkpoint.model(&Device::flex()).unwrap();
    assert_eq!(model.config.num_hidden_layers, 2);
    assert_eq!(checkpoint.tokenizer().id_of(END_OF_TURN), model.config.eos_token_ids.first().copied());
}

#[test]
fn an_interrupted_preference_run_resumes_to_the_same_bytes() {
    let _alone = alone();
    let workspace = Workspace::new();
    let device = Device::flex();
    train_lm(&workspace.lm("model"), &device, &mut |_| {}).unwrap();
    let whole = train_dpo(&workspace.dpo("model", "whole"), &device, &mut |_| {}).unwrap();
    interrupted_dpo(&workspace.dpo("model", "parts"), &device);
    let parts = train_dpo(&workspace.dpo("model", "parts"), &device, &mut |_| {}).unwrap();
    assert_eq!(whole, parts);
    let file = "adapter_model.safetensors";
    assert_eq!(workspace.bytes(&format!("whole/{file}")), workspace.bytes(&format!("parts/{file}")));
}

/// Relative distance of two adapters after a few steps. Their f32 sums differ in order, and Adam's
/// division by small gradients magnifies the difference.
const ADAPTERS: f64 = 1e-3;
/// Difference of their losses.
const LOSSES: f64 = 1e-5;

/// Trains an adapter. Returns the loss of each step, and the matrices B.
fn trained(options: &DpoOptions) -> (Vec<f64>, Vec<f32>) {
    let mut losses = Vec::new();
    train_dpo(options, &Device::flex(), &mut |event| {
        if let DpoEvent::Step { loss, .. } = event {
            losses.push(loss);
        }
    })
    .unwrap();
    let bytes = fs::read(options.output.join("adapter_model.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors = file.tensors();
    tensors.retain(|(name, _)| name.contains("lora_B"));
    tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
    let floats = |bytes: &[u8]| -> Vec<f32> { bytes.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect() };
    (losses, tensors.iter().flat_map(|(_, tensor)| floats(tensor.data())).collect())
}

fn assert_alike((losses, matrices): (Vec<f64>, Vec<f32>), (others, expected): (Vec<f64>, Vec<f32>)) {
    assert_eq!(losses.len(), others.len());
    for (loss, other) in losses.iter().zip(&others) {
        assert!((loss - other).abs() < LOSSES, "{losses:?} {others:?}");
    }
    let square = |values: &mut dyn Iterator<Item = f32>| values.map(|value| f64::from(value).powi(2)).sum::<f64>();
    let off = square(&mut matrices.iter().zip(&expected).map(|(a, b)| a - b)).sqrt();
    let size = square(&mut expected.iter().copied()).sqrt();
    assert!(size > 0.0 && off < ADAPTERS * size, "off by {off:e} of {size:e}");
}

#[test]
fn accumulated_passes_are_a_larger_batch() {
    let _alone = alone();
    let workspace = Workspace::new();
    train_lm(&workspace.lm("model"), &Device::flex(), &mut |_| {}).unwrap();
    let whole = trained(&workspace.dpo("model", "whole"));
    let parts = trained(&DpoOptions { batch: 1, accumulate: 4, ..workspace.dpo("model", "parts") });
    assert_alike(parts, whole);
}

/// Converting bf16 to f32 is exact, so a model with weights in bf16 has the gradients of f32.
#[test]
fn weights_in_bf16_give_the_gradients_of_f32() {
    let _alone = alone();
    let workspace = Workspace::new();
    train_lm(&workspace.lm("model"), &Device::flex(), &mut |_| {}).unwrap();
    // Keep the upper half of each f32, which is a bf16 number. The file begins with the length of
    // the header and the header.
    let path = workspace.root.path().join("model/model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    bytes[header..].as_chunks_mut::<4>().0.iter_mut().for_each(|value| value[..2].fill(0));
    fs::write(&path, bytes).unwrap();

    let single = trained(&workspace.dpo("model", "f32"));
    let half = trained(&DpoOptions { precision: FrozenPrecision::Bf16, ..workspace.dpo("model", "bf16") });
    assert_alike(half, single);
    let refused = DpoOptions { precision: FrozenPrecision::Int8, ..workspace.dpo("model", "int8") };
    let message = train_dpo(&refused, &Device::flex(), &mut |_| {}).unwrap_err().to_string();
    assert!(message.contains("`precision` is int8: must be f32 or bf16"), "{message}");
}

#[test]
fn preferences_are_learned_and_generalise_to_held_out_prompts() {
    let _alone = alone();
    let workspace = Workspace::new();
    let device = Device::flex();
    train_lm(&workspace.lm("model"), &device, &mut |_| {}).unwrap();
    let mut options = workspace.dpo("model", "adapter");
    options.steps = 60;
    options.tests = vec![workspace.pairs.clone()];
    let mut tested = None;
    let report = train_dpo(&options, &device, &mut |event| {
        if let DpoEvent::Tested { test: 0, report } = event {
            tested = Some(report);
        }
    })
    .unwrap();
    // "You can …" against "Who would …": a constant pattern.
    assert!(report.pairs >= 6 && report.accuracy > 0.9, "{report:?}");
    assert!(report.loss < std::f64::consts::LN_2, "{report:?}");
    // All pairs of a test file are measured.
    let tested = tested.unwrap();
    assert!(tested.pairs == read_rows(&workspace.pairs).unwrap().len() && tested.accuracy > 0.9, "{tested:?}");
}

#[test]
fn unseen_pairs_are_those_whose_questions_a_run_never_sees() {
    let workspace = Workspace::new();
    let all: Vec<Row> = read_rows(&workspace.pairs).unwrap();
    // Of the model, only the tokenizer is needed.
    let unseen = |steps| unseen_pairs(&DpoOptions { steps, ..workspace.dpo("tokenizer", "none") }).unwrap();
    // Two steps of four pairs see at most eight questions; a long run sees all but those held out.
    let (short, long) = (unseen(2), unseen(64));
    assert!((all.len() - 8..all.len()).contains(&short.len()), "{} of {}", short.len(), all.len());
    let held_out: Vec<&Row> = all.iter().filter(|row| row.is_held_out(0.2)).collect();
    assert_eq!(long.iter().collect::<Vec<_>>(), held_out);
    assert!(long.iter().all(|row| short.contains(row)));
    // The file reads back unchanged. As an exclusion it leaves exactly the pairs that the run saw.
    let path = workspace.root.path().join("unseen.jsonl.gz");
    write_rows(&path, short.clone()).unwrap();
    assert_eq!(read_rows(&path).unwrap(), short);
    let excluded = Excluded::load(&[path]).unwrap();
    assert_eq!(all.iter().filter(|row| !excluded.contains(row)).count(), all.len() - short.len());
}

#[test]
fn a_checkpoint_of_another_run_is_refused() {
    let _alone = alone();
    let workspace = Workspace::new();
    let device = Device::flex();
    interrupted_lm(&workspace.lm("model"), &device);
    let mut other = workspace.lm("model");
    other.seed += 1;
    let error = train_lm(&other, &device, &mut |_| {}).unwrap_err();
    assert!(matches!(error, TrainError::Checkpoint { .. }), "{error}");
    assert!(error.to_string().contains("checkpoint.safetensors"), "{error}");
}

#[test]
fn a_damaged_checkpoint_is_refused_wherever_it_is_damaged() {
    let _alone = alone();
    let workspace = Workspace::new();
    let device = Device::flex();
    let options = workspace.lm("model");
    interrupted_lm(&options, &device);
    let path = workspace.root.path().join("model/checkpoint.safetensors");
    let whole = fs::read(&path).unwrap();
    // Damage in the header, in the progress record, in the first tensor and in the last tensor.
    for place in [4, 40, whole.len() / 2, whole.len() - 1] {
        let mut damaged = whole.clone();
        damaged[place] ^= 1;
        fs::write(&path, damaged).unwrap();
        let error = train_lm(&options, &device, &mut |_| {}).unwrap_err();
        assert!(matches!(error, TrainError::Checkpoint { .. }), "byte {place}: {error}");
    }
    fs::write(&path, &whole).unwrap();
    train_lm(&options, &device, &mut |_| {}).unwrap();
}

#[cfg(unix)]
#[test]
fn two_runs_do_not_share_a_folder() {
    let _alone = alone();
    let workspace = Workspace::new();
    let device = Device::flex();
    let options = workspace.lm("model");
    let mut busy = None;
    train_lm(&options, &device, &mut |event| {
        if let LmEvent::Started { .. } = event {
            busy = Some(train_lm(&options, &device, &mut |_| {}).unwrap_err());
        }
    })
    .unwrap();
    assert!(matches!(busy, Some(TrainError::Busy { .. })), "{busy:?}");
    // A failed run removes the folder that it created.
    let mut wrong = workspace.lm("other");
    wrong.tokenizer = workspace.root.path().join("nowhere");
    train_lm(&wrong, &device, &mut |_| {}).unwrap_err();
    assert!(!workspace.root.path().join("other").exists());
    // It keeps a folder that existed before.
    fs::create_dir(workspace.root.path().join("other")).unwrap();
    train_lm(&wrong, &device, &mut |_| {}).unwrap_err();
    assert!(workspace.root.path().join("other").exists());
}

#[test]
fn a_checkpoint_of_more_steps_than_are_asked_for_is_refused() {
    let _alone = alone();
    let workspace = Workspace::new();
    let device = Device::flex();
    train_lm(&workspace.lm("model"), &device, &mut |_| {}).unwrap();
    interrupted_lm(&workspace.lm("run"), &device);
    interrupted_dpo(&workspace.dpo("model", "blade"), &device);
    let lm = train_lm(&LmOptions { steps: 2, ..workspace.lm("run") }, &device, &mut |_| {}).unwrap_err();
    let dpo = train_dpo(&DpoOptions { steps: 2, ..workspace.dpo("model", "blade") }, &device, &mut |_| {}).unwrap_err();
    for error in [lm, dpo] {
        let message = error.to_string();
        assert!(
            matches!(error, TrainError::Checkpoint { .. }) && message.contains("step 3") && message.contains("--steps 2"),
            "{message}"
        );
    }
}

#[test]
fn what_a_run_ended_with_is_not_overwritten() {
    let _alone = alone();
    let workspace = Workspace::new();
    let device = Device::flex();
    train_lm(&workspace.lm("model"), &device, &mut |_| {}).unwrap();
    train_dpo(&workspace.dpo("model", "blade"), &device, &mut |_| {}).unwrap();
    let files = ["model/model.safetensors", "blade/adapter_model.safetensors"];
    let before = files.map(|file| workspace.bytes(file));
    let lm = train_lm(&LmOptions { seed: 8, ..workspace.lm("model") }, &device, &mut |_| {}).unwrap_err();
    let dpo = train_dpo(&DpoOptions { seed: 8, ..workspace.dpo("model", "blade") }, &device, &mut |_| {}).unwrap_err();
    for (error, file) in [lm, dpo].into_iter().zip(files) {
        assert!(matches!(error, TrainError::Finished { .. }) && error.to_string().contains(file), "{error}");
    }
    assert_eq!(files.map(|file| workspace.bytes(file)), before);
    let head = workspace.head(HeadKind::Reward, "model", "head");
    train_head(&head, &device, &mut |_| {}).unwrap();
    let error = train_head(&head, &device, &mut |_| {}).unwrap_err();
    assert!(matches!(error, TrainError::Finished { .. }) && error.to_string().contains("head/head.safetensors"), "{error}");
    // The folder holds a model with another tokenizer.
    let tokenizer = TokenizerOptions {
        sources: vec![source(&workspace.texts)],
        exclude: Vec::new(),
        vocab_size: 300,
        output: workspace.root.path().join("model"),
        held_out: 0.2,
        max_length: 64,
    };
    let error = train_tokenizer(&tokenizer).unwrap_err();
    assert!(matches!(error, TrainError::Finished { .. }) && error.to_string().contains("model/tokenizer.json"), "{error}");
    // A model in shards is found too.
    let directory = workspace.root.path().join("shards");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("model.safetensors.index.json"), "{}").unwrap();
    let error = train_lm(&workspace.lm("shards"), &device, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("model.safetensors.index.json"), "{error}");
}

/// Special tokens spelled out in a text are plain text. Truncation and padding in the tokenizer's
/// file are ignored.
#[test]
fn text_to_train_on_is_read_whole_and_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    let mut tokenizer = load_tokenizer(&sk_models::assets::embedded().unwrap().backbone().join("tokenizer.json")).unwrap();
    let truncation = tokenizers::TruncationParams { max_length: 4, ..Default::default() };
    let padding = tokenizers::PaddingParams { strategy: tokenizers::PaddingStrategy::Fixed(64), ..Default::default() };
    tokenizer.with_truncation(Some(truncation)).unwrap().with_padding(Some(padding));
    tokenizer.save(&path, false).unwrap();
    let tokenizer = load_tokenizer(&path).unwrap();
    let special = [END_OF_TEXT, "<|im_start|>", END_OF_TURN].map(|token| tokenizer.token_to_id(token).unwrap());
    let text = "The token <|im_end|> ends a turn, <|endoftext|> a text, and this is neither.";
    let ids = encode(&tokenizer, text).unwrap();
    assert!(ids.iter().all(|id| !special.contains(id)), "{ids:?}");
    assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
}

#[test]
fn the_tokenizer_gives_back_every_text() {
    let workspace = Workspace::new();
    let path = workspace.root.path().join("tokenizer/tokenizer.json");
    let tokenizer = load_tokenizer(&path).unwrap();
    for text in
        ["", " ", "\n\nHuman: How?\n\nAssistant: So.", "naïve café – 42 €", "日本語 🦀", "a\tb\r\n  c", "don't I'LL we've"]
    {
        let ids = tokenizer.encode(text, false).unwrap();
        assert_eq!(tokenizer.decode(ids.get_ids(), false).unwrap(), text);
    }
    let size = tokenizer.get_vocab_size(true) as u32;
    let special = [END_OF_TEXT, "<|im_start|>", END_OF_TURN].map(|token| tokenizer.token_to_id(token).unwrap());
    assert_eq!(special, [size - 3, size - 2, size - 1]);
}

#[test]
fn every_assistant_turn_and_every_document_is_closed() {
    let workspace = Workspace::new();
    let path = workspace.root.path().join("tokenizer/tokenizer.json");
    let tokenizer = load_tokenizer(&path).unwrap();
    let marks = Marks::of(&tokenizer, &path).unwrap();
    let dialogue = "\n\nHuman: One?\n\nAssistant: Two.\n\nHuman: Three?\n\nAssistant: Four.";
    let ids = encode_document(&tokenizer, marks, dialogue).unwrap();
    assert_eq!(
        tokenizer.decode(&ids, false).unwrap(),
        "\n\nHuman: One?\n\nAssistant: Two.<|im_end|>\n\nHuman: Three?\n\nAssistant: Four.<|im_end|><|endoftext|>"
    );
    let prompt = &dialogue[..dialogue.len() - " Four.".len()];
    let ids = encode_prompt(&tokenizer, marks, prompt).unwrap();
    assert_eq!(
        tokenizer.decode(&ids, false).unwrap(),
        "\n\nHuman: One?\n\nAssistant: Two.<|im_end|>\n\nHuman: Three?\n\nAssistant:"
    );
}

#[test]
fn the_split_is_disjoint_and_goes_by_prompt() {
    let workspace = Workspace::new();
    let rows = read_rows(&workspace.pairs).unwrap();
    let held = rows.iter().filter(|row| row.is_held_out(0.2)).count();
    assert!((6..=22).contains(&held), "{held} of {}", rows.len());
    for row in &rows {
        let Row::Pair { prompt, .. } = row else { panic!("a pair") };
        let bare = prompt.trim_start_matches("\n\nHuman: ").trim_end_matches("\n\nAssistant:");
        let exchange = Row::Exchange { prompt: bare.to_owned(), response: "Anything.".into() };
        assert_eq!(row.is_held_out(0.2), exchange.is_held_out(0.2));
        // A larger fraction holds out every row that a smaller one does.
        assert!(!row.is_held_out(0.1) || row.is_held_out(0.2));
    }
    let excluded = Excluded::load(std::slice::from_ref(&workspace.pairs)).unwrap();
    assert!(rows.iter().all(|row| excluded.contains(row)));
}

#[test]
fn the_turns_of_a_dialogue_stay_on_one_side() {
    for opening in ["One?", "Who is it?", "What is a tide?", "Why?"] {
        let sides: Vec<bool> = [
            Row::Exchange { prompt: opening.into(), response: "This.".into() },
            Row::Text(format!("{} This.{HUMAN} And then?{ASSISTANT} That.", frame(opening))),
            Row::Pair {
                prompt: format!("{} This.{HUMAN} And then?{ASSISTANT}", frame(opening)),
                chosen: " That.".into(),
                rejected: " No.".into(),
            },
        ]
        .iter()
        .map(|row| row.is_held_out(0.5))
        .collect();
        assert!(sides.iter().all(|&side| side == sides[0]), "{opening}: {sides:?}");
    }
}

#[test]
fn a_question_is_excluded_in_whatever_turn_it_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("questions.csv");
    fs::write(&table, "\u{feff}Type,Question\nx,\"Who is it, really?\"\n").unwrap();
    let dialogues = folder.path().join("dialogues.jsonl");
    let later = "Tell me about the tides of the sea, please.";
    let line = serde_json::json!({ "text": format!("{} Hello.{HUMAN} Yes, please.{ASSISTANT} What?{HUMAN} {later}{ASSISTANT} So.", frame("Good day")) });
    fs::write(&dialogues, format!("{line}\n")).unwrap();
    let prompts = folder.path().join("prompts.jsonl");
    fs::write(&prompts, "{\"id\": \"a\", \"prompt\": \"Is it far?\"}\n").unwrap();
    let excluded = Excluded::load(&[table, dialogues, prompts]).unwrap();

    let asks = |turn: &str| {
        let whole = Row::Exchange { prompt: turn.into(), response: "So.".into() };
        let second = Row::Text(format!("{} What?{HUMAN} {turn}{ASSISTANT} So.", frame("Something else")));
        (excluded.contains(&whole), excluded.contains(&second))
    };
    assert_eq!(asks("who is it  REALLY"), (true, true));
    assert_eq!(asks("Good day!"), (true, true));
    assert_eq!(asks("Is it far?"), (true, true));
    assert_eq!(asks(later), (true, true));
    assert_eq!(asks("Yes, please."), (false, false), "too short for a question of its own");
    assert_eq!(asks("Who was it, really?"), (false, false));
    assert!(!excluded.contains(&Row::Text("Who is it, really?".into())), "plain text asks nobody");
    assert!(!Excluded::default().contains(&Row::Text(frame("Good day"))));
}

#[test]
fn a_table_without_questions_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("table.csv");
    fs::write(&table, "a,b\n1,2\n").unwrap();
    let error = Excluded::load(std::slice::from_ref(&table)).unwrap_err().to_string();
    assert!(error.contains("table.csv") && error.contains("column `prompt` or `question`"), "{error}");
}

#[test]
fn windows_resume_at_a_cursor() {
    let workspace = Workspace::new();
    let path = workspace.root.path().join("tokenizer/tokenizer.json");
    let tokenizer = load_tokenizer(&path).unwrap();
    let marks = Marks::of(&tokenizer, &path).unwrap();
    let weighted = Source { path: workspace.texts.clone(), weight: 1.5 };
    let corpus = Corpus::load(&[weighted], &Excluded::default(), &tokenizer, marks, 0.2).unwrap();
    let mut windows = Windows::new(&corpus, 5, 40, Cursor::default()).unwrap();
    let seen: Vec<_> = (0..200).map(|_| (windows.cursor(), windows.next_window())).collect();
    assert!(seen.last().unwrap().0.epoch >= 2);
    for (cursor, window) in seen.iter().step_by(17) {
        assert_eq!(Windows::new(&corpus, 5, 40, *cursor).unwrap().next_window(), *window);
    }
}

#[test]
fn dialogue_pairs_are_cut_at_the_last_assistant_turn() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hh.jsonl");
    let rows = [
        serde_json::json!({"chosen": "\n\nHuman: A?\n\nAssistant: b", "rejected": "\n\nHuman: A?\n\nAssistant: c"}),
        serde_json::json!({"chosen": "\n\nHuman: A?\n\nAssistant: b", "rejected": "\n\nHuman: Z?\n\nAssistant: c"}),
        serde_json::json!({"chosen": "\n\nHuman: A?\n\nAssistant: b", "rejected": "\n\nHuman: A?\n\nAssistant: b"}),
    ];
    fs::write(&path, rows.map(|row| row.to_string()).join("\n")).unwrap();
    let expected = Row::Pair { prompt: "\n\nHuman: A?\n\nAssistant:".into(), chosen: " b".into(), rejected: " c".into() };
    // Pairs with different prompts or with equal answers carry no preference and are skipped.
    assert_eq!(read_rows(&path).unwrap(), [expected]);

    fs::write(&path, "{\"text\": \"fine\"}\n{\"prompt\": \"alone\"}\n").unwrap();
    let message = read_rows(&path).unwrap_err().to_string();
    assert!(message.contains("line 2") && message.contains("hh.jsonl"), "{message}");
}

#[test]
fn a_run_continues_from_another_models_weights() {
    let _alone = alone();
    let workspace = Workspace::new();
    let first = LmOptions { steps: 30, ..workspace.lm("first") };
    let trained = train_lm(&first, &Device::flex(), &mut |_| {}).unwrap();
    // The step is too small to change the f32 weights, so the loss is that of the initial weights.
    let still = LmOptions { steps: 1, rate: 1e-12, initial: Some(first.output.clone()), ..workspace.lm("still") };
    let continued = train_lm(&still, &Device::flex(), &mut |_| {}).unwrap();
    // The sums of a product are in another order, after the weights were read back from an f32
    // file.
    assert!((continued - trained).abs() < 1e-5, "{continued} against {trained}");
    let further = LmOptions { steps: 30, initial: Some(first.output), ..workspace.lm("further") };
    let further = train_lm(&further, &Device::flex(), &mut |_| {}).unwrap();
    assert!((further - trained).abs() > 1e-3, "thirty more steps change the model");
}

#[test]
fn a_run_keeps_some_layers_of_another_model() {
    let _alone = alone();
    let workspace = Workspace::new();
    let mut whole = workspace.lm("whole");
    whole.config.num_hidden_layers = 4;
    train_lm(&whole, &Device::flex(), &mut |_| {}).unwrap();
    let thin =
        LmOptions { steps: 1, rate: 1e-12, initial: Some(whole.output.clone()), keep_layers: Some(3), ..workspace.lm("thin") };
    train_lm(&thin, &Device::flex(), &mut |_| {}).unwrap();
    let device = Device::flex();
    let model = |path: &Path| Checkpoint::from_directory(path).unwrap().model(&device).unwrap();
    let (of, kept) = (model(&whole.output), model(&thin.output));
    assert_eq!((kept.layers.len(), kept.config.num_hidden_layers), (3, 3));
    for (layer, from) in kept.layers.iter().zip([0, 2, 3]) {
        let query = |layer: &sk_models::model::Layer| layer.self_attn.q_proj.weight.val().into_data();
        assert_eq!(query(layer), query(&of.layers[from]));
    }
    let more = LmOptions { keep_layers: Some(5), output: workspace.root.path().join("more"), ..thin };
    let message = train_lm(&more, &Device::flex(), &mut |_| {}).unwrap_err().to_string();
    assert!(message.contains("`layers` is 5 and the model to continue from has 4"), "{message}");
}

#[test]
fn heads_tell_the_sides_apart_and_repeat_to_the_byte() {
    let _alone = alone();
    let workspace = Workspace::new();
    let device = Device::flex();
    train_lm(&workspace.lm("model"), &device, &mut |_| {}).unwrap();
    let checkpoint = Checkpoint::from_directory(&workspace.root.path().join("model")).unwrap();
    for kind in [HeadKind::Discriminator, HeadKind::Reward] {
        let output = format!("{kind:?}");
        let (mut last_loss, mut done) = (f64::INFINITY, (0, 0));
        let report = train_head(&workspace.head(kind, "model", &output), &device, &mut |event| match event {
            HeadEvent::Started { width, pairs, left_out, held_out } => {
                assert_eq!((width, pairs + held_out, left_out), (16, 64, 0));
            }
            HeadEvent::Features { done: now, total } => done = (now, total),
            HeadEvent::Fitting { loss, .. } => {
                assert!(loss <= last_loss, "{loss} after {last_loss}");
                last_loss = loss;
            }
            _ => {}
        })
        .unwrap();
        assert_eq!(done, (128, 128));
        // A state of sixteen numbers, after eight steps of training, says little. A head that knows
        // nothing has a loss of ln 2 and an accuracy of one half.
        assert!(report.accuracy[3].accuracy > 0.65, "{report}");
        assert!(report.loss < 0.6 && report.training_loss < 0.6, "{report}");
        assert_eq!(report.calibration.is_some(), kind == HeadKind::Discriminator);
        let head = checkpoint.head(&workspace.root.path().join(&output)).unwrap();
        assert_eq!((head.kind, head.attribute.as_str(), head.width()), (kind, "kind", 16));

        let again = format!("{kind:?}-again");
        assert_eq!(train_head(&workspace.head(kind, "model", &again), &device, &mut |_| {}).unwrap(), report);
        assert_eq!(workspace.bytes(&format!("{output}/head.safetensors")), workspace.bytes(&format!("{again}/head.safetensors")));
    }
}

#[test]
fn a_head_trains_on_as_many_pairs_as_it_may() {
    let _alone = alone();
    let workspace = Workspace::new();
    let device = Device::flex();
    train_lm(&workspace.lm("model"), &device, &mut |_| {}).unwrap();
    let pairs = |edit: &dyn Fn(&mut HeadOptions)| {
        let folder = tempfile::tempdir().unwrap();
        let mut options = HeadOptions { output: folder.path().join("head"), ..workspace.head(HeadKind::Reward, "model", "head") };
        edit(&mut options);
        let mut used = 0;
        let outcome = train_head(&options, &device, &mut |event| {
            if let HeadEvent::Started { pairs, .. } = event {
                used = pairs;
            }
        });
        outcome.map(|_| used).map_err(|error| error.to_string())
    };
    assert_eq!(pairs(&|options| options.pairs = Some(7)), Ok(7));
    // A pair takes two rows of 16 floats.
    assert_eq!(pairs(&|options| options.memory = 5 * 128 + 127), Ok(5));
    let refused = pairs(&|options| options.memory = 127).unwrap_err();
    assert!(refused.contains("memory") && refused.contains("127 bytes"), "{refused}");
    let exclude = workspace.pairs.clone();
    let refused = pairs(&|options| options.exclude = vec![exclude.clone()]).unwrap_err();
    assert!(refused.contains("no pairs to train on"), "{refused}");
    for edit in [(|o| o.l2 = f64::NAN) as fn(&mut HeadOptions), |o| o.held_out = 1.0, |o| o.pairs = Some(0), |o| o.batch = 0] {
        assert!(pairs(&edit).is_err());
    }
}
