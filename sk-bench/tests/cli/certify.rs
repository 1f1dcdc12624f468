//! `swiss-knife certify`: bounds, radii, refusals, and the search for the worst perturbation.

use std::fs;
use std::io::Write;
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{assert_refused, program, run, stdout};

/// The example that the library's tests work out by hand: s = 5, L_g = 1/√(2π).
const BY_HAND: &str = r#"{"mu": [0, 0], "sigma": [3, 4]}"#;

/// Creates a file with that text in a new directory.
fn file(name: &str, text: &str) -> (TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    fs::write(&path, text).unwrap();
    let path = path.display().to_string();
    (directory, path)
}

fn certify(text: &str, args: &[&str]) -> Output {
    let (_directory, path) = file("batch.json", text);
    run([&["certify", &path], args].concat())
}

fn json_of(text: &str, args: &[&str]) -> Value {
    serde_json::from_str(&stdout(&certify(text, &[args, &["--json"]].concat()))).unwrap()
}

#[test]
fn schemes_that_ship_are_known_by_name() {
    let named = json_of(BY_HAND, &["--scheme", "swiss-knife-thurstone", "--delta", "0.1", "--audit", "--evaluations", "9"]);
    assert_eq!((&named["aggregator"], &named["selector"]), (&json!("thurstone"), &json!("champion")));
    let slip = certify(BY_HAND, &["--scheme", "swiss-knife-thurston"]);
    assert_refused(&slip, &["unknown scheme \"swiss-knife-thurston\"", "did you mean \"swiss-knife-thurstone\"?"]);
    assert_refused(&certify(BY_HAND, &["--scheme", "missing.toml"]), &["cannot read scheme missing.toml"]);
}

fn close(value: &Value, expected: f64) {
    let value = value.as_f64().unwrap();
    assert!((value - expected).abs() < 1e-6, "{value} {expected}");
}

#[test]
fn bounds_and_radii_in_three_forms() {
    let report = json_of(BY_HAND, &["--temperature", "0.5", "--delta", "1", "--tolerance", "0.158236"]);
    assert_eq!((&report["aggregator"], &report["selector"]), (&json!("thurstone"), &json!("softmax")));
    assert_eq!((report["temperature"].as_f64(), report["delta"].as_f64()), (Some(0.5), Some(1.0)));
    let batch = &report["batches"][0];
    assert_eq!((batch["batch"].as_u64(), batch["candidates"].as_u64(), &batch["step"]), (Some(1), Some(2), &Value::Null));
    let certificate = &batch["certificate"];
    close(&certificate["bound"]["published"], 0.319_154);
    close(&certificate["bound"]["uniform"], 0.158_236);
    close(&certificate["bound"]["sharpened"], 0.158_236);
    close(&certificate["radius"]["sharpened"], 1.0);
    close(&certificate["radius"]["published"], 0.158_236 / 0.319_154);

    let table = stdout(&certify(BY_HAND, &["--temperature", "0.5", "--delta", "1", "--tolerance", "0.1"]));
    for part in ["thurstone under softmax at T = 0.5", "bound, published", "radius, sharpened", "0.3192", "0.1582", "batch 1"] {
        assert!(table.contains(part), "{table} lacks {part}");
    }
    // The report holds only what was asked for; by default that is the radius at tolerance 0.1.
    let asked = json_of(BY_HAND, &["--delta", "1"]);
    assert!(asked["batches"][0]["certificate"]["radius"].is_null() && asked["tolerance"].is_null());
    let plain = json_of(BY_HAND, &[]);
    assert_eq!((plain["tolerance"].as_f64(), &plain["delta"]), (Some(0.1), &Value::Null));
    assert!(plain["batches"][0]["certificate"]["radius"]["sharpened"].as_f64().unwrap() > 0.0);
    // With one candidate the choice cannot change, so no radius is finite.
    let alone = json_of(r#"{"mu": [1], "sigma": [1]}"#, &[]);
    assert!(alone["batches"][0]["certificate"]["radius"]["sharpened"].is_null());
    assert!(stdout(&certify(r#"{"mu": [1], "sigma": [1]}"#, &[])).contains('∞'));
}

#[test]
fn several_batches_standard_input_and_scheme_files() {
    let two = format!(
        "{BY_HAND}\n{{\"turn\": 0, \"step\": 4, \"mu\": [1, 0, 0.5], \"sigma\": [1, 2, 1], \"fluency\": [-1, -2, -3]}}\n"
    );
    let report = json_of(&two, &[]);
    assert_eq!(report["batches"].as_array().unwrap().len(), 2);
    assert_eq!(report["batches"][1]["step"].as_u64(), Some(4));
    assert!(stdout(&certify(&two, &[])).contains("turn 1, step 5"));
    let second = json_of(&two, &["--batch", "2"]);
    assert_eq!(second["batches"].as_array().unwrap()[..], report["batches"].as_array().unwrap()[1..]);

    let mut child = program().args(["certify", "-", "--json"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(two.as_bytes()).unwrap();
    let piped: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(piped, report);

    let scheme =
        "[aggregator]\nkind = \"bradley-terry\"\nstandardize = false\n[selector]\nkind = \"softmax\"\ntemperature = 0.25\n";
    let (_directory, scheme) = file("scheme.toml", scheme);
    let from_file = json_of(&two, &["--scheme", &scheme]);
    let from_options = json_of(&two, &["--aggregator", "bradley-terry", "--temperature", "0.25"]);
    assert_eq!(from_file, from_options);
    assert_eq!(json_of(&two, &["--scheme", &scheme, "--temperature", "1"])["temperature"].as_f64(), Some(1.0));
}

/// 0.25 is that of the operating point at which `generate` runs a scheme.
#[test]
fn a_scheme_is_certified_at_the_temperature_at_which_generate_runs_it() {
    let temperature = |args: &[&str]| json_of(BY_HAND, args)["temperature"].as_f64();
    let (_directory, scheme) =
        file("s.toml", "[aggregator]\nkind = \"thurstone\"\nstandardize = false\n[selector]\nstandardize = false\n");
    assert_eq!(temperature(&["--scheme", &scheme]), Some(0.25));
    let (_other, softmax) = file("s.toml", "[selector]\nkind = \"softmax\"\ntemperature = 3\n");
    let audit = ["--delta", "0.1", "--audit", "--evaluations", "9"];
    assert_eq!(temperature(&[&["--scheme", &softmax, "--selector", "champion"], &audit[..]].concat()), Some(3.0));
    assert_eq!(temperature(&[&["--selector", "champion"], &audit[..]].concat()), Some(8.0));
}

#[test]
fn schemes_without_a_certificate_are_refused_with_the_reason() {
    let refused = |args: &[&str], part: &str| assert_refused(&certify(BY_HAND, args), &["no certificate", part, "--audit"]);
    refused(&["--aggregator", "swiss-elo"], "pairing of a tournament jumps");
    refused(&["--selector", "champion"], "z-scores");
    refused(&["--selector", "argmax"], "tie");
    refused(&["--temperature", "0"], "tie");
    refused(&["--aggregator", "copeland"], "two scores tie");
    let (_directory, scheme) = file("scheme.toml", "[aggregator]\nkind = \"thurstone\"\n[selector]\nkind = \"softmax\"\n");
    refused(&["--scheme", &scheme], "standardised on entry");
    // Two candidates with σ = 0 have no certificate; another batch in the same file may have one.
    let certain = r#"{"mu": [0, 1], "sigma": [0, 0]}"#;
    assert_refused(&certify(certain, &[]), &["no certificate", "candidates 1 and 2", "--audit"]);
    let report = json_of(&format!("{certain}{BY_HAND}"), &[]);
    assert!(report["batches"][0]["certificate"]["refused"].as_str().unwrap().contains("spread of zero"));
    assert!(report["batches"][1]["certificate"]["radius"]["sharpened"].is_f64());
    // Each reason is given once.
    let later = r#"{"mu": [0, 1, 2], "sigma": [1, 0, 0]}"#;
    let text = stdout(&certify(&format!("{certain}{BY_HAND}{later}{certain}{certain}"), &[]));
    let said: Vec<&str> = text.lines().filter(|line| line.contains("no certificate")).collect();
    assert!(said.len() == 2 && said[0].starts_with("batch 1 and 2 more: no certificate: "), "{text}");
    assert!(said[0].contains("candidates 1 and 2") && said[1].starts_with("batch 3: no certificate: "), "{text}");
}

#[test]
fn bad_input_is_refused() {
    let refused = |text: &str, args: &[&str], parts: &[&str]| assert_refused(&certify(text, args), parts);
    refused("", &[], &["batch.json", "no batch"]);
    refused("{\"mu\": [1, 2]}", &[], &["batch.json", "sigma", "line 1"]);
    refused(r#"{"mu": [1, 2], "sigma": [1, -0.5]}"#, &[], &["batch.json", "batch 1", "candidate 1", "-0.5"]);
    refused(BY_HAND, &["--batch", "3"], &["batch 3", "has 1"]);
    refused(BY_HAND, &["--batch", "0"], &["--batch", "at least 1"]);
    refused(BY_HAND, &["--tolerance", "1"], &["--tolerance", "[0, 1)"]);
    refused(BY_HAND, &["--delta", "-1"], &["delta is -1", "not negative"]);
    refused(BY_HAND, &["--temperature", "-1"], &["temperature is -1"]);
    refused(BY_HAND, &["--temperature", "1", "--selector", "argmax"], &["--temperature does not apply", "argmax"]);
    refused(BY_HAND, &["--aggregator", "scores", "--alpha", "0.1"], &["--alpha does not apply", "scores"]);
    refused(BY_HAND, &["--aggregator", "thurston"], &["--aggregator", "did you mean \"thurstone\"?"]);
    refused(BY_HAND, &["--selector", "softmx"], &["--selector", "did you mean \"softmax\"?"]);
    refused(BY_HAND, &["--audit"], &["--delta"]);
    refused(BY_HAND, &["--anywhere", "--delta", "1"], &["--audit"]);
    assert_refused(&run(["certify", "nowhere.json"]), &["cannot read nowhere.json"]);
    for idle in [["--evaluations", "9"], ["--seed", "9"]] {
        refused(BY_HAND, &[&["--delta", "0.1"], &idle[..]].concat(), &["--audit"]);
    }
    let (_directory, scheme) = file("s.toml", "[selector]\nkind = \"softmax\"\n[selector.gates.safe]\nthreshold = 0\n");
    refused(BY_HAND, &["--scheme", &scheme, "--delta", "1", "--audit"], &["batch 1", "\"safe\"", "no scores"]);
}

/// Dispersions whose combined spread overflows still have a bound. A spread that is too small to
/// divide by is refused with that reason.
#[test]
fn the_largest_and_the_smallest_dispersions() {
    let large = r#"{"mu": [5e307, -5e307], "sigma": [1.7e308, 1.7e308]}"#;
    let report = json_of(large, &["--delta", "1e308", "--audit", "--anywhere", "--evaluations", "500"]);
    let batch = &report["batches"][0];
    close(&batch["certificate"]["bound"]["sharpened"], 0.164_432);
    let found = batch["audit"]["total_variation"].as_f64().unwrap();
    assert!(found > 0.1 && found < 0.164_432 && batch["fault"].is_null(), "{batch}");
    let text = stdout(&certify(large, &["--delta", "1e308", "--audit", "--evaluations", "500"]));
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("moves by more than 1e308;") && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let small = certify(r#"{"mu": [1, 0], "sigma": [1e-310, 0]}"#, &["--delta", "1"]);
    assert_refused(&small, &["candidates 1 and 2 are compared on a spread of 1e-310, so small that"]);
}

/// A link whose certificate was once wrong: Student's t with many degrees of freedom, near its
/// mean.
#[test]
fn students_t_of_many_degrees_keeps_its_certificate() {
    for nu in ["1e9", "1e12", "1e300"] {
        let scheme = format!(
            "[normalizer]\nkind = \"raw\"\n[aggregator]\nkind = \"round-robin\"\nlink = \"student-t\"\nnu = {nu}\nstandardize = false\n\
             [selector]\nkind = \"softmax\"\ntemperature = 0.1\n"
        );
        let (_directory, path) = file("scheme.toml", &scheme);
        let args = ["--scheme", &path, "--delta", "1e-9", "--audit", "--anywhere", "--evaluations", "2000"];
        let report = json_of(BY_HAND, &args);
        let batch = &report["batches"][0];
        let (found, bound) = (&batch["audit"]["total_variation"], &batch["certificate"]["bound"]["sharpened"]);
        assert!(found.as_f64().unwrap() <= bound.as_f64().unwrap() + 1e-13, "{nu}: {found} {bound}");
    }
}

const SEVEN: &str = r#"{"mu": [0.4, 0.1, -0.3, 0.2, -0.1, 0.05, 0], "sigma": [0.6, 0.9, 0.4, 0.7, 0.5, 0.8, 0.3]}"#;

/// The worst perturbation of the first batch, and the certificate of that batch.
fn audit(args: &[&str]) -> (Value, Value) {
    let report = json_of(SEVEN, &[args, &["--audit", "--evaluations", "4000"]].concat());
    let batch = &report["batches"][0];
    (batch["audit"].clone(), batch["certificate"].clone())
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

#[test]
fn an_audit_never_exceeds_a_certificate() {
    for aggregator in ["thurstone", "bradley-terry", "weakest-link", "asinh", "scores"] {
        for more in [&[][..], &["--anywhere"]] {
            for delta in ["1e-6", "0.05", "3"] {
                let args = [&["--aggregator", aggregator, "--temperature", "0.3", "--delta", delta], more].concat();
                let (jump, certificate) = audit(&args);
                let found = jump["total_variation"].as_f64().unwrap();
                for form in ["published", "uniform", "sharpened"] {
                    // Rounding of a softmax.
                    assert!(
                        found <= certificate["bound"][form].as_f64().unwrap() + 1e-12,
                        "{aggregator} {delta} {form}: {found}"
                    );
                }
                let (before, after) = (numbers(&jump["before"]), numbers(&jump["after"]));
                let delta: f64 = delta.parse().unwrap();
                // A number may lose its last bit in JSON.
                assert!(before.iter().zip(&after).all(|(b, a)| (a - b).abs() <= delta * (1.0 + 1e-6)), "{before:?} {after:?}");
                assert_eq!((before.len(), numbers(&jump["sigma"]).len()), (7, 7));
                let (p, q) = (numbers(&jump["probabilities_before"]), numbers(&jump["probabilities_after"]));
                let apart: f64 = p.iter().zip(&q).map(|(p, q)| 0.5 * (p - q).abs()).sum();
                assert!((apart - found).abs() < 1e-12 && found > 0.0);
                if more.is_empty() {
                    assert_eq!(before, [0.4, 0.1, -0.3, 0.2, -0.1, 0.05, 0.0]);
                }
            }
        }
    }
}

#[test]
fn an_audit_finds_the_jumps_of_what_is_refused() {
    for (args, least) in [
        (&["--aggregator", "swiss-elo"][..], 0.5),
        (&["--aggregator", "swiss-elo", "--selector", "champion"], 0.2),
        (&["--selector", "champion", "--temperature", "0.5"], 0.9),
        (&["--aggregator", "copeland"], 0.5),
        (&["--selector", "argmax"], 0.999),
    ] {
        let (jump, certificate) = audit(&[args, &["--delta", "1e-9", "--anywhere"]].concat());
        let found = jump["total_variation"].as_f64().unwrap();
        assert!(found >= least, "{args:?}: {found}");
        assert!(certificate["refused"].is_string());
    }
    let text =
        stdout(&certify(SEVEN, &["--selector", "argmax", "--delta", "1e-9", "--anywhere", "--audit", "--evaluations", "4000"]));
    for part in ["thurstone under argmax", "no certificate: ", "a jump of 1.0000", "1.000e-9", "μ before", "P after"] {
        assert!(text.contains(part), "{text} lacks {part}");
    }
    // The same seed finds the same perturbation.
    let again = |seed| audit(&["--aggregator", "swiss-elo", "--delta", "1e-3", "--seed", seed]).0;
    assert_eq!(again("7"), again("7"));
}
