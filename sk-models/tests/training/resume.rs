//! Runs that are interrupted, resumed or refused.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::Device;
use sk_models::decoder::Precision;
use sk_models::head::HeadKind;
use sk_models::train::TrainError;
use sk_models::train::dpo::{DpoEvent, DpoOptions, train_dpo};
use sk_models::train::head::{HeadEvent, train_head};
use sk_models::train::lm::{LmEvent, LmOptions, train_lm};
use sk_models::train::optimizer::Rule;
use sk_models::train::tokenizer::{TokenizerOptions, train_tokenizer};

use super::{Workspace, data, with};

/// Stops a run after its first checkpoint by a panic, as a power failure would.
fn interrupted(run: impl FnOnce(&mut dyn FnMut(bool))) {
    let outcome = catch_unwind(AssertUnwindSafe(|| run(&mut |saved| assert!(!saved, "interrupted here"))));
    assert!(outcome.is_err(), "the run was not interrupted");
}

fn interrupted_lm(options: &LmOptions) {
    interrupted(|stop| {
        let _ = train_lm(options, &Device::flex(), &mut |event| stop(matches!(event, LmEvent::Saved { .. })));
    });
}

fn interrupted_dpo(options: &DpoOptions) {
    interrupted(|stop| {
        let _ = train_dpo(options, None, &Device::flex(), &mut |event| stop(matches!(event, DpoEvent::Saved { .. })));
    });
}

#[test]
fn an_interrupted_language_model_run_resumes_to_the_same_bytes() {
    let workspace = Workspace::new();
    for rule in [Rule::Muon, Rule::Adamw] {
        let options = |output: &str| LmOptions { optimizer: rule, ..workspace.lm(output) };
        let whole = format!("whole-{rule:?}");
        let parts = format!("parts-{rule:?}");
        train_lm(&options(&whole), &Device::flex(), &mut |_| {}).unwrap();
        interrupted_lm(&options(&parts));
        let mut resumed = 0;
        train_lm(&options(&parts), &Device::flex(), &mut |event| {
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

#[test]
fn an_interrupted_preference_run_resumes_to_the_same_bytes() {
    let workspace = Workspace::new();
    train_lm(&workspace.lm("model"), &Device::flex(), &mut |_| {}).unwrap();
    let whole = train_dpo(&workspace.dpo("model", "whole"), None, &Device::flex(), &mut |_| {}).unwrap();
    interrupted_dpo(&workspace.dpo("model", "parts"));
    let parts = train_dpo(&workspace.dpo("model", "parts"), None, &Device::flex(), &mut |_| {}).unwrap();
    assert_eq!(whole, parts);
    let file = "adapter_model.safetensors";
    assert_eq!(workspace.bytes(&format!("whole/{file}")), workspace.bytes(&format!("parts/{file}")));
}

#[test]
fn a_head_that_was_not_measured_is_trained_again() {
    let workspace = Workspace::new();
    train_lm(&workspace.lm("model"), &Device::flex(), &mut |_| {}).unwrap();
    let options = workspace.head(HeadKind::Reward, "model", "head");
    // The last hidden states are those of held-out pairs.
    interrupted(|stop| {
        let _ = train_head(&options, &Device::flex(), &mut |event| {
            stop(matches!(event, HeadEvent::Features { done, total } if done == total));
        });
    });
    train_head(&options, &Device::flex(), &mut |_| {}).unwrap();
}

/// A change of an option, and a part of the error when the checkpoint is refused.
type Change<O> = (fn(&mut O), &'static str);

#[test]
fn a_language_model_run_does_not_resume_another() {
    let workspace = Workspace::new();
    interrupted_lm(&workspace.lm("run"));
    let changes: [Change<LmOptions>; 12] = [
        (|o| o.run.batch = 4, "--batch 2, not 4"),
        (|o| o.run.accumulate = 1, "--accumulate 2, not 1"),
        (|o| o.run.length = 32, "--length 24, not 32"),
        (|o| o.run.rate = 2e-2, "--rate 0.01, not 0.02"),
        (|o| o.run.floor = 0.2, "--floor 0.1, not 0.2"),
        (|o| o.optimizer = Rule::Adamw, "--optimizer muon, not adamw"),
        (|o| o.run.clip = 0.0, "--clip 1, not 0"),
        (|o| o.run.seed = 8, "--seed 7, not 8"),
        (|o| o.data.held_out = 0.3, "--held-out 0.2, not 0.3"),
        (|o| o.config.hidden_size = 24, "--hidden 16, not 24"),
        (|o| o.data.sources[0].weight = 2.0, "another --data"),
        (|o| o.data.exclude = vec![o.data.sources[0].path.with_file_name("other.jsonl")], "another --exclude"),
    ];
    fs::write(workspace.root.path().join("other.jsonl"), "{\"prompt\": \"nothing of the kind\"}\n").unwrap();
    for (change, part) in changes {
        let mut options = workspace.lm("run");
        change(&mut options);
        let message = train_lm(&options, &Device::flex(), &mut |_| {}).unwrap_err().to_string();
        assert!(message.contains("checkpoint.safetensors") && message.contains(part), "{part}: {message}");
    }
    let mut text = fs::read_to_string(&workspace.texts).unwrap();
    text.push_str("{\"text\": \"one more\"}\n");
    fs::write(&workspace.texts, text).unwrap();
    let message = train_lm(&workspace.lm("run"), &Device::flex(), &mut |_| {}).unwrap_err().to_string();
    assert!(message.contains("another --data"), "{message}");
}

#[test]
fn a_preference_run_does_not_resume_another() {
    let workspace = Workspace::new();
    train_lm(&workspace.lm("model"), &Device::flex(), &mut |_| {}).unwrap();
    train_lm(&with(workspace.lm("other"), |o| o.run.seed = 8), &Device::flex(), &mut |_| {}).unwrap();
    interrupted_dpo(&workspace.dpo("model", "run"));
    let changes: [Change<DpoOptions>; 8] = [
        (|o| (o.run.batch, o.run.accumulate) = (2, 2), "--batch 4, not 2"),
        (|o| o.precision = Precision::Bf16, "--precision f32, not bf16"),
        (|o| o.run.accumulate = 2, "--accumulate 1, not 2"),
        (|o| o.run.rate = 2e-2, "--rate 0.01, not 0.02"),
        (|o| o.loss.beta = 1.0, "--beta 0.5, not 1"),
        (|o| o.loss.label_smoothing = 0.1, "--label-smoothing 0, not 0.1"),
        (|o| o.alpha = 8.0, "--alpha 4, not 8"),
        (|o| o.model = o.model.with_file_name("other"), "another --model"),
    ];
    for (change, part) in changes {
        let mut options = workspace.dpo("model", "run");
        change(&mut options);
        let message = train_dpo(&options, None, &Device::flex(), &mut |_| {}).unwrap_err().to_string();
        assert!(message.contains(part), "{part}: {message}");
    }
    // The same number of pairs, with other contents.
    let pairs = fs::read_to_string(&workspace.pairs).unwrap();
    fs::write(&workspace.pairs, pairs.replace("both hands", "two hands")).unwrap();
    let message = train_dpo(&workspace.dpo("model", "run"), None, &Device::flex(), &mut |_| {}).unwrap_err().to_string();
    assert!(message.contains("another --data"), "{message}");
    fs::write(&workspace.pairs, pairs).unwrap();
    // A number of steps without end is planned at once.
    let endless = with(workspace.dpo("model", "run"), |o| (o.run.steps, o.run.seed) = (u64::MAX, 4));
    let mut planned = false;
    let mut see = |event| planned |= matches!(event, DpoEvent::Planned { .. });
    let message = train_dpo(&endless, None, &Device::flex(), &mut see).unwrap_err();
    assert!(planned && message.to_string().contains("--seed 3, not 4"), "{message}");
    // A larger number of steps continues the same run.
    train_dpo(&with(workspace.dpo("model", "run"), |o| o.run.steps = 9), None, &Device::flex(), &mut |_| {}).unwrap();
}

#[test]
fn pairs_that_change_while_they_are_read_are_not_trained_on() {
    let workspace = Workspace::new();
    train_lm(&workspace.lm("model"), &Device::flex(), &mut |_| {}).unwrap();
    let options = workspace.dpo("model", "run");
    let planned = options.whole_recipe().unwrap();
    let pairs = fs::read_to_string(&workspace.pairs).unwrap();
    let while_read = train_dpo(&options, None, &Device::flex(), &mut |event| {
        // The pairs have been read.
        if let DpoEvent::Planned { .. } = event {
            fs::write(&workspace.pairs, pairs.replace("both hands", "two hands")).unwrap();
        }
    })
    .unwrap_err();
    let since_planned = train_dpo(&options, Some(&planned), &Device::flex(), &mut |_| {}).unwrap_err();
    let says = format!("{} changed during the run; run again", workspace.pairs.display());
    for error in [while_read, since_planned] {
        assert!(matches!(error, TrainError::Changed { .. }) && error.to_string() == says, "{error}");
    }
    fs::write(&workspace.pairs, &pairs).unwrap();
    train_dpo(&options, Some(&planned), &Device::flex(), &mut |_| {}).unwrap();
}

#[test]
fn a_damaged_checkpoint_is_refused_wherever_it_is_damaged() {
    let workspace = Workspace::new();
    let options = workspace.lm("model");
    interrupted_lm(&options);
    let path = workspace.root.path().join("model/checkpoint.safetensors");
    let whole = fs::read(&path).unwrap();
    // Damage in the header, in the progress record, in the first tensor and in the last tensor.
    for place in [4, 40, whole.len() / 2, whole.len() - 1] {
        let mut damaged = whole.clone();
        damaged[place] ^= 1;
        fs::write(&path, damaged).unwrap();
        let error = train_lm(&options, &Device::flex(), &mut |_| {}).unwrap_err();
        assert!(matches!(error, TrainError::Checkpoint { .. }), "byte {place}: {error}");
    }
    fs::write(&path, &whole).unwrap();
    train_lm(&options, &Device::flex(), &mut |_| {}).unwrap();
}

#[test]
fn a_checkpoint_of_more_steps_than_requested_is_refused() {
    let workspace = Workspace::new();
    train_lm(&workspace.lm("model"), &Device::flex(), &mut |_| {}).unwrap();
    interrupted_lm(&workspace.lm("run"));
    interrupted_dpo(&workspace.dpo("model", "blade"));
    let lm = train_lm(&with(workspace.lm("run"), |o| o.run.steps = 2), &Device::flex(), &mut |_| {}).unwrap_err();
    let dpo =
        train_dpo(&with(workspace.dpo("model", "blade"), |o| o.run.steps = 2), None, &Device::flex(), &mut |_| {}).unwrap_err();
    for error in [lm, dpo] {
        let message = error.to_string();
        assert!(
            matches!(error, TrainError::Checkpoint { .. }) && message.contains("step 3") && message.contains("--steps 2"),
            "{message}"
        );
    }
}

#[cfg(unix)]
#[test]
fn two_runs_do_not_share_a_folder() {
    let workspace = Workspace::new();
    let options = workspace.lm("model");
    let mut busy = None;
    train_lm(&options, &Device::flex(), &mut |event| {
        if let LmEvent::Started { .. } = event {
            busy = Some(train_lm(&options, &Device::flex(), &mut |_| {}).unwrap_err());
        }
    })
    .unwrap();
    assert!(matches!(busy, Some(TrainError::Busy { .. })), "{busy:?}");
    // A failed run removes the folder that it created.
    let mut wrong = workspace.lm("other");
    wrong.tokenizer = workspace.root.path().join("nowhere");
    train_lm(&wrong, &Device::flex(), &mut |_| {}).unwrap_err();
    assert!(!workspace.root.path().join("other").exists());
    // It keeps a folder that existed before.
    fs::create_dir(workspace.root.path().join("other")).unwrap();
    train_lm(&wrong, &Device::flex(), &mut |_| {}).unwrap_err();
    assert!(workspace.root.path().join("other").exists());
}

/// Not even root can create a file in `/proc`.
#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_cannot_be_written_to_is_refused_before_the_first_step() {
    let workspace = Workspace::new();
    let mut options = workspace.lm("model");
    options.output = "/proc".into();
    let refused = train_lm(&options, &Device::flex(), &mut |event| panic!("{event:?}")).unwrap_err();
    assert!(matches!(refused, TrainError::Io { .. }) && refused.to_string().contains("/proc"), "{refused}");
}

/// The other tokenizer in the folder may be a result of `train tokenizer`.
#[test]
fn a_language_model_does_not_overwrite_another_tokenizer() {
    let workspace = Workspace::new();
    let output = workspace.root.path().join("model");
    train_tokenizer(&TokenizerOptions { data: data(&workspace.texts), vocab_size: 300, output, max_length: 64 }).unwrap();
    let trained = workspace.bytes("model/tokenizer.json");
    let error = train_lm(&workspace.lm("model"), &Device::flex(), &mut |_| {}).unwrap_err();
    assert!(matches!(error, TrainError::Finished { .. }) && error.to_string().contains("model/tokenizer.json"), "{error}");
    assert_eq!(workspace.bytes("model/tokenizer.json"), trained);
    // It may be the tokenizer of the run.
    let own = with(workspace.lm("model"), |o| o.tokenizer = o.output.clone());
    train_lm(&own, &Device::flex(), &mut |_| {}).unwrap();
    assert_eq!(workspace.bytes("model/tokenizer.json"), trained);
    // A run with a checkpoint is resumed.
    interrupted_lm(&workspace.lm("resumed"));
    fs::write(workspace.root.path().join("resumed/tokenizer.json"), trained).unwrap();
    train_lm(&workspace.lm("resumed"), &Device::flex(), &mut |_| {}).unwrap();
    assert_eq!(workspace.bytes("resumed/tokenizer.json"), workspace.bytes("tokenizer/tokenizer.json"));
}

#[test]
fn finished_results_are_not_overwritten() {
    let workspace = Workspace::new();
    train_lm(&workspace.lm("model"), &Device::flex(), &mut |_| {}).unwrap();
    train_dpo(&workspace.dpo("model", "blade"), None, &Device::flex(), &mut |_| {}).unwrap();
    let files = ["model/model.safetensors", "blade/adapter_model.safetensors"];
    let before = files.map(|file| workspace.bytes(file));
    let lm = train_lm(&with(workspace.lm("model"), |o| o.run.seed = 8), &Device::flex(), &mut |_| {}).unwrap_err();
    let dpo =
        train_dpo(&with(workspace.dpo("model", "blade"), |o| o.run.seed = 8), None, &Device::flex(), &mut |_| {}).unwrap_err();
    for (error, file) in [lm, dpo].into_iter().zip(files) {
        assert!(matches!(error, TrainError::Finished { .. }) && error.to_string().contains(file), "{error}");
    }
    assert_eq!(files.map(|file| workspace.bytes(file)), before);
    let head = workspace.head(HeadKind::Reward, "model", "head");
    train_head(&head, &Device::flex(), &mut |_| {}).unwrap();
    let error = train_head(&head, &Device::flex(), &mut |_| {}).unwrap_err();
    assert!(matches!(error, TrainError::Finished { .. }) && error.to_string().contains("head/head.safetensors"), "{error}");
    // The folder holds a model with another tokenizer.
    let tokenizer = TokenizerOptions {
        data: data(&workspace.texts),
        vocab_size: 300,
        output: workspace.root.path().join("model"),
        max_length: 64,
    };
    let error = train_tokenizer(&tokenizer).unwrap_err();
    assert!(matches!(error, TrainError::Finished { .. }) && error.to_string().contains("model/tokenizer.json"), "{error}");
    // A model in shards is found too.
    let directory = workspace.root.path().join("shards");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("model.safetensors.index.json"), "{}").unwrap();
    let error = train_lm(&workspace.lm("shards"), &Device::flex(), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("model.safetensors.index.json"), "{error}");
}
