//! `swiss-knife bench` with few tokens on tiny models: its report, and what it refuses.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{assert_refused, edit_json, models, run, run_on_models, stdout};
use crate::fake::{Fake, Setup};
use serde_json::Value;
use sk_models::Qwen2Config;
use sk_models::decoder::Precision;
use sk_remote::Kind;
use tempfile::TempDir;

/// A ratio of two f64 sums, printed and parsed.
const ROUNDING: f64 = 1e-9;

/// Small settings: one step of eight tokens.
const BRIEF: [&str; 6] = ["--repeat", "1", "--new-tokens", "8", "--prompt-tokens", "8"];

fn brief(args: &[&str]) -> Vec<String> {
    BRIEF.iter().chain(args).map(|&arg| arg.to_owned()).collect()
}

fn report(args: &[&str]) -> Value {
    let args = brief(args);
    let args: Vec<&str> = args.iter().map(String::as_str).chain(["--json"]).collect();
    serde_json::from_str(&stdout(&run_on_models("bench", &args))).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Checks that the median of a figure lies within its range, and that its distance from the floor
/// is right.
fn check_figure(name: &str, figure: &Value, is_rate: bool) {
    let [median, min, max] = ["median", "min", "max"].map(|field| number(&figure[field]));
    assert!(min > 0.0 && min <= median && median <= max, "{name}: {figure}");
    let (floor, times) = (number(&figure["floor"]), number(&figure["to_floor"]));
    let expected = if is_rate { floor / median } else { median / floor };
    assert!(floor > 0.0 && (times / expected - 1.0).abs() < ROUNDING, "{name}: {figure}");
}

#[test]
fn a_bench_measures_both_sides() {
    let args = ["bench", "--repeat", "2", "--new-tokens", "24", "--prompt-tokens", "16", "--span-tokens", "10", "--json"];
    let report: Value = serde_json::from_str(&stdout(&run_on_models(args[0], &args[1..]))).unwrap();
    for rate in ["prefill", "frozen", "frozen_with_prompt", "steered", "later_steps"] {
        check_figure(rate, &report[rate], true);
    }
    check_figure("load", &report["load"], false);
    let parts = report["steered_seconds"].as_object().unwrap();
    assert!(["draft", "score", "select", "commit"].iter().all(|part| parts[*part].as_f64().unwrap() > 0.0));
    assert!(number(&report["load_seconds"]) > 0.0);
    assert_eq!(
        (report["candidates"].as_u64(), report["blades"].as_u64(), report["span_tokens"].as_u64()),
        (Some(7), Some(3), Some(10))
    );
    for roof in ["backbone_read", "backbone_triad", "drafter_read", "drafter_triad", "product", "registers"] {
        assert!(number(&report["roof"][roof]["median"]) > 0.0, "{roof}");
    }
    for ratio in ["steered_over_frozen", "later_steps_over_frozen"] {
        assert!(number(&report[ratio]["median"]) > 0.0, "{ratio}");
    }
    assert!(report["sweeps"].as_array().unwrap().is_empty() && report["against"].as_array().unwrap().is_empty());
    let args = brief(&[]);
    let table = stdout(&run_on_models("bench", &args.iter().map(String::as_str).collect::<Vec<_>>()));
    for row in
        ["load", "frozen, greedy", "steered, N = 7, K = 3", "draft", "score", "swap", "memory by the formula", "GB/s", "× floor"]
    {
        assert!(table.contains(row), "{table}");
    }
    // One step of 24 tokens, cut to the eight requested, so there is no later step.
    assert!(!table.contains("after the first"), "{table}");
}

#[test]
fn spans_are_those_that_are_set() {
    assert_eq!(report(&[])["span_tokens"], 24);
    assert_eq!(report(&["--set", "granularity.span_tokens=4"])["span_tokens"], 4);
}

#[test]
fn instructions_are_measured_on_models_behind_servers() {
    let server = Fake::start(Setup::new(Kind::Vllm, &[]));
    let (address, tokenizer) = (format!("vllm+{}", server.url), models().join("backbone"));
    let args = ["bench", "--backbone", &address, "--tokenizer", text(&tokenizer), "--blade", "calm=instruction:Be calm."];
    let report: Value = serde_json::from_str(&stdout(&run([&args[..], &BRIEF, &["--n", "3", "--json"]].concat()))).unwrap();
    assert!(number(&report["step_traffic"]["requests"]["median"]) > 0.0, "{report}");
}

#[test]
fn edits_are_timed_with_the_step_after_them() {
    let edits = &report(&[])["reconfiguration"];
    for edit in ["weight_edit", "seat", "unseat", "swap"] {
        let seconds = number(&edits[edit]["median"]);
        assert!(seconds > 0.0, "{edit}: {seconds}");
    }
    check_figure("step", &edits["step"], false);
    check_figure("step_after_swap", &edits["step_after_swap"], false);
    assert!(
        number(&edits["step_after_swap"]["floor"]) > number(&edits["step"]["floor"]),
        "the new blade reads the context first"
    );
    // A scheme without adapters has no blade to swap.
    let backbone = models().join("backbone");
    let alone: Value =
        serde_json::from_str(&stdout(&bench(&["--backbone", text(&backbone), "--scheme", "base", "--json"]))).unwrap();
    assert!(alone["reconfiguration"].is_null());
}

#[test]
fn the_formula_of_memory_is_that_of_the_shape() {
    let memory = &report(&["--span-tokens", "4"])["memory"];
    // The tiny model: H 16, I 32, V 264, two layers, query width 16, key width 8. A layer has
    // matrices 16·16 + 2·16·8 + 16·16 + 3·16·32 and vectors 16 + 2·8 + 2·16. The model adds a final
    // norm, an embedding and a head.
    let layers = 2 * (256 + 256 + 256 + 1536 + 64);
    let model = f64::from(4 * (layers + 16 + 2 * 264 * 16));
    assert_eq!((number(&memory["backbone"]), number(&memory["drafter"])), (model, model));
    let config = Qwen2Config::from_file(&models().join("backbone/config.json")).unwrap();
    let eight_bits = report(&["--span-tokens", "4", "--precision", "int8"]);
    assert_eq!(number(&eight_bits["memory"]["backbone"]), Precision::Int8.bytes(&config) as f64);
    // Three adapters of rank 4 on two matrices of two layers: q (16 to 16) and down (32 to 16).
    assert_eq!(number(&memory["adapters"]), f64::from(4 * 3 * 2 * 4 * (32 + 48)));
    // Two layers with keys and values of width 8, for four policies and the drafter; a context of
    // 16 tokens and seven spans of 4.
    assert_eq!(number(&memory["cache"]), f64::from(4 * 2 * 2 * 8 * 5 * (16 + 28)));
    let parts = ["backbone", "drafter", "adapters", "cache"].map(|part| number(&memory[part]));
    assert_eq!(number(&memory["total"]), parts.iter().sum::<f64>());
}

#[test]
fn a_step_is_measured_along_each_axis() {
    let report =
        report(&["--span-tokens", "4", "--sweep", "prefix=16:600:18446744073709551615,n=1:9,k=0:1:5", "--sweep", "l=2:8"]);
    let sweeps = report["sweeps"].as_array().unwrap();
    let axes: Vec<(&str, Vec<u64>)> = sweeps
        .iter()
        .map(|sweep| {
            let values = sweep["points"].as_array().unwrap().iter().map(|point| point["value"].as_u64().unwrap()).collect();
            (sweep["axis"].as_str().unwrap(), values)
        })
        .collect();
    // Each axis includes the point of the other measurements. Points beyond the context of 512 are
    // skipped.
    let expected = [("prefix", vec![8, 16]), ("n", vec![1, 7, 9]), ("k", vec![0, 1, 3, 5]), ("l", vec![2, 4, 8])];
    assert_eq!(axes, expected);
    assert_eq!(sweeps[0]["skipped"], serde_json::json!([600, u64::MAX]));
    for (sweep, (axis, values)) in sweeps.iter().zip(expected) {
        let points = sweep["points"].as_array().unwrap();
        for (point, value) in points.iter().zip(&values) {
            for figure in ["draft", "score", "step"] {
                check_figure(&format!("{axis} = {value}: {figure}"), &point[figure], false);
            }
        }
        // A larger value never has a lower floor.
        let floors: Vec<f64> = points.iter().map(|point| number(&point["step"]["floor"])).collect();
        assert!(floors.is_sorted_by(|a, b| a < b), "{axis}: {floors:?}");
    }
    let centre = &sweeps[1]["points"][1];
    assert_eq!(number(&centre["to_centre"]["median"]), 1.0);
}

/// The configurations of the tiny models, without weights, in a new folder.
fn shapes() -> (TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let shape = |name: &str| {
        let path = folder.path().join(format!("{name}.json"));
        fs::copy(models().join(name).join("config.json"), &path).unwrap();
        path
    };
    let (backbone, drafter) = (shape("backbone"), shape("drafter"));
    (folder, backbone, drafter)
}

fn bench(args: &[&str]) -> std::process::Output {
    run(["bench".to_owned()].into_iter().chain(brief(args)).chain(["--device".to_owned(), "cpu".to_owned()]))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn any_shape_is_measured_without_a_checkpoint() {
    let (_folder, backbone, drafter) = shapes();
    let shape = ["--backbone-config", text(&backbone), "--drafter-config", text(&drafter), "--json"];
    let report: Value = serde_json::from_str(&stdout(&bench(&shape))).unwrap();
    check_figure("steered", &report["steered"], true);
    assert_eq!((report["blades"].as_u64(), report["candidates"].as_u64()), (Some(3), Some(7)));
    // Three adapters of rank 16 on all seven matrices of two layers: rank times (in + out) each.
    let widths = 2 * (32 + 24 + 24 + 32 + 48 + 48 + 48);
    assert_eq!(number(&report["memory"]["adapters"]), f64::from(4 * 3 * 16 * widths));
    // Without a drafter, the backbone drafts.
    let alone: Value = serde_json::from_str(&stdout(&bench(&["--backbone-config", text(&backbone), "--json"]))).unwrap();
    assert_eq!(number(&alone["memory"]["drafter"]), 0.0);
}

#[test]
fn blades_candidates_and_ranks_grow_by_configuration() {
    let (_folder, backbone, drafter) = shapes();
    let args =
        ["--backbone-config", text(&backbone), "--drafter-config", text(&drafter), "--random-blades", "8", "--rank", "64,1,16"];
    let report: Value = serde_json::from_str(&stdout(&bench(&[&args[..], &["--n", "32", "--json"]].concat()))).unwrap();
    assert_eq!((report["blades"].as_u64(), report["candidates"].as_u64()), (Some(8), Some(32)));
    check_figure("steered", &report["steered"], true);
    // Eight adapters cycle through the ranks: 64, 1, 16, 64, 1, 16, 64, 1.
    let widths = 2 * (32 + 24 + 24 + 32 + 48 + 48 + 48);
    assert_eq!(number(&report["memory"]["adapters"]), f64::from(4 * (3 * 64 + 3 + 2 * 16) * widths));
}

#[test]
fn concurrent_generations_are_measured() {
    let (_folder, backbone, drafter) = shapes();
    let args = ["--backbone-config", text(&backbone), "--drafter-config", text(&drafter), "--generations", "5"];
    let report: Value = serde_json::from_str(&stdout(&bench(&[&args[..], &["--json"]].concat()))).unwrap();
    let together = &report["generations"];
    assert_eq!(together["count"].as_u64(), Some(5));
    assert!(number(&together["steered"]["median"]) > 0.0 && number(&together["over_one"]["median"]) > 0.0);
    let table = stdout(&bench(&args));
    assert!(table.contains("steered, 5 concurrent") && table.contains("against one"), "{table}");
}

#[cfg(unix)]
#[test]
fn another_program_is_measured_in_turns() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let once = format!("echo once >> {}; echo '{{\"greedy\": 100, \"set_adapter_seconds\": 0.004}}'", log.display());
    let stays = format!("while read x; do echo asked >> {}; echo '{{\"cached\": 50}}'; done", log.display());
    let args = ["--against", &once, "--against", &stays, "--repeat", "2"];
    let report = report(&args);
    // Each program runs once per round, and rounds do not overlap.
    assert_eq!(fs::read_to_string(&log).unwrap(), "once\nasked\nonce\nasked\n");
    let against = report["against"].as_array().unwrap();
    let figures = |of: &Value| of["figures"].as_array().unwrap().clone();
    assert_eq!(against[0]["command"].as_str(), Some(once.as_str()));
    let greedy = &figures(&against[0])[0];
    assert_eq!((greedy["name"].as_str(), number(&greedy["value"]["median"])), (Some("greedy"), 100.0));
    let steered = number(&report["steered"]["max"]);
    assert!((number(&greedy["steered_over"]["max"]) / (steered / 100.0) - 1.0).abs() < ROUNDING, "{greedy}");
    assert!(figures(&against[0])[1]["steered_over"].is_null(), "a time is no rate");
    let args = brief(&["--against", &stays]);
    let table = stdout(&run_on_models("bench", &args.iter().map(String::as_str).collect::<Vec<_>>()));
    for row in ["against while read x", "cached", "50.0 tokens/s", "steered / it"] {
        assert!(table.contains(row), "{table}");
    }
}

/// Without a terminal, a line comes every ten seconds, between two runs.
#[cfg(unix)]
#[test]
fn a_long_measurement_shows_its_progress() {
    let slow = "sleep 10.1; echo '{\"greedy\": 100}'";
    let args = brief(&["--against", slow]);
    let output = run_on_models("bench", &args.iter().map(String::as_str).collect::<Vec<_>>());
    stdout(&output);
    let said = crate::common::stderr(&output);
    assert!(said.lines().count() == 1 && said.starts_with("2/2 runs · "), "{said}");
}

#[test]
fn invalid_measurements_are_refused() {
    let refused = |args: &[&str], parts: &[&str]| {
        let args = brief(args);
        assert_refused(&run_on_models("bench", &args.iter().map(String::as_str).collect::<Vec<_>>()), parts);
    };
    refused(&["--sweep", "prefx"], &["unknown sweep \"prefx\"", "did you mean \"prefix\"?"]);
    refused(&["--sweep", "n,x"], &["unknown sweep \"x\"", "prefix, n, k, l"]);
    refused(&["--sweep", "n=0"], &["n is \"0\"", "at least 1"]);
    refused(&["--repeat", "0"], &["at least 1"]);
    for tokens in ["600", "18446744073709551615"] {
        refused(&["--prompt-tokens", tokens], &[&format!("{tokens} prompt tokens and 8 new ones"), "512"]);
    }
    refused(&["--rank", "16,0"], &["--rank", "at least 1"]);
    refused(&["--drafter-config", "x.json"], &["--drafter-config", "cannot be used with", "--backbone"]);
    assert_refused(&bench(&["--drafter-config", "x.json"]), &["--backbone-config"]);
    refused(&["--backbone-config", "x.json"], &["--backbone-config", "cannot be used with", "--backbone"]);
    #[cfg(unix)]
    {
        refused(&["--against", "exit 3"], &["`exit 3`", "exit status: 3", "figures"]);
        refused(&["--against", "echo '{\"a\": -1}'"], &["a is -1", "positive"]);
    }

    let (folder, backbone, drafter) = shapes();
    let refused = |args: &[&str], parts: &[&str]| assert_refused(&bench(args), parts);
    refused(&["--backbone-config", "missing.json"], &["missing.json", "cannot read"]);
    let broken = folder.path().join("broken.json");
    fs::write(&broken, "{").unwrap();
    refused(&["--backbone-config", text(&broken)], &["broken.json", "not a model configuration"]);
    // The request exceeds any machine's memory and is refused before any of it is filled. On other
    // systems, the free memory is not known.
    if cfg!(target_os = "linux") {
        let huge = folder.path().join("huge.json");
        fs::copy(&backbone, &huge).unwrap();
        edit_json(&huge, |config| config["intermediate_size"] = 2_000_000_000_u32.into());
        refused(&["--backbone-config", text(&huge)], &["huge.json", "GB of memory are free", "--precision int8"]);
    }
    edit_json(&drafter, |config| config["vocab_size"] = 300.into());
    let args = ["--backbone-config", text(&backbone), "--drafter-config", text(&drafter)];
    refused(&args, &["drafter.json", "`vocab_size` is 300", "backbone's"]);
}

#[test]
fn runs_beyond_the_context_are_refused_with_both_lengths() {
    let output = run_on_models("bench", &["--prompt-tokens", "64", "--new-tokens", "500"]);
    assert_refused(&output, &["64 prompt tokens and 500 new ones do not fit into 512"]);
}
