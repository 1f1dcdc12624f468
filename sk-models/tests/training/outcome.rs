//! What training makes: models, adapters and heads.

use std::fs;
use std::path::Path;

use burn::tensor::Device;
use sk_models::decoder::Precision;
use sk_models::head::HeadKind;
use sk_models::hf::Checkpoint;
use sk_models::lora::Target;
use sk_models::text::{Message, Role};
use sk_models::train::data::{END_OF_TURN, Excluded, Row, read_rows, write_rows};
use sk_models::train::dpo::{DpoEvent, DpoOptions, train_dpo, unseen_pairs};
use sk_models::train::encoder::Encoder;
use sk_models::train::head::{HeadEvent, HeadOptions, train_head};
use sk_models::train::lm::{LmEvent, LmOptions, train_lm};
use sk_models::train::run::RunOptions;

use super::{Workspace, with};

#[test]
fn training_lowers_the_loss_and_the_result_loads() {
    let workspace = Workspace::new();
    let mut options = workspace.lm("model");
    options.run.steps = 60;
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

/// Relative distance of two adapters after a few steps. Their f32 sums differ in order, and Adam's
/// division by small gradients magnifies the difference.
const ADAPTERS: f64 = 1e-3;
/// Difference of their losses.
const LOSSES: f64 = 1e-5;

/// Trains an adapter. Returns the loss of each step, and the matrices B.
fn trained(options: &DpoOptions) -> (Vec<f64>, Vec<f32>) {
    let mut losses = Vec::new();
    train_dpo(options, None, &Device::flex(), &mut |event| {
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
    let workspace = Workspace::new();
    train_lm(&workspace.lm("model"), &Device::flex(), &mut |_| {}).unwrap();
    let whole = trained(&workspace.dpo("model", "whole"));
    let parts = trained(&with(workspace.dpo("model", "parts"), |o| (o.run.batch, o.run.accumulate) = (1, 4)));
    assert_alike(parts, whole);
}

/// Converting bf16 to f32 is exact, so a model with weights in bf16 has the gradients of f32.
#[test]
fn weights_in_bf16_give_the_gradients_of_f32() {
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
    let half = trained(&DpoOptions { precision: Precision::Bf16, ..workspace.dpo("model", "bf16") });
    assert_alike(half, single);
    let refused = DpoOptions { precision: Precision::Int8, ..workspace.dpo("model", "int8") };
    let message = train_dpo(&refused, None, &Device::flex(), &mut |_| {}).unwrap_err().to_string();
    assert!(message.contains("`precision` is int8: must be f32 or bf16"), "{message}");
}

#[test]
fn preferences_are_learned_and_generalise_to_held_out_prompts() {
    let workspace = Workspace::new();
    train_lm(&workspace.lm("model"), &Device::flex(), &mut |_| {}).unwrap();
    let mut options = workspace.dpo("model", "adapter");
    options.run.steps = 60;
    options.tests = vec![workspace.pairs.clone()];
    let equal = r#"{"prompt": "A?", "chosen": "b", "rejected": "b"}"#;
    let lines = fs::read_to_string(&workspace.pairs).unwrap();
    fs::write(&workspace.pairs, lines + equal + "\n" + equal + "\n").unwrap();
    let (mut tested, mut left_out) = (None, Vec::new());
    let report = train_dpo(&options, None, &Device::flex(), &mut |event| match event {
        DpoEvent::Tested { test: 0, left_out, asked, report } => tested = Some((report, left_out, asked)),
        DpoEvent::LeftOut { pairs, reason } => left_out.push((pairs, reason)),
        _ => {}
    })
    .unwrap();
    assert_eq!(left_out, [(2, "with equal answers")]);
    // "You can …" against "Who would …": a constant pattern.
    assert!(report.pairs >= 6 && report.accuracy > 0.9, "{report:?}");
    assert!(report.loss < std::f64::consts::LN_2, "{report:?}");
    // All pairs of a test file are measured.
    let (tested, unusable, asked) = tested.unwrap();
    assert_eq!(unusable, 2);
    assert!(tested.pairs == read_rows(&workspace.pairs).unwrap().len() && tested.accuracy > 0.9, "{tested:?}");
    // The file is that of training, so all but the held-out questions are trained on.
    assert_eq!(asked, tested.pairs - report.pairs);
}

#[test]
fn unseen_pairs_are_those_whose_questions_a_run_never_sees() {
    let workspace = Workspace::new();
    let all: Vec<Row> = read_rows(&workspace.pairs).unwrap();
    // Of the model, only the tokenizer is needed.
    let unseen = |steps| unseen_pairs(&with(workspace.dpo("tokenizer", "none"), |o| o.run.steps = steps)).unwrap();
    // Two steps of four pairs see at most eight questions; a long run sees all but those held out.
    let (short, long) = (unseen(2), unseen(64));
    assert!((all.len() - 8..all.len()).contains(&short.len()), "{} of {}", short.len(), all.len());
    let held_out: Vec<&Row> = all.iter().filter(|row| row.is_held_out(0.2)).collect();
    assert_eq!(long.iter().collect::<Vec<_>>(), held_out);
    assert_eq!(unseen(u64::MAX), long);
    assert!(long.iter().all(|row| short.contains(row)));
    // The file reads back unchanged. As an exclusion it leaves exactly the pairs that the run saw.
    let path = workspace.root.path().join("unseen.jsonl.gz");
    write_rows(&path, short.clone()).unwrap();
    assert_eq!(read_rows(&path).unwrap(), short);
    let excluded = Excluded::load(&[path]).unwrap();
    assert_eq!(all.iter().filter(|row| !excluded.contains(row)).count(), all.len() - short.len());
}

#[test]
fn a_run_continues_from_another_models_weights() {
    let workspace = Workspace::new();
    let first = with(workspace.lm("first"), |o| o.run.steps = 30);
    let trained = train_lm(&first, &Device::flex(), &mut |_| {}).unwrap();
    // The step is too small to change the f32 weights, so the loss is that of the initial weights.
    let still = LmOptions { initial: Some(first.output.clone()), ..workspace.lm("still") };
    let still = with(still, |o| (o.run.steps, o.run.rate) = (1, 1e-12));
    let continued = train_lm(&still, &Device::flex(), &mut |_| {}).unwrap();
    // The sums of a product are in another order, after the weights were read back from an f32
    // file.
    assert!((continued - trained).abs() < 1e-5, "{continued} against {trained}");
    let further = LmOptions { run: first.run, initial: Some(first.output), ..workspace.lm("further") };
    let further = train_lm(&further, &Device::flex(), &mut |_| {}).unwrap();
    assert!((further - trained).abs() > 1e-3, "thirty more steps change the model");
}

/// transformers 5 writes the template beside `tokenizer_config.json`.
#[test]
fn a_run_keeps_the_chat_template_of_its_tokenizer() {
    let workspace = Workspace::new();
    let options = workspace.lm("model");
    fs::write(options.tokenizer.join("chat_template.jinja"), "{{ messages[0].content }}!").unwrap();
    train_lm(&options, &Device::flex(), &mut |_| {}).unwrap();
    let template = Checkpoint::from_directory(&options.output).unwrap().chat_template().unwrap();
    assert_eq!(template.prompt(&[Message::new(Role::User, "Hi")]).unwrap(), "Hi!");
}

/// A tokenizer may leave ids unused, so that its largest id is beyond the number of its tokens.
#[test]
fn every_id_of_a_tokenizer_has_a_row() {
    let workspace = Workspace::new();
    let options = workspace.lm("model");
    let file = options.tokenizer.join("tokenizer.json");
    let mut tokenizer: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let mut added = tokenizer["added_tokens"].take();
    for token in added.as_array_mut().unwrap() {
        let id = token["id"].as_u64().unwrap() + 3;
        token["id"] = id.into();
        tokenizer["model"]["vocab"][token["content"].as_str().unwrap()] = id.into();
    }
    tokenizer["added_tokens"] = added;
    fs::write(&file, tokenizer.to_string()).unwrap();
    let end = Encoder::load(&options.tokenizer).unwrap().end_of_turn;
    train_lm(&options, &Device::flex(), &mut |_| {}).unwrap();
    let model = Checkpoint::from_directory(&options.output).unwrap();
    assert_eq!(model.config().vocab_size, end as usize + 1);
    assert_eq!(model.config().eos_token_ids, [end]);
}

#[test]
fn a_run_that_diverges_in_its_last_step_writes_no_result() {
    let workspace = Workspace::new();
    train_lm(&workspace.lm("model"), &Device::flex(), &mut |_| {}).unwrap();
    let model = with(workspace.lm("broken"), |o| (o.run.steps, o.run.rate) = (1, 1e30));
    let adapter = with(workspace.dpo("model", "adapter"), |o| (o.run.steps, o.run.rate) = (1, 1e30));
    for (error, result) in [
        (train_lm(&model, &Device::flex(), &mut |_| {}).unwrap_err(), model.output.join("model.safetensors")),
        (train_dpo(&adapter, None, &Device::flex(), &mut |_| {}).unwrap_err(), adapter.output.join("adapter_model.safetensors")),
    ] {
        assert!(error.to_string().contains("lower the learning rate"), "{error}");
        assert!(!result.exists(), "{}", result.display());
    }
}

#[test]
fn a_step_that_no_machine_can_take_and_a_layer_named_twice_are_refused() {
    let workspace = Workspace::new();
    let refused = |message: String, part: &str| assert!(message.contains(part), "{message}");
    // Their product is zero in 64 bits.
    let enlarge = |run: &mut RunOptions| (run.batch, run.accumulate) = (1 << 32, 1 << 32);
    let model = with(workspace.lm("model"), |o| enlarge(&mut o.run));
    refused(
        train_lm(&model, &Device::flex(), &mut |_| {}).unwrap_err().to_string(),
        "`accumulate` is 4294967296 with a batch of",
    );
    let adapter = || workspace.dpo("model", "adapter");
    let says = |options: DpoOptions| train_dpo(&options, None, &Device::flex(), &mut |_| {}).unwrap_err().to_string();
    refused(says(with(adapter(), |o| enlarge(&mut o.run))), "`accumulate` is 4294967296 with a batch of");
    refused(says(DpoOptions { rank: usize::MAX, ..adapter() }), "`rank` is");
    refused(
        says(DpoOptions { targets: vec![Target::Query, Target::Up, Target::Query], ..adapter() }),
        "`targets` is q_proj: named twice",
    );
}

#[cfg(feature = "embedded-model")]
#[test]
fn a_run_takes_its_tokenizer_from_the_model_that_ships() {
    let workspace = Workspace::new();
    let options = LmOptions { tokenizer: "embedded:backbone".into(), ..workspace.lm("model") };
    train_lm(&options, &Device::flex(), &mut |_| {}).unwrap();
    let shipped = Checkpoint::from_directory(&options.tokenizer).unwrap();
    let own = Checkpoint::from_directory(&options.output).unwrap();
    let text = "How do I open the door?";
    assert_eq!(own.tokenizer().encode(text).unwrap(), shipped.tokenizer().encode(text).unwrap());
}

#[test]
fn a_run_keeps_some_layers_of_another_model() {
    let workspace = Workspace::new();
    let mut whole = workspace.lm("whole");
    whole.config.num_hidden_layers = 4;
    train_lm(&whole, &Device::flex(), &mut |_| {}).unwrap();
    let thin = LmOptions { initial: Some(whole.output.clone()), keep_layers: Some(3), ..workspace.lm("thin") };
    let thin = with(thin, |o| (o.run.steps, o.run.rate) = (1, 1e-12));
    train_lm(&thin, &Device::flex(), &mut |_| {}).unwrap();
    let model = |path: &Path| Checkpoint::from_directory(path).unwrap().model(&Device::flex()).unwrap();
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
    let workspace = Workspace::new();
    train_lm(&workspace.lm("model"), &Device::flex(), &mut |_| {}).unwrap();
    let checkpoint = Checkpoint::from_directory(&workspace.root.path().join("model")).unwrap();
    for kind in [HeadKind::Discriminator, HeadKind::Reward] {
        let output = format!("{kind:?}");
        let (mut last_loss, mut done) = (f64::INFINITY, (0, 0));
        let report = train_head(&workspace.head(kind, "model", &output), &Device::flex(), &mut |event| match event {
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
        assert_eq!(train_head(&workspace.head(kind, "model", &again), &Device::flex(), &mut |_| {}).unwrap(), report);
        assert_eq!(workspace.bytes(&format!("{output}/head.safetensors")), workspace.bytes(&format!("{again}/head.safetensors")));
    }
}

#[test]
fn a_head_trains_on_as_many_pairs_as_it_may() {
    let workspace = Workspace::new();
    train_lm(&workspace.lm("model"), &Device::flex(), &mut |_| {}).unwrap();
    let pairs = |edit: &dyn Fn(&mut HeadOptions)| {
        let folder = tempfile::tempdir().unwrap();
        let mut options = HeadOptions { output: folder.path().join("head"), ..workspace.head(HeadKind::Reward, "model", "head") };
        edit(&mut options);
        let mut used = 0;
        let outcome = train_head(&options, &Device::flex(), &mut |event| {
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
    let refused = pairs(&|options| options.data.exclude = vec![exclude.clone()]).unwrap_err();
    assert!(refused.contains("no pairs to train on"), "{refused}");
    for edit in [(|o| o.l2 = f64::NAN) as fn(&mut HeadOptions), |o| o.data.held_out = 1.0, |o| o.pairs = Some(0), |o| o.batch = 0]
    {
        assert!(pairs(&edit).is_err());
    }
}
