//! Tests of instruction blades on a tiny random model.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::common::{assert_refused, copy_of, edit_json, models, program, run_on_models, run_with_input, stderr, stdout};

/// Rounding of a mean over tokens of differences of log-probabilities in f32.
const ROUNDING: f64 = 1e-5;

const SHORT: [&str; 5] = ["--max-new-tokens", "24", "--span-tokens", "8", "--quiet"];

/// Runs a command on the tiny backbone, without a drafter or adapters.
fn bare(command: &str, args: &[&str]) -> std::process::Output {
    let backbone = models().join("backbone");
    program().arg(command).args(["--device", "cpu", "--backbone"]).arg(backbone).args(args).output().unwrap()
}

fn steps(path: &Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn mu(step: &Value, blade: &str) -> Vec<f64> {
    let blades = step["blades"].as_array().unwrap();
    let blade = blades.iter().find(|found| found["name"] == blade).unwrap();
    blade["mu"].as_array().unwrap().iter().map(|mu| mu.as_f64().unwrap()).collect()
}

#[test]
fn an_instruction_that_is_too_long_is_named() {
    let blade = format!("calm=instruction:{}", "x".repeat(600));
    assert_refused(&bare("generate", &["hi", "--blade", &blade]), &["the longest instruction adds 6", "shorten either"]);
}

#[test]
fn a_model_without_adapters_is_steered_by_an_instruction() {
    let calm = |text: &str, more: &[&str]| {
        let blade = format!("calm=instruction:{text}");
        let args = [&["Hello there", "--blade", &blade, "--temperature", "0", "--alpha", "0"], &SHORT[..], more].concat();
        stdout(&bare("generate", &args))
    };
    let first = calm("Answer calmly.", &[]);
    assert_eq!(first, calm(" Answer calmly.", &[]));
    assert_ne!(first, calm("Shout!", &[]));
    for framing in ["hh", "chat", "none"] {
        assert!(!calm("Answer calmly.", &["--framing", framing, "--system", "You are kind."]).is_empty());
    }
}

#[test]
fn settings_of_a_blade_may_precede_its_instruction() {
    let folder = tempfile::tempdir().unwrap();
    let mus = |name: &str, more: &[&str]| {
        let trace = folder.path().join(name);
        let fixed = ["Hello there", "--blade", "calm=instruction:Be calm.", "-w", "calm=1", "--trace", trace.to_str().unwrap()];
        stdout(&bare("generate", &[&fixed[..], &SHORT, more].concat()));
        mu(&steps(&trace)[0], "calm")
    };
    let scheme = folder.path().join("calm.toml");
    fs::write(&scheme, "[blades.calm]\nbeta = 0.2\n").unwrap();
    // β scales the implicit reward; 0.1 is the default.
    let plain = mus("plain", &[]);
    for more in [["--set", "blades.calm.beta=0.2"], ["--scheme", scheme.to_str().unwrap()]] {
        let doubled = mus("doubled", &more);
        let is_double = |(one, two): (&f64, &f64)| (2.0 * one - two).abs() < ROUNDING;
        assert!(plain.len() == doubled.len() && plain.iter().zip(&doubled).all(is_double), "{plain:?} {doubled:?}");
    }
    assert_refused(&bare("generate", &["hi", "--blade", "*=instruction:Be calm."]), &["\"*\"", "name of its own"]);
}

#[test]
fn instructions_stand_beside_adapters_and_against_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let scheme = folder.path().join("pair.toml");
    let pair = |instruction: &str, against: &str| {
        let text = format!(
            "[blades.calm]\nkind = \"instruction\"\ninstruction = \"{instruction}\"\nagainst = \"{against}\"\n[blades.helpful]\n"
        );
        fs::write(&scheme, text).unwrap();
        let trace = folder.path().join("steps.jsonl");
        let args = ["Hello", "--scheme", scheme.to_str().unwrap(), "--trace", trace.to_str().unwrap()];
        stdout(&run_on_models("generate", &[&args, &SHORT[..]].concat()));
        steps(&trace)[0].clone()
    };
    let (forth, back) = (pair("Be calm.", "Be loud."), pair("Be loud.", "Be calm."));
    for (a, b) in mu(&forth, "calm").iter().zip(mu(&back, "calm")) {
        assert!((a + b).abs() < ROUNDING, "{a} {b}");
    }
    assert_eq!(mu(&forth, "helpful"), mu(&back, "helpful"));
    assert!(mu(&pair("Be calm.", "Be calm."), "calm").iter().all(|mu| *mu == 0.0));
}

#[test]
fn a_question_that_the_template_refuses_is_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let backbone = copy_of("backbone", folder.path());
    let template = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}{{ m.content }}{% endfor %}";
    edit_json(&backbone.join("tokenizer_config.json"), |config| config["chat_template"] = json!(template));
    fs::write(folder.path().join("lines"), "Hello\n/save dialogue.json\n").unwrap();
    let lines = fs::File::open(folder.path().join("lines")).unwrap();
    let args = ["chat", "--backbone", "backbone", "--device", "cpu", "--framing", "chat", "--blade", "calm=instruction:Be calm."];
    let output = program().current_dir(&folder).args(args).args(SHORT).stdin(lines).output().unwrap();
    assert!(stderr(&output).contains("no system") && !output.status.success(), "{}", stderr(&output));
    let saved: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("dialogue.json")).unwrap()).unwrap();
    assert_eq!(saved["messages"], json!([]));
}

#[test]
fn a_chat_seats_swaps_and_drops_them() {
    let input = "/seat calm=instruction:Answer calmly.\n/weights calm=1\nHello\nAnd then?\n/swap calm loud=instruction:Shout!\n\
                 /blades\nAgain?\n/weights loud=1,helpful=1\n/unseat loud\n/new\nHi\n";
    let output = run_with_input("chat", &SHORT, input);
    stdout(&output);
    let said = stderr(&output);
    assert!(said.contains("calm=1.000") && said.contains("loud=1.000"), "{said}");
    assert!(said.contains("instruction") && !said.contains("error"), "{said}");
}

#[test]
fn a_sweep_weighs_several() {
    let folder = tempfile::tempdir().unwrap();
    let plan = format!(
        r#"
[schemes.swiss-knife]

[weights]
kind = "lattice"
density = 2

[prompts]
sources = ["prompts.jsonl"]

[generation]
max_new_tokens = 8

[model]
backbone = {:?}
device = "cpu"
blades = {{ calm = "instruction:Answer calmly.", curt = "instruction:Use few words." }}
"#,
        models().join("backbone").display().to_string()
    );
    fs::write(folder.path().join("plan.toml"), plan).unwrap();
    fs::write(folder.path().join("prompts.jsonl"), "{\"id\": \"a\", \"prompt\": \"Hello\"}\n").unwrap();
    stdout(&program().current_dir(&folder).args(["sweep", "plan.toml"]).output().unwrap());
    let records = steps(&folder.path().join("plan.jsonl"));
    let found: Vec<f64> = records.iter().map(|record| record["weights"]["calm"].as_f64().unwrap()).collect();
    assert_eq!(found.len(), 3, "{found:?}");
    assert!([0.0, 0.5, 1.0].iter().all(|weight| found.contains(weight)), "{found:?}");
}

#[test]
fn an_instruction_takes_the_place_of_the_blade_of_its_name() {
    let answer = |blade: &[&str]| {
        let args = [&["How do I bake bread?", "-w", "helpful=1", "--device", "cpu"], &SHORT[..], blade].concat();
        stdout(&program().arg("generate").args(args).output().unwrap())
    };
    let shouted = answer(&["--blade", "helpful=instruction:Shout!"]);
    assert_ne!(shouted, answer(&[]));
    assert_eq!(shouted, answer(&["--blade", "helpful=instruction:Shout!"]));
}

#[test]
fn invalid_instructions_are_refused() {
    let refused = |args: &[&str], parts: &[&str]| assert_refused(&run_on_models("generate", args), parts);
    refused(&["Hi", "--blade", "calm=instruction: "], &["calm", "has no text"]);
    refused(&["Hi", "--blade", "helpful=instruction:Help."], &["helpful"]);
    refused(&["Hi", "--scheme", "mod", "--blade", "calm=instruction:Be calm."], &["calm", "likelihood"]);
    let long = format!("calm=instruction:{}", "Be calm. ".repeat(80));
    refused(&["Hi", "--blade", &long], &["512"]);
}
