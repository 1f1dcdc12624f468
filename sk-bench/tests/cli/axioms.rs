//! `swiss-knife axioms`: its report as text and as JSON.

use serde_json::Value;

use crate::common::{assert_refused, run};

#[test]
fn operators_by_axioms_with_counterexamples() {
    let output = run(["axioms", "thurstone", "asinh", "--cases", "300"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    // Two blocks side by side, each with a heading, a rule and two operators.
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let rows: [Vec<&str>; 3] = [0, 2, 3].map(|row| {
        let first = usize::from(row > 0);
        [&lines[row][..], &lines[row + 5][first..]].concat()
    });
    assert_eq!(rows[0], ["A0", "A1", "A2", "A3", "A3′", "A4", "A5", "A5′", "A6", "A7", "A8"]);
    assert_eq!((rows[1][0], rows[2][0], lines[7][0], lines[8][0]), ("thurstone", "asinh", "thurstone", "asinh"));
    assert!((1..12).all(|column| rows[1][column] == if rows[0][column - 1] == "A5" { "violated" } else { "holds" }));
    assert!((1..12).all(|column| rows[2][column] == "holds"));
    assert!(text.contains("thurstone breaks A5, attenuation (case"), "{text}");
    assert_eq!(text, String::from_utf8(run(["axioms", "thurstone", "asinh", "--cases", "300"]).stdout).unwrap());
}

/// Every shipped operator, and the axioms that it violates.
const VIOLATED: [(&str, &str); 21] = [
    ("thurstone", "A5"),
    ("bradley-terry", "A5"),
    ("weakest-link", "A5"),
    ("laplace", "A5"),
    ("tanh", "A5"),
    ("student-t", "A5"),
    ("asinh", ""),
    ("signed-log", ""),
    ("identity", ""),
    ("copeland", "A4 A5 A5′"),
    ("scores", "A3′ A4 A5 A5′ A6 A7"),
    ("divergence-mixture", "A3′ A4 A5 A5′ A6 A7"),
    ("fluent-thurstone", "A5"),
    ("swiss-elo-paper", "A1 A3 A3′ A4 A5 A6 A8"),
    ("swiss-elo-sound", "A4 A5 A6"),
    ("swiss-elo-by-index", "A1 A4 A5 A6"),
    ("double-own", "A7"),
    ("double-defeats", "A7"),
    ("degree-minus-one", "A3′"),
    ("two-channels", "A8"),
    ("cubic", "A5′"),
];

#[test]
fn as_json_all_operators_that_ship() {
    let output = run(["axioms", "--cases", "500", "--seed", "3", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["cases"], &report["seed"]), (&500.into(), &3.into()));
    let mut found = Vec::new();
    for row in report["rows"].as_array().unwrap() {
        let findings = row["findings"].as_array().unwrap();
        assert_eq!(findings.len(), 11);
        assert!(findings.iter().all(|finding| finding["verdict"] == "holds" || finding["verdict"] == "violated"));
        let violated = findings.iter().filter(|finding| finding["verdict"] == "violated");
        let violated: Vec<&str> = violated.map(|finding| finding["axiom"].as_str().unwrap()).collect();
        found.push((row["operator"].as_str().unwrap(), violated.join(" ")));
    }
    let found: Vec<(&str, &str)> = found.iter().map(|(operator, violated)| (*operator, violated.as_str())).collect();
    assert_eq!(found, VIOLATED);
    let elo = report["rows"].as_array().unwrap().iter().find(|row| row["operator"] == "swiss-elo-paper").unwrap();
    assert!(elo["findings"][1]["counterexample"]["mu"].as_array().unwrap().len() <= 4);
}

#[test]
fn an_unknown_operator_is_refused() {
    assert_refused(&run(["axioms", "thurston"]), &["thurston", "thurstone"]);
    assert_refused(&run(["axioms", "--cases", "0"]), &["--cases", "at least 1"]);
}
