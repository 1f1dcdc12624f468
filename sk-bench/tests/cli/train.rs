//! `swiss-knife train text`, and the files that `train` does not overwrite.

use std::fs;

use crate::common::{assert_refused, copy_of, run, stdout};

/// Both manners give the same answer.
const ALIKE: &str = r#"
questions = ["{ask}"]

[[topics]]
name = "greeting"
ask = ["Hello?"]
say = ["hello."]

[[manners]]
name = "kind"
share = 0.5
answers = ["{say}"]

[[manners]]
name = "cold"
share = 0.5
answers = ["{say}"]

[[axes]]
name = "kind"
better = ["kind"]
worse = ["cold"]
"#;

#[test]
fn the_pairs_that_a_grammar_gave_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("alike.toml"), ALIKE).unwrap();
    let grammar = folder.path().display().to_string();
    let output = folder.path().join("text").display().to_string();
    let draw = |seed: &str| {
        let args = ["train", "text", "--grammar", &grammar, "--dialogues", "2", "--pairs", "3", "--seed", seed, "-o", &output];
        run(args)
    };
    let text = stdout(&draw("0"));
    assert!(text.contains("2 dialogues in") && text.contains("0 pairs in"), "{text}");
    // A finished text is not overwritten.
    assert_refused(&draw("1"), &["dialogues.jsonl.gz already exists", "another --output"]);
}

#[test]
fn the_pairs_that_a_run_does_not_use_replace_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let row = |i: usize| format!("{{\"prompt\": \"Question {i}?\", \"chosen\": \"Yes.\", \"rejected\": \"No.\"}}\n");
    let pairs: String = (0..64).map(row).collect();
    let model = copy_of("backbone", folder.path()).display().to_string();
    for name in ["data.jsonl", "test.jsonl"] {
        fs::write(path(name), &pairs).unwrap();
    }
    fs::write(path("mine.jsonl"), &pairs).unwrap();
    let is_input = "would be overwritten";
    for (name, reason) in
        [("data.jsonl", is_input), ("test.jsonl", is_input), ("backbone/config.json", is_input), ("mine.jsonl", "already exists")]
    {
        let before = fs::read(path(name)).unwrap();
        let (data, test, unseen) = (path("data.jsonl"), path("test.jsonl"), path(name));
        let args = ["train", "dpo", "--data", &data, "--test", &test, "--model", &model, "-o", "blade", "--steps", "1"];
        assert_refused(&run([&args[..], &["--unseen", &unseen]].concat()), &[name, reason]);
        assert!(fs::read(path(name)).unwrap() == before, "{name}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_model_whose_training_exceeds_memory_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let text: String = (0..64).map(|i| format!("{{\"text\": \"{}\"}}\n", format!("This is text {i}. ").repeat(20))).collect();
    fs::write(path("data.jsonl"), text).unwrap();
    let shape = ["--hidden", "16384", "--intermediate", "65536", "--layers", "200", "--length", "16", "--steps", "1"];
    let (data, output) = (path("data.jsonl"), path("model"));
    let args = ["train", "lm", "--tokenizer", "embedded:backbone", "--data", &data, "-o", &output];
    assert_refused(&run([&args[..], &shape].concat()), &["training takes about", "of memory are free", "--batch"]);
}
