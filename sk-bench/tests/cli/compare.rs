//! `swiss-knife compare` on a tiny random model.

use serde_json::{Value, json};

use crate::common::{BLADES, assert_refused, models, run, run_on_models, stderr, stdout};

const LIMIT: [&str; 3] = ["--quiet", "--max-new-tokens", "40"];

fn columns(args: &[&str]) -> Vec<Value> {
    let text = stdout(&run_on_models("compare", &[&["Hello there", "--json"], &LIMIT[..], args].concat()));
    serde_json::from_str(&text).unwrap()
}

#[test]
fn every_blade_has_a_column_with_all_the_weight() {
    let columns = columns(&[]);
    assert_eq!(columns.len(), BLADES.len());
    for (column, name) in columns.iter().zip(BLADES) {
        assert_eq!(column["weights"], json!({ name: 1.0 }));
        let scored: Vec<&str> = column["scores"].as_array().unwrap().iter().map(|score| score[0].as_str().unwrap()).collect();
        assert_eq!(scored, BLADES);
        assert!(column["scores"].as_array().unwrap().iter().all(|score| score[1].as_f64().unwrap().is_finite()));
    }
}

/// A column has the text that `generate` writes. An answer of one step has the scores of that step.
#[test]
fn a_column_is_what_generate_writes() {
    let options = ["--scheme", "best-of-n", "--span-tokens", "40", "-w", "helpful=3,honest=1"];
    let column = &columns(&options)[0];
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("steps.jsonl");
    let same = [&["Hello there", "--trace", trace.to_str().unwrap()], &LIMIT[..], &options].concat();
    let text = stdout(&run_on_models("generate", &same));
    assert_eq!(column["text"], text.trim());
    let step: Value = serde_json::from_str(std::fs::read_to_string(&trace).unwrap().lines().next().unwrap()).unwrap();
    let chosen = usize::try_from(step["chosen"].as_u64().unwrap()).unwrap();
    for blade in step["blades"].as_array().unwrap().iter().filter(|blade| blade["weight"] != 0.0) {
        let scores = column["scores"].as_array().unwrap();
        let score = scores.iter().find(|score| score[0] == blade["name"]).unwrap()[1].as_f64().unwrap();
        // Rows are bit-identical in any batch; only the mean μ over the tokens is rounded
        // differently.
        assert!((score - blade["mu"][chosen].as_f64().unwrap()).abs() < 1e-6, "{score} {blade}");
    }
}

#[test]
fn only_the_options_of_blades_apply_to_the_scores() {
    // The reference scheme, which scores, does not search in waves.
    columns(&["--scheme", "swiss-knife-waves", "-w", "helpful=1", "--set", "search.first=3"]);
    // Nor does it have the blade of a scheme without adapters.
    columns(&["--scheme", "base", "--set", "blades.backbone.dispersion=\"zero\""]);
    let helpful = |options: &[&str]| {
        let calm = ["--scheme", "drafter", "-w", "helpful=1", "--blade", "calm=instruction:Be calm."];
        columns(&[&calm, options].concat()).remove(0)["scores"].clone()
    };
    assert_ne!(helpful(&[]), helpful(&["--set", "blades.helpful.beta=2"]));
    // The scheme `drafter` ignores the scores, so the text does not depend on β.
    let scores = |options: &[&str]| {
        let column = columns(&[&["--scheme", "drafter", "-w", "helpful=1"], options].concat()).remove(0);
        (column["text"].clone(), column["scores"][0][1].as_f64().unwrap())
    };
    let (text, once) = scores(&["--beta", "0.1"]);
    for options in [["--beta", "0.2"], ["--set", "blades.*.beta=0.2"]] {
        let (same, twice) = scores(&options);
        assert_eq!(same, text);
        // Scores are rounded to f32.
        assert!((twice - 2.0 * once).abs() < 1e-6, "{once} {twice}");
    }
}

#[test]
fn schemes_and_weightings_are_crossed() {
    let options = ["--scheme", "swiss-knife", "--scheme", "softmax-mu", "-w", "helpful=1", "-w", "honest=1,helpful=1"];
    let columns = columns(&options);
    let found: Vec<(&str, f64)> = columns
        .iter()
        .map(|column| (column["scheme"].as_str().unwrap(), column["weights"]["helpful"].as_f64().unwrap()))
        .collect();
    // Weights are scaled to sum to one.
    assert_eq!(found, [("swiss-knife", 1.0), ("swiss-knife", 0.5), ("softmax-mu", 1.0), ("softmax-mu", 0.5)]);
    assert!(columns[1]["weights"]["honest"] == 0.5 && columns[3]["weights"]["honest"] == 0.5);
}

#[test]
fn weights_apply_to_the_schemes_with_their_blades() {
    let schemes = ["--scheme", "swiss-knife", "--scheme", "base"];
    let found = |weights: &[&str]| -> Vec<Value> {
        let columns = columns(&[&schemes[..], weights].concat());
        columns.iter().map(|column| json!([column["scheme"], column["weights"]])).collect()
    };
    let [helpful, honest] = ["helpful", "honest"].map(|name| json!(["swiss-knife", { name: 1.0 }]));
    let base = json!(["base", { "backbone": 1.0 }]);
    assert_eq!(found(&["-w", "helpful=1", "-w", "honest=1"]), [helpful.clone(), honest, base.clone()]);
    assert_eq!(found(&["-w", "helpful=1", "-w", "backbone=1"]), [helpful, base]);
}

#[test]
fn a_table_fits_eighty_columns() {
    for weights in [
        &["-w", "helpful=1", "-w", "honest=1"][..],
        &[],
        &["-w", "helpful=1,honest=2", "-w", "helpful=1", "-w", "honest=1", "-w", "harmless=1"],
    ] {
        let output = run_on_models("compare", &[&["Hello there"], &LIMIT[..], weights].concat());
        let text = stdout(&output);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("helpful 1") && text.contains('*'), "{text}");
        for name in BLADES {
            assert!(text.lines().any(|line| line.contains(name) && line.contains('.')), "{name} is split: {text}");
        }
        assert_eq!(stderr(&output), "");
    }
    // Of one column, none is the highest.
    let text = stdout(&run_on_models("compare", &[&["Hello there", "-w", "helpful=1"], &LIMIT[..]].concat()));
    assert!(text.ends_with("μ of each blade over the whole answer\n"), "{text}");
}

#[test]
fn invalid_comparisons_are_refused() {
    let refused = |args: &[&str], parts: &[&str]| assert_refused(&run_on_models("compare", args), parts);
    refused(&["Hi", "-w", "kind=1"], &["\"kind\"", "helpful"]);
    refused(&["Hi", "--scheme", "swiss-knive"], &["swiss-knive", "swiss-knife"]);
    refused(&["Hi", "-w", "helpful=-1"], &["helpful"]);
    refused(&["  "], &["prompt is empty"]);
    let schemes = ["--scheme", "swiss-knife", "--scheme", "base"];
    let misspelt = [&["Hi", "-w", "helpfull=1"], &schemes[..]].concat();
    refused(&misspelt, &["scheme \"swiss-knife\": no blade is called \"helpfull\""]);
    let mixed = [&["Hi", "-w", "helpful=1,backbone=1"], &schemes[..]].concat();
    refused(&mixed, &["scheme \"swiss-knife\": no blade is called \"backbone\""]);
    refused(&["Hi", "-w", "helpful=1", "--scheme", "base"], &["scheme \"base\": no blade is called \"helpful\""]);
    let backbone = models().join("backbone").display().to_string();
    for scheme in ["base", "swiss-knife"] {
        let output = run(["compare", "Hi", "--backbone", &backbone, "--scheme", scheme]);
        assert_refused(&output, &["compare scores answers with blades, and none is given", "or use generate"]);
    }
}
