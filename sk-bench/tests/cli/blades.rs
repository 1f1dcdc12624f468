//! `swiss-knife blades`, and `train dpo` as `blades` runs it.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::common::{assert_refused, models, program, run, stderr, stdout};

/// Sixty-four pairs; the chosen answer of each contains `word`.
fn pairs(word: &str) -> String {
    let row = |i: usize| {
        let (prompt, worse) = (format!("Question {i}?"), if i.is_multiple_of(2) { "whatever" } else { "so what" });
        serde_json::json!({"prompt": prompt, "chosen": format!("I say {word}."), "rejected": worse}).to_string() + "\n"
    };
    (0..64).map(row).collect()
}

/// Runs `blades` on the tiny model, with few short steps.
fn blades(folder: &Path, preferences: &[&str]) -> Output {
    blades_with(folder, preferences, &[])
}

/// As [`blades`], with more options.
fn blades_with(folder: &Path, preferences: &[&str], options: &[&str]) -> Output {
    let model = models().join("backbone").display().to_string();
    let mut args = vec!["blades", &model, "-o", "blades", "--device", "cpu", "--steps", "3", "--length", "64"];
    args.extend(["--batch", "2", "--accumulate", "2", "--rank", "2"]);
    args.extend(preferences.iter().flat_map(|preference| ["--prefer", preference]));
    args.extend(options);
    program().current_dir(folder).env("HF_HUB_CACHE", folder.join("hub")).args(args).output().unwrap()
}

#[test]
fn a_blade_per_objective_and_a_command_to_run() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("kind.jsonl"), pairs("gladly")).unwrap();
    fs::create_dir(folder.path().join("careful")).unwrap();
    fs::write(folder.path().join("careful/a.jsonl"), pairs("safely")).unwrap();
    fs::write(folder.path().join("careful/README.md"), "no pairs").unwrap();

    let first = blades(folder.path(), &["kind=kind.jsonl"]);
    assert!(stdout(&first).contains("kind") && !stderr(&first).contains("kept"), "{}", stderr(&first));
    assert!(stderr(&first).contains("GB of memory"), "{}", stderr(&first));
    let weights = folder.path().join("blades/kind/adapter_model.safetensors");
    let before = fs::metadata(&weights).unwrap().modified().unwrap();

    // A finished blade is kept, and so are its measurements.
    let both = blades(folder.path(), &["kind=kind.jsonl", "careful=careful"]);
    let text = stdout(&both);
    assert!(
        stderr(&both).contains("blade kind (1 of 2): kept") && stderr(&both).contains("blade careful (2 of 2), from careful")
    );
    assert_eq!(fs::metadata(&weights).unwrap().modified().unwrap(), before);
    let row = |text: &str, name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap().to_owned();
    assert_eq!(
        row(&text, "kind").split_whitespace().collect::<Vec<_>>(),
        row(&stdout(&first), "kind").split_whitespace().collect::<Vec<_>>()
    );
    assert!(row(&text, "careful").contains("[0."), "{text}");

    let command = text.split("Try them:\n").nth(1).unwrap().replace("\\\n", " ");
    assert!(command.contains("--precision bf16"), "{command}");
    let (before, after) = command.split_once('"').unwrap();
    let (prompt, after) = after.split_once('"').unwrap();
    let words = before.split_whitespace().skip(1).chain([prompt]).chain(after.split_whitespace());
    let answers = program().current_dir(folder.path()).args(words).args(["--max-new-tokens", "4"]).output().unwrap();
    let answers = stdout(&answers);
    assert!(answers.contains("kind 1") && answers.contains("careful 1"), "{answers}");

    // A blade of the same name from another source is refused.
    let other = blades(folder.path(), &["kind=careful"]);
    assert_refused(&other, &["kind holds a blade of", "from kind.jsonl", "give another --output"]);
}

#[test]
fn a_finished_blade_of_other_options_or_pairs_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kind.jsonl");
    fs::write(&file, pairs("gladly")).unwrap();
    blades(folder.path(), &["kind=kind.jsonl"]);
    let config = fs::read_to_string(folder.path().join("blades/kind/adapter_config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["base_model_name_or_path"], models().join("backbone").display().to_string());

    let model = models().join("backbone").display().to_string();
    let run_as = |model: &str, preference: &str, option: &str, value: &str| {
        let args = ["blades", model, "-o", "blades", "--device", "cpu", "--length", "64", "--batch", "2", "--accumulate", "2"];
        let options = [("--steps", "3"), ("--rank", "2"), ("--framing", "hh")]
            .map(|(name, usual)| [name, if name == option { value } else { usual }]);
        let args = args.into_iter().chain(options.concat()).chain(["--prefer", preference]);
        program().current_dir(folder.path()).args(args).output().unwrap()
    };
    let again = |option: &str, value: &str| run_as(&model, "kind=kind.jsonl", option, value);
    assert!(stderr(&again("", "")).contains("kept"));
    // Another spelling names the same files.
    assert!(stderr(&run_as(&format!("{model}/."), "kind=./kind.jsonl", "", "")).contains("kept"));
    let says = ["kind holds a blade of", "from kind.jsonl, that was made with --steps 3, not 4", "another --output"];
    assert_refused(&again("--steps", "4"), &says);
    assert_refused(&again("--rank", "3"), &["--rank 2, not 3"]);
    assert_refused(&again("--framing", "chat"), &["was made with --framing hh, not chat"]);
    fs::write(&file, pairs("kindly")).unwrap();
    assert_refused(&again("", ""), &["was made with other pairs"]);
}

#[test]
fn an_adapter_that_could_not_be_written_is_written_by_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("kind.jsonl"), pairs("gladly")).unwrap();
    let path = |name: &str| folder.path().join("blades/kind").join(name);
    // A folder has the name of a file of the adapter.
    fs::create_dir_all(path("adapter_config.json")).unwrap();
    assert!(!blades(folder.path(), &["kind=kind.jsonl"]).status.success());
    assert!(path("held_out.json").exists(), "the record is there before the checkpoint is removed");
    assert!(path("checkpoint.safetensors").exists());
    fs::remove_dir(path("adapter_config.json")).unwrap();
    let output = blades(folder.path(), &["kind=kind.jsonl"]);
    assert!(stdout(&output).contains("kind"));
    assert!(stderr(&output).contains("3 steps, 3 done") && !stderr(&output).contains("kept"), "{}", stderr(&output));
    assert!(path("adapter_config.json").is_file() && !path("checkpoint.safetensors").exists());
    // A record alone is no blade.
    fs::remove_file(path("adapter_model.safetensors")).unwrap();
    let output = blades(folder.path(), &["kind=kind.jsonl"]);
    assert!(!stderr(&output).contains("kept") && path("adapter_model.safetensors").exists(), "{}", stderr(&output));
}

#[test]
fn no_blade_is_trained_if_the_pairs_of_a_later_one_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("kind.jsonl"), pairs("gladly")).unwrap();
    fs::write(folder.path().join("torn.jsonl"), pairs("safely") + "{\"prompt\"").unwrap();
    assert_refused(&blades(folder.path(), &["kind=kind.jsonl", "careful=torn.jsonl"]), &["torn.jsonl:65"]);
    assert!(!folder.path().join("blades").exists());
}

#[test]
fn no_blade_is_trained_if_the_folder_of_a_later_one_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["calm", "kind"] {
        fs::write(folder.path().join(format!("{name}.jsonl")), pairs(name)).unwrap();
    }
    fs::create_dir_all(folder.path().join("blades/kind")).unwrap();
    fs::write(folder.path().join("blades/kind/adapter_model.bin"), "").unwrap();
    let output = blades(folder.path(), &["calm=calm.jsonl", "kind=kind.jsonl"]);
    assert_refused(&output, &["adapter_model.bin already exists"]);
    assert!(!folder.path().join("blades/calm").exists());
}

/// Pairs as lists of messages, for the chat template of the model.
#[test]
fn blades_for_chat() {
    let folder = tempfile::tempdir().unwrap();
    let message = |role: &str, content: &str| serde_json::json!([{"role": role, "content": content}]);
    let row = |i: usize| {
        let prompt = message("user", &format!("Question {i}?"));
        let (chosen, rejected) = (message("assistant", "I say gladly."), message("assistant", "so what"));
        serde_json::json!({"prompt": prompt, "chosen": chosen, "rejected": rejected}).to_string() + "\n"
    };
    fs::write(folder.path().join("pairs.jsonl"), (0..64).map(row).collect::<String>()).unwrap();
    let trained = |name: &str, framing: &[&str]| {
        let text = stdout(&blades_with(folder.path(), &[&format!("{name}=pairs.jsonl")], framing));
        (text, fs::read(folder.path().join("blades").join(name).join("adapter_model.safetensors")).unwrap())
    };
    let (plain, chat) = (trained("plain", &[]), trained("chat", &["--framing", "chat"]));
    assert!(chat.0.contains("--framing chat") && !plain.0.contains("--framing"), "{} {}", chat.0, plain.0);
    assert!(plain.1 != chat.1, "another framing, another adapter");
}

#[test]
fn hh_rlhf_is_known_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let missing = blades(folder.path(), &["helpful=hh-rlhf-helpful"]);
    assert_refused(&missing, &["Anthropic/hh-rlhf is not in", "HF_HUB_OFFLINE"]);
    let repository = folder.path().join("hub/datasets--Anthropic--hh-rlhf");
    let snapshot = repository.join("snapshots/0123/harmless-base");
    fs::create_dir_all(&snapshot).unwrap();
    fs::create_dir_all(repository.join("refs")).unwrap();
    fs::write(repository.join("refs/main"), "0123").unwrap();
    let dialogue = |i: usize| {
        let side = |answer: &str| format!("\n\nHuman: Question {i}?\n\nAssistant: {answer}");
        serde_json::json!({"chosen": side("I say safely."), "rejected": side("whatever")}).to_string() + "\n"
    };
    let dialogues: String = (0..64).map(dialogue).collect();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut packed, dialogues.as_bytes()).unwrap();
    fs::write(snapshot.join("train.jsonl.gz"), packed.finish().unwrap()).unwrap();
    assert!(stdout(&blades(folder.path(), &["careful=hh-rlhf-harmless"])).contains("careful"));
}

#[test]
fn invalid_sources_of_pairs_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("empty")).unwrap();
    let refused = |preference: &str, parts: &[&str]| assert_refused(&blades(folder.path(), &[preference]), parts);
    refused("kind=nowhere.jsonl", &["nowhere.jsonl", "no such file or folder", "hh-rlhf-helpful"]);
    refused("kind=empty", &["empty", "no .jsonl or .jsonl.gz file"]);
    let twice = blades(folder.path(), &["kind=empty", "kind=empty"]);
    assert_refused(&twice, &["\"kind\" twice"]);
    assert!(!folder.path().join("blades").exists());
}

#[test]
fn a_model_to_train_around_may_be_a_hub_id() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("pairs.jsonl"), pairs("gladly")).unwrap();
    let (data, output) = (path("pairs.jsonl"), path("blade"));
    let dpo = |model: &str| run(["train", "dpo", "--data", &data, "--model", model, "-o", &output, "--steps", "1"]);
    assert_refused(&dpo("owner/no-such-model"), &["there is no directory `owner/no-such-model` here", "HF_HUB_OFFLINE"]);
    assert!(!Path::new(&output).exists());
}
