//! `swiss-knife simulate`: its tables, its page, and whether its checks detect violations.

use std::fs;

use serde_json::Value;

use crate::common::{assert_refused, run, stderr, stdout};

#[test]
fn every_study_is_printed_the_same_from_the_same_seed() {
    let json = stdout(&run(["simulate", "--format", "json"]));
    assert_eq!(json, stdout(&run(["simulate", "--format", "json"])));
    assert_ne!(json, stdout(&run(["simulate", "--format", "json", "--seed", "1"])));
    assert!(stdout(&run(["simulate", "--format", "latex"])).is_ascii(), "every symbol has a LaTeX command");
    let value: Value = serde_json::from_str(&json).unwrap();
    let ids: Vec<&str> = value["tables"].as_array().unwrap().iter().map(|table| table["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["argmax", "bounds", "influence", "dispersion", "frontier", "weights"]);
    let text = stdout(&run(["simulate", "--study", "influence", "--study", "frontier"]));
    assert!(text.contains("Theorem 3(i), (ii)") && text.contains("Theorem 3(iii)") && !text.contains("Theorem 2"), "{text}");
    let csv = stdout(&run(["simulate", "--study", "frontier", "--format", "csv"]));
    // Two rows of counts, and the 231 points of the lattice of density 20 over three blades, each
    // table with its heading.
    assert_eq!(csv.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())).count(), 2 + 231, "{csv}");
}

#[test]
fn a_violated_theorem_ends_the_program_with_its_name_and_the_datum() {
    for (what, study, theorem, datum) in [
        ("bound", "contamination", "Theorem 2(ii), sharpened", "Thurstone, batch 0, D = 0.01"),
        ("cbn", "influence", "Theorem 3(ii)", "batch 0, blade 2 scaled by 0.01: "),
        ("dispersion", "dispersion", "the decomposition (app:cor:decomp)", "at a coupling of 0, real less shuffled is "),
        ("hull", "frontier", "Theorem 3(iii)", "select"),
    ] {
        let output = run(["simulate", "--break", what, "--study", study]);
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{what}: {error}");
        assert!(output.stdout.is_empty() && error.lines().count() == 1, "{what}: {error}");
        assert!(error.starts_with("error: the data contradict ") && error.contains(theorem) && error.contains(datum), "{error}");
    }
}

#[test]
fn the_page_holds_every_figure_and_nothing_half_done() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    let path = file.to_str().unwrap();
    let output = run(["simulate", "--html", path]);
    assert!(stdout(&output).is_empty());
    let html = fs::read_to_string(&file).unwrap();
    for id in ["contamination", "bounds", "influence", "dispersion", "hull", "weights"] {
        assert!(html.contains(&format!("id=\"figure-{id}\"")), "{id}");
    }
    assert!(html.contains("simulate --seed 42"));
    // The caption gives the counts of the table.
    for seed in ["42", "2", "3"] {
        let args = ["simulate", "--study", "frontier", "--seed", seed];
        let json: Value = serde_json::from_str(&stdout(&run(args.iter().chain(&["--format", "json"])))).unwrap();
        let [before, after] = [4, 5].map(|column| json["tables"][0]["rows"][0][column].as_f64().unwrap());
        stdout(&run(args.iter().chain(&["--html", path])));
        let says = format!("{before} are found before CBN and {after} with it");
        let page = fs::read_to_string(&file).unwrap();
        assert!(page.contains(&says), "{seed}: {says}");
        assert_eq!(page.contains("drowns the second"), before < after, "{seed}");
    }
    fs::remove_file(&file).unwrap();
    assert_eq!(run(["simulate", "--html", path, "--break", "hull"]).status.code(), Some(1));
    assert!(!file.exists(), "no page of what does not hold");
}

#[test]
fn a_study_that_does_not_exist_is_refused() {
    assert_refused(&run(["simulate", "--study", "contaminatoin"]), &["contaminatoin", "a similar value exists: 'contamination'"]);
}

#[test]
fn options_without_an_effect_are_refused() {
    let elsewhere = ["simulate", "--study", "frontier", "--break", "bound"];
    assert_refused(&run(elsewhere), &["--break", "the study contamination", "does not select"]);
    let both = ["simulate", "--study", "frontier", "--html", "x.html", "--format", "csv"];
    assert_refused(&run(both), &["--html", "--format", "cannot be used with"]);
}
