//! `swiss-knife axioms`: the report, for people and for programs.

use serde_json::Value;

use crate::common::{assert_refused, run};

#[test]
fn operators_by_axioms_with_counterexamples() {
    let output = run(["axioms", "thurstone", "asinh", "--cases", "300"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().take(3).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["A1", "A2", "A3", "A3′", "A4", "A5", "A5′", "A6", "A7", "A8"]);
    assert_eq!(rows[1], ["thurstone", "+", "+", "+", "+", "+", "-", "+", "+", "+", "+"]);
    assert_eq!(rows[2], ["asinh", "+", "+", "+", "+", "+", "+", "+", "+", "+", "+"]);
    assert!(text.contains("thurstone breaks A5, attenuation (case"), "{text}");
    assert_eq!(text, String::from_utf8(run(["axioms", "thurstone", "asinh", "--cases", "300"]).stdout).unwrap());
}

#[test]
fn as_json_all_operators_that_ship() {
    let output = run(["axioms", "--cases", "20", "--seed", "3", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["cases"], &report["seed"]), (&20.into(), &3.into()));
    let rows = report["rows"].as_array().unwrap();
    assert!(rows.len() >= 10 && rows.iter().all(|row| row["findings"].as_array().unwrap().len() == 10));
    let elo = rows.iter().find(|row| row["operator"] == "swiss-elo-paper").unwrap();
    assert_eq!(elo["findings"][0]["verdict"], "violated");
    assert!(elo["findings"][0]["counterexample"]["mu"].as_array().unwrap().len() <= 4);
}

#[test]
fn an_unknown_operator_is_refused() {
    assert_refused(&run(["axioms", "thurston"]), &["thurston", "thurstone"]);
    assert_refused(&run(["axioms", "--cases", "0"]), &["--cases", "at least 1"]);
}
