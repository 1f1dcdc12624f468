//! `swiss-knife schemes`: the table, the scheme files, and the measured costs.

use serde_json::Value;

use crate::common::{assert_refused, models, program, run, run_on_models, stdout};

#[test]
fn a_measurement_has_every_scheme_that_the_models_can_run() {
    let args = ["--measure", "--repeat", "1", "--prompt-tokens", "8", "--new-tokens", "4"];
    let report: Value = serde_json::from_str(&stdout(&run_on_models("schemes", &[&args[..], &["--json"]].concat()))).unwrap();
    let table: Value = serde_json::from_str(&stdout(&run(["schemes", "--json"]))).unwrap();
    let (measured, listed) = (report["schemes"].as_array().unwrap(), table.as_array().unwrap());
    assert_eq!(measured.len(), listed.len());
    assert!(report["frozen"]["median"].as_f64().unwrap() > 0.0);
    for (measured, listed) in measured.iter().zip(listed) {
        assert_eq!(measured["scheme"], listed["name"]);
        // The tiny model has no heads.
        if ["fudge", "args-reward-head"].contains(&measured["scheme"].as_str().unwrap()) {
            assert!(measured["skipped"].as_str().unwrap().contains("give a head with --head"), "{measured}");
            continue;
        }
        let rate = &measured["tokens_per_second"];
        assert!(rate["min"].as_f64() > Some(0.0) && rate["min"].as_f64() <= rate["median"].as_f64(), "{measured}");
        if cfg!(target_os = "linux") {
            assert!(measured["peak_memory"].as_u64().unwrap() > 1 << 20, "{measured}");
        }
    }
    let one = stdout(&run_on_models("schemes", &[&args[..], &["base"]].concat()));
    assert!(one.contains("medians of 1 turn,") && one.contains("backbone × 1 / token") && !one.contains("greedy  "), "{one}");
}

#[test]
fn a_scheme_is_printed_whole_and_its_files_have_a_schema() {
    let whole: Value = serde_json::from_str(&stdout(&run(["schemes", "best-of-n", "--json"]))).unwrap();
    assert_eq!((&whole["proposal"]["kind"], &whole["proposal"]["repetition_penalty"]), (&"backbone".into(), &1.0.into()));
    assert_eq!((&whole["selector"]["kind"], &whole["blades"]["*"]["beta"]), (&"argmax".into(), &0.1.into()));
    let spec: sk_scheme::SchemeSpec = serde_json::from_value(whole).unwrap();
    assert_eq!(spec, sk_scheme::Shipped::named("best-of-n").unwrap().spec().unwrap());
    let schema: Value = serde_json::from_str(&stdout(&run(["schemes", "--schema"]))).unwrap();
    assert_eq!(schema, sk_scheme::json_schema());
}

#[test]
fn conflicting_options_are_refused() {
    assert_refused(&run(["schemes", "mod", "--schema"]), &["--schema", "cannot be used with"]);
    assert_refused(&run(["schemes", "modd"]), &["unknown scheme \"modd\"", "did you mean \"mod\"?"]);
    for idle in [["--backbone", "x"], ["--device", "cpu"], ["--precision", "int8"], ["--repeat", "2"], ["--seed", "1"]] {
        assert_refused(&run([&["schemes"], &idle[..]].concat()), &["--measure"]);
    }
    let only = ["schemes", "fudge", "--measure"];
    assert_refused(&run_on_models("schemes", &only[1..]), &["give a head with --head"]);
    let long = ["base", "--measure", "--prompt-tokens", "600"];
    assert_refused(&run_on_models("schemes", &long), &["600 prompt tokens", "512", "lower --prompt-tokens or --new-tokens"]);
}

#[test]
fn a_name_that_ships_is_not_a_file_beside() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("greedy"), "no scheme [").unwrap();
    let backbone = models().join("backbone").display().to_string();
    let run = |scheme: &str| {
        let args = ["generate", "Hi", "--scheme", scheme, "--backbone", &backbone, "--max-new-tokens", "2", "--quiet"];
        program().current_dir(folder.path()).args(args).output().unwrap()
    };
    assert!(run("greedy").status.success());
    assert_eq!(run("./greedy").status.code(), Some(2));
}

/// Without a terminal, tables are at most eighty columns wide, and no name or number is split.
#[test]
fn tables_fit_eighty_columns() {
    let fits = |text: &str| {
        let wide = text.lines().find(|line| line.chars().count() > 80);
        assert_eq!(wide, None, "{text}");
    };
    let table = stdout(&run(["schemes"]));
    fits(&table);
    for scheme in sk_scheme::SHIPPED {
        let whole = |line: &str| line.split_whitespace().next() == Some(scheme.name);
        assert!(table.lines().any(whole), "{} is split: {table}", scheme.name);
    }
    let summary = sk_scheme::Shipped::named("swiss-knife").unwrap().spec().unwrap().summary();
    for word in [&summary.normalizer, &summary.aggregator, &summary.selector].into_iter().flat_map(|cell| cell.split_whitespace())
    {
        assert!(table.split_whitespace().any(|shown| shown == word), "{word} is split: {table}");
    }
    let args = ["--measure", "--repeat", "1", "--prompt-tokens", "8", "--new-tokens", "4", "swiss-knife-paper"];
    let measured = stdout(&run_on_models("schemes", &args));
    fits(&measured);
    assert!(measured.contains("swiss-knife-paper"), "{measured}");
    let long = "a-rather-long-name-of-a-scheme";
    let arms = ["Hello", "--max-new-tokens", "8", "--span-tokens", "4", "--arm", &format!("{long}=elo"), "--arm", "drafter"];
    let compared = stdout(&run_on_models("arms", &arms));
    fits(&compared);
    assert!(compared.matches(long).count() >= 3, "{compared}");
    fits(&stdout(&run(["axioms", "copeland", "swiss-elo-paper", "--cases", "100"])));
    fits(&stdout(&run(["simulate", "--study", "influence"])));
}
