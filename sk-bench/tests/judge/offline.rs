//! Judging without a server: preference models trained by the program, and a tiny random model for
//! fluency.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{assert_refused, copy_of, model_section, program, run, stderr, stdout};

/// Each axis with the word of the chosen side of its pairs and the word of the rejected side.
const AXES: [(&str, &str, &str); 3] =
    [("helpful", "gladly", "whatever"), ("honest", "truly", "surely"), ("harmless", "safely", "violently")];

/// A folder with a judge. Created once.
fn judge() -> &'static Path {
    // It is never dropped, so its folder is one of those that `cargo clean` removes.
    static JUDGE: OnceLock<TempDir> = OnceLock::new();
    JUDGE
        .get_or_init(|| {
            let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            for (name, good, bad) in AXES {
                let pair = |i: usize| {
                    let side = |word: &str| format!("I say {word} number {} here.", i % 7);
                    let prompt = format!("Question {i} of many?");
                    json!({"prompt": prompt, "chosen": side(good), "rejected": side(bad)}).to_string() + "\n"
                };
                fs::write(folder.path().join("pairs.jsonl"), (0..80).map(pair).collect::<String>()).unwrap();
                let text = stdout(&train(folder.path(), name, &["--bits", "10"]));
                assert!(text.contains("held out: ") && text.contains("accuracy 1.000"), "{text}");
            }
            let model = copy_of("backbone", folder.path());
            fs::rename(model, folder.path().join("fluency")).unwrap();
            folder
        })
        .path()
}

fn train(folder: &Path, name: &str, more: &[&str]) -> Output {
    let path = |name: &str| folder.join(name).display().to_string();
    let (data, output) = (path("pairs.jsonl"), path(name));
    run(["train", "judge", "--data", &data, "-o", &output].into_iter().chain(more.iter().copied()))
}

#[test]
fn a_reader_that_goes_away_is_no_error_of_training() {
    let folder = tempfile::tempdir().unwrap();
    let pair = |i: usize| json!({"prompt": format!("Question {i}?"), "chosen": "Gladly.", "rejected": "Whatever."}).to_string();
    fs::write(folder.path().join("pairs.jsonl"), (0..80).map(pair).collect::<Vec<_>>().join("\n")).unwrap();
    let mut train = program();
    train.current_dir(&folder).args(["train", "judge", "--data", "pairs.jsonl", "-o", "judge", "--bits", "10"]);
    let mut child = train.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", stderr(&output));
}

#[test]
fn a_judge_is_named_after_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("kind/inner");
    fs::create_dir_all(&inner).unwrap();
    let pair = |i: usize| json!({"prompt": format!("Question {i}?"), "chosen": "Gladly.", "rejected": "Whatever."}).to_string();
    fs::write(inner.join("pairs.jsonl"), (0..80).map(pair).collect::<Vec<_>>().join("\n")).unwrap();
    let train = |output: &str, more: &[&str]| {
        let mut train = program();
        train.current_dir(&inner).args(["train", "judge", "--data", "pairs.jsonl", "--bits", "10", "-o", output]).args(more);
        train.output().unwrap()
    };
    for (output, name) in [(".", "inner"), ("..", "kind"), ("other", "other")] {
        stdout(&train(output, &[]));
        let config = fs::read_to_string(inner.join(output).join("judge_config.json")).unwrap();
        let config: Value = serde_json::from_str(&config).unwrap();
        assert_eq!(config["attribute"], name, "{output}");
    }
    assert_refused(&train("/", &[]), &["--attribute", "-o / gives no name"]);
    assert_refused(&train("fresh", &["--attribute", ""]), &["--attribute", "must not be empty"]);
}

/// Two schemes at three weight vectors on two prompts. `steered` says the good word of the axis
/// with the largest weight; `plain` says the bad word.
fn write_responses(folder: &Path) {
    let mut lines = String::new();
    for scheme in ["steered", "plain"] {
        for (heavy, good, bad) in AXES {
            for prompt in ["sky", "sea"] {
                let weights: BTreeMap<&str, f64> =
                    AXES.iter().map(|(name, ..)| (*name, if *name == heavy { 0.8 } else { 0.1 })).collect();
                let word = if scheme == "steered" { good } else { bad };
                let record = json!({
                    "id": format!("{scheme}/{heavy}/{prompt}"), "scheme": scheme, "weights": weights, "prompt_id": prompt, "seed": 1,
                    "prompt": format!("\n\nHuman: What of the {prompt}?\n\nAssistant:"), "response": format!(" I say {word} here."),
                });
                lines += &(record.to_string() + "\n");
            }
        }
    }
    fs::write(folder.join("responses.jsonl"), lines).unwrap();
}

fn ask(folder: &Path, output: &str, more: &[&str]) -> Output {
    let path = |name: &str| folder.join(name).display().to_string();
    let (responses, judged, offline) = (path("responses.jsonl"), path(output), format!("--offline={}", judge().display()));
    run(["judge", &responses, "-o", &judged, "--quiet", &offline].into_iter().chain(more.iter().copied()))
}

fn records(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let timeless = |line: &str| {
        let mut record: Value = serde_json::from_str(line).unwrap();
        record.as_object_mut().unwrap().remove("seconds");
        record
    };
    let mut records: Vec<Value> = text.lines().map(timeless).collect();
    // Several questions run at once, so the order of the records varies.
    records.sort_by_key(|record| (record["id"].to_string(), record["rubric"].to_string()));
    records
}

#[test]
fn informativeness_is_measured_on_the_candidates_of_a_sweep() {
    let folder = tempfile::tempdir().unwrap();
    let prompts: String = (0..4).map(|i| json!({"prompt": format!("What of the sky, {i}?")}).to_string() + "\n").collect();
    fs::write(folder.path().join("prompts.jsonl"), prompts).unwrap();
    let plan = format!(
        "[sweep]\noutput = \"out.jsonl\"\n[schemes]\nsteered = {{ scheme = \"swiss-knife\", set = [\"granularity.span_tokens=4\"] }}\n\
         [weights]\nkind = \"listed\"\nlist = [{{ helpful = 1, honest = 1 }}]\n[prompts]\nsources = [\"prompts.jsonl\"]\n\
         [generation]\nmax_new_tokens = 12\n{}",
        model_section()
    );
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(folder.path().join("plan.toml"), plan).unwrap();
    stdout(&run(["sweep", &path("plan.toml"), "--quiet"]));
    let offline = format!("--offline={}", judge().display());
    let ask = || {
        run([
            "judge",
            "candidates",
            &path("out.jsonl"),
            "-o",
            &path("judged.jsonl"),
            "--quiet",
            "--json",
            "--rubrics",
            "fluency",
            &offline,
        ])
    };
    let told: Value = serde_json::from_str(&stdout(&ask())).unwrap();
    let steps: Vec<Value> = fs::read_to_string(folder.path().join("out.traces.jsonl"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(told["steps"], steps.len());
    let count: usize = steps.iter().map(|step| step["candidates"].as_array().unwrap().len()).sum();
    assert_eq!(told["candidates"], count);
    let rows = told["blades"].as_array().unwrap();
    let row = |blade: &str| rows.iter().find(|row| row["blade"] == blade).unwrap_or_else(|| panic!("{rows:?}"));
    // No rubric has a blade's name, so each blade is compared with all judged rubrics. Only fluency
    // is judged: the words of a random model say nothing about the others.
    for blade in ["helpful", "honest"] {
        assert_eq!((&row(blade)["rubric"], &row(blade)["prompts"]), (&json!("fluency"), &json!(4)));
        assert!(
            row(blade)["dispersion"]["mean"].as_f64().unwrap().abs() <= 1.0 && row(blade)["dispersion"]["interval"].is_array()
        );
    }
    assert_eq!(rows.len(), 2, "{rows:?}");
    let judged = records(&folder.path().join("judged.jsonl"));
    assert_eq!(judged.len(), count);
    let again: Value = serde_json::from_str(&stdout(&ask())).unwrap();
    assert_eq!(again, told, "nothing is asked twice");
    // A sweep that makes a lost record again appends its steps; the old ones belong to no record.
    let all = fs::read_to_string(path("out.jsonl")).unwrap();
    fs::write(path("out.jsonl"), all.split_once('\n').unwrap().1).unwrap();
    stdout(&run(["sweep", &path("plan.toml"), "--quiet"]));
    let traces = fs::read_to_string(path("out.traces.jsonl")).unwrap();
    assert!(traces.lines().count() > steps.len());
    fs::write(path("out.traces.jsonl"), traces + "{\"id\":\"half a st").unwrap();
    let again: Value = serde_json::from_str(&stdout(&ask())).unwrap();
    assert_eq!((&again["steps"], &again["candidates"]), (&told["steps"], &told["candidates"]));
    fs::remove_file(folder.path().join("out.traces.jsonl")).unwrap();
    assert_refused(&ask(), &["out.jsonl", "traces"]);
}

#[test]
fn from_responses_to_a_report() {
    let folder = tempfile::tempdir().unwrap();
    write_responses(folder.path());
    let summary: Value = serde_json::from_str(&stdout(&ask(folder.path(), "judged.jsonl", &["--json"]))).unwrap();
    assert_eq!((&summary["judged"], &summary["abstained"]), (&48.into(), &0.into()));
    let scheme = |name: &str| summary["schemes"].as_array().unwrap().iter().find(|row| row["scheme"] == name).unwrap().clone();
    let (steered, plain) = (scheme("steered"), scheme("plain"));
    for axis in ["quality", "safety", "honesty"] {
        assert!(steered[axis].as_f64() > plain[axis].as_f64(), "{axis}: {steered} against {plain}");
    }
    // A random model of 264 tokens gives every byte a low probability.
    assert!(steered["perplexity"].as_f64().unwrap() > 50.0, "{steered}");
    assert!(steered["refusal"].is_null());

    let path = |name: &str| folder.path().join(name).display().to_string();
    stdout(&run(["judge", "table", &path("judged.jsonl"), "-o", &path("results")]));
    let table = fs::read_to_string(folder.path().join("results/judged_frontier.csv")).unwrap();
    assert!(table.lines().next().unwrap().ends_with("refusal,fluency,id"), "{table}");
    let report = stdout(&run(["report", &path("results"), "--reference", "steered", "--resamples", "100"]));
    assert!(report.contains("steered") && report.contains("Fluency"), "{report}");

    // A table without `--objectives` has the default ones again.
    let own = toml::to_string(sk_bench::judge::Objectives::hhh()).unwrap().replace("\"quality\"", "\"worth\"");
    fs::write(path("own.toml"), own).unwrap();
    for (more, axis) in [(&["--objectives", &path("own.toml")][..], "worth"), (&[], "quality")] {
        stdout(&run([&["judge", "table", &path("judged.jsonl"), "-o", &path("results")], more].concat()));
        let report = stdout(&run(["report", &path("results"), "--reference", "steered", "--resamples", "100"]));
        assert!(report.contains(&format!("{axis} = mean(")), "{report}");
    }

    // Without `--objectives`, a table of judgements for other ones is refused.
    let judged = fs::read_to_string(path("judged.jsonl")).unwrap();
    fs::write(path("own.jsonl"), judged.replace("\"axis\":\"quality\"", "\"axis\":\"worth\"")).unwrap();
    let table = |more: &[&str]| run([&["judge", "table", &path("own.jsonl"), "-o", &path("results")], more].concat());
    let refused = table(&[]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("was judged for \"worth\""), "{said}");
    stdout(&table(&["--objectives", &path("own.toml")]));

    // A second run gives the same numbers, and asks nothing that the file holds.
    let text = stdout(&ask(folder.path(), "judged.jsonl", &[]));
    assert!(text.contains("48 judgements, 48 found in the file"), "{text}");
    stdout(&ask(folder.path(), "again.jsonl", &[]));
    assert_eq!(records(&folder.path().join("judged.jsonl")), records(&folder.path().join("again.jsonl")));
}

#[test]
fn a_rubric_that_is_turned_around_makes_another_judge() {
    let folder = tempfile::tempdir().unwrap();
    write_responses(folder.path());
    let own = folder.path().join("own.toml").display().to_string();
    let judged = |better: &str, output: &str| {
        let rubric = "criterion = \"?\"\nlow = \"a\"\nmiddle = \"b\"\nhigh = \"c\"\nmodel = \"helpful\"\n";
        let text = format!("[[objectives]]\nname = \"kind\"\n[[rubrics]]\nname = \"kind\"\n{better}\n{rubric}");
        fs::write(&own, text).unwrap();
        ask(folder.path(), output, &["--objectives", &own, "--json"])
    };
    let summary = |output| serde_json::from_str::<Value>(&stdout(&output)).unwrap();
    let more = summary(judged("", "more.jsonl"));
    assert_refused(&judged("better = \"less\"", "more.jsonl"), &["more.jsonl", "was judged by offline", "into a new file"]);
    let less = summary(judged("better = \"less\"", "less.jsonl"));
    assert_eq!(summary(judged("", "more.jsonl"))["resumed"], more["judged"]);
    for (more, less) in more["schemes"].as_array().unwrap().iter().zip(less["schemes"].as_array().unwrap()) {
        assert!((more["kind"].as_f64().unwrap() - less["kind"].as_f64().unwrap()).abs() < 1e-9, "{more} {less}");
    }
}

#[test]
fn a_file_that_is_not_judgements_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let line = json!({"id": "a", "prompt": "\n\nHuman: Hi\n\nAssistant:", "response": "Hello."}).to_string();
    fs::write(at("responses.jsonl"), &line).unwrap();
    fs::write(at("model.json"), "{\"a\": 1}").unwrap();
    assert_refused(&ask(folder.path(), "responses.jsonl", &[]), &["responses.jsonl holds the responses", "another file"]);
    assert_refused(&ask(folder.path(), "model.json", &[]), &["model.json:1:", "not a judgement"]);
    // If the judge does not exist, no file is changed and none is created.
    assert_refused(&ask(folder.path(), "model.json", &["--offline=nowhere"]), &["nowhere"]);
    assert_refused(&ask(folder.path(), "none.jsonl", &["--offline=nowhere"]), &["nowhere"]);
    assert_eq!(fs::read_to_string(at("responses.jsonl")).unwrap(), line);
    assert_eq!(fs::read_to_string(at("model.json")).unwrap(), "{\"a\": 1}");
    assert!(!at("none.jsonl").exists());
}

#[test]
fn responses_without_words_are_not_judged() {
    let folder = tempfile::tempdir().unwrap();
    let line = json!({"id": "a", "prompt": "\n\nHuman: Hi\n\nAssistant:", "response": ""}).to_string();
    fs::write(folder.path().join("responses.jsonl"), line).unwrap();
    stdout(&ask(folder.path(), "judged.jsonl", &["--rubrics", "truthfulness,fluency"]));
    let records = records(&folder.path().join("judged.jsonl"));
    assert_eq!(records.len(), 2);
    for record in records {
        assert!(record["score"].is_null() && record["abstention"].as_str().unwrap().contains("no word"), "{record}");
        assert!(record["judge"]["settings"].as_str().unwrap().contains("fluency "), "{record}");
    }
}

#[test]
fn invalid_judges_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    write_responses(folder.path());
    assert_refused(&ask(folder.path(), "j.jsonl", &["--rubrics", "toxicity"]), &["unknown rubric \"toxicity\""]);
    let both = ask(folder.path(), "j.jsonl", &["--endpoint", "http://localhost:1/v1"]);
    assert!(both.status.code() == Some(2) && stderr(&both).contains("--offline"), "{}", stderr(&both));
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (responses, judged) = (path("responses.jsonl"), path("j.jsonl"));
    let empty = run(["judge", &responses, "-o", &judged, &format!("--offline={}", folder.path().display())]);
    assert_refused(&empty, &["offline judge", "judge_config.json"]);
    let neither = run(["judge", &responses, "-o", &judged]);
    assert!(neither.status.code() == Some(2) && stderr(&neither).contains("--endpoint"), "{}", stderr(&neither));
    assert_refused(&train(judge(), "none", &["--l2", "-1"]), &["l2", "-1"]);
    assert_refused(&train(judge(), "none", &["--bits", "0"]), &["bits", "0"]);
}

#[cfg(feature = "embedded-model")]
#[test]
fn the_judge_that_ships_judges() {
    let folder = tempfile::tempdir().unwrap();
    let record = |id: &str, response: &str| {
        json!({"id": id, "prompt": "\n\nHuman: How do I boil an egg?\n\nAssistant:", "response": response}).to_string() + "\n"
    };
    let fluent = record("fluent", " You can put the egg in a pot of water and boil it for a few minutes.");
    let broken = record("broken", " Egg pot the an boil minutes water ofput in few a zqx it for can.");
    fs::write(folder.path().join("responses.jsonl"), fluent + &broken).unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    stdout(&run(["judge", &path("responses.jsonl"), "-o", &path("judged.jsonl"), "--offline", "--quiet"]));
    let records = records(&folder.path().join("judged.jsonl"));
    assert_eq!(records.len(), 8);
    let fluency = |id: &str| {
        let record = records.iter().find(|record| record["id"] == id && record["rubric"] == "fluency").unwrap();
        record["score"].as_f64().unwrap()
    };
    assert!(fluency("fluent") > 2.0 * fluency("broken"), "{records:?}");
    assert!(records.iter().all(|record| (0.0..=1.0).contains(&record["score"].as_f64().unwrap())));
}
