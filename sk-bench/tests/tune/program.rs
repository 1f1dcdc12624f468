//! `swiss-knife tune` on a tiny random model, with and without kills, and on the model that ships.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{BLADES, assert_refused, copy_of, model_section, models, program, stderr, stdout};

pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

const TUNED: &str = r#"{"id":"sky","prompt":"Why is the sky blue?","labels":{"axis":"honesty"}}
{"id":"more","prompt":"\n\nHuman: Hi\n\nAssistant: Hello. \n\nHuman: Go on\n\nAssistant:","labels":{"axis":"helpfulness"}}
"#;
const LATER: &str = r#"{"id":"sea","prompt":"Why is the sea blue?"}"#;

const PLAN: &str = r#"
[tune]
trials = 6
startup = 3

[space]
candidates = [2, 4]
fixed = ["w_tour", "rounds"]

[prompts]
sources = ["tune.jsonl"]

[evaluation]
sources = ["later.jsonl"]

[generation]
max_new_tokens = 8
"#;

/// A folder with a plan, prompts to tune on, and prompts to evaluate on.
pub(crate) struct Bench(TempDir);

impl Bench {
    fn new(plan: &str) -> Self {
        let bench = Self(tempfile::tempdir().unwrap());
        fs::write(bench.path("tune.jsonl"), TUNED).unwrap();
        fs::write(bench.path("later.jsonl"), LATER).unwrap();
        fs::write(bench.path("plan.toml"), plan).unwrap();
        bench
    }

    /// Writes the plan, with the tiny model.
    pub(crate) fn tiny(plan: &str) -> Self {
        Self::new(&format!("{plan}\n{}", model_section()))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = program();
        command.arg("tune").arg(self.path("plan.toml")).args(args);
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    pub(crate) fn lines(&self) -> usize {
        fs::read(self.path("plan.jsonl")).unwrap_or_default().iter().filter(|&&byte| byte == b'\n').count()
    }

    /// The trials, without their times.
    pub(crate) fn trials(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path("plan.jsonl")).unwrap();
        let timeless = |line: &str| {
            let mut trial: Value = serde_json::from_str(line).unwrap();
            assert!(trial.as_object_mut().unwrap().remove("elapsed").is_some());
            trial
        };
        text.lines().map(timeless).collect()
    }

    pub(crate) fn result(&self) -> Value {
        serde_json::from_str(&stdout(&self.run(&["--quiet", "--json", "--dry-run"]))).unwrap()
    }
}

#[test]
fn each_objective_is_searched_and_the_mean_is_taken() {
    let bench = Bench::tiny(PLAN);
    let output = bench.run(&[]);
    let text = stdout(&output);
    assert!(text.contains("18 of 18 trials, scored by the blades' own mean μ per token"), "{text}");
    let said = stderr(&output);
    assert_eq!(said.matches("/18 trials · ").count(), 18, "{said}");
    assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
    let trials = bench.trials();
    assert_eq!(trials.len(), 3 * 6);
    // Two prompts at one weight vector; the first trial is the scheme as it is, but N lies outside
    // of the space, so there is none.
    assert!(trials.iter().all(|trial| trial["responses"] == 2 && trial["point"].as_object().unwrap().len() == 5));
    let result = bench.result();
    let rows = result["rows"].as_array().unwrap();
    let what: Vec<&str> = rows.iter().map(|row| row["what"].as_str().unwrap()).collect();
    assert_eq!(rows.len(), 7, "first and best of each, and the mean: {what:?}");
    for search in BLADES {
        let scores = |row: &Value| row["scores"][search].as_f64();
        let of_search = trials.iter().filter(|trial| trial["search"] == search);
        let best = of_search.filter_map(scores).fold(f64::NEG_INFINITY, f64::max);
        let row = rows.iter().find(|row| row["what"] == format!("{search}, best")).unwrap();
        assert_eq!(scores(row), Some(best));
    }
    let best: Vec<&Value> = rows.iter().filter(|row| row["what"].as_str().unwrap().ends_with("best")).collect();
    let mean = &rows.last().unwrap()["point"];
    let temperatures: f64 = best.iter().map(|row| row["point"]["temperature"].as_f64().unwrap().ln()).sum();
    assert!((mean["temperature"].as_f64().unwrap().ln() - temperatures / 3.0).abs() < 1e-9, "geometric");
    let lambdas: f64 = best.iter().map(|row| row["point"]["lambda"].as_f64().unwrap()).sum();
    assert!((mean["lambda"].as_f64().unwrap() - lambdas / 3.0).abs() < 1e-9, "arithmetic");
    assert!(result["use"].as_str().unwrap().starts_with("--scheme swiss-knife --temperature "), "{result}");
}

#[test]
fn a_killed_search_goes_on_with_the_same_trials() {
    let undisturbed = Bench::tiny(PLAN);
    stdout(&undisturbed.run(&["--quiet"]));
    // On a busy machine a search may end before it is killed. Such a run shows nothing, so another
    // one starts.
    let mut benches = (0..20).map(|_| Bench::tiny(PLAN));
    let bench = benches.find(|bench| kills(bench) >= 3).expect("one of twenty searches is hit before it ends");
    stdout(&bench.run(&["--quiet"]));
    assert_eq!(bench.trials(), undisturbed.trials());
}

/// Kills five searches in one folder, one after another. Returns how many had not ended before.
fn kills(bench: &Bench) -> usize {
    let mut kills = 0;
    for moment in 0..5 {
        let mut child = bench.command(&["--quiet"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let (start, before) = (Instant::now(), bench.lines());
        while bench.lines() < before + moment && child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < PATIENCE, "the search hangs");
            sleep(Duration::from_millis(1));
        }
        // In the middle of a trial, each time at a different point of it.
        sleep(Duration::from_millis(3 * moment as u64));
        kills += usize::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    kills
}

#[test]
fn all_objectives_are_searched_together() {
    let bench = Bench::tiny(&PLAN.replace("[tune]\n", "[tune]\nsearch = \"together\"\n"));
    stdout(&bench.run(&["--quiet"]));
    let trials = bench.trials();
    assert_eq!(trials.len(), 6);
    assert!(trials.iter().all(|trial| trial["search"] == "together" && trial["scores"].as_object().unwrap().len() == 3));
    let result = bench.result();
    let rows = result["rows"].as_array().unwrap();
    let of = |what: &str| rows.iter().filter(|row| row["what"] == what).collect::<Vec<_>>();
    assert!(!of("front").is_empty() && of("balanced").len() == 1);
    assert!(of("front").iter().any(|row| row["trial"] == of("balanced")[0]["trial"]), "the balanced point is on the front");
}

#[test]
fn prompts_of_the_evaluation_are_refused() {
    let bench = Bench::tiny(PLAN);
    fs::write(bench.path("later.jsonl"), "{\"id\":\"x\",\"prompt\":\"WHY is  the sky blue?\"}\n").unwrap();
    assert_refused(&bench.run(&["--quiet"]), &["1 of the 2 tuning prompts", "\"sky\"", "\"x\""]);
    assert!(!bench.path("plan.jsonl").exists(), "nothing was begun");
    let bench = Bench::tiny(&format!("{PLAN}\n[objectives.helpful]\nprompts = \"humour\"\n"));
    assert_refused(&bench.run(&["--quiet"]), &["no prompt has the label axis = \"humour\"", "helpfulness, honesty"]);
}

#[test]
fn an_objective_needs_the_blade_that_scores_it() {
    let fixed = "fixed = [\"w_tour\", \"w_blade\", \"lambda\", \"rounds\", \"candidates\", \"alpha\"]";
    let plan = PLAN.replace("[tune]\n", "[tune]\nsearch = \"together\"\n").replace("candidates = [2, 4]\n", "");
    let plan = plan.replace("fixed = [\"w_tour\", \"rounds\"]", fixed);
    let bench = Bench::tiny(&format!("{plan}\n[scheme]\nscheme = \"base\"\n"));
    let lacks = ["objective \"", "its blade \"h", "which has backbone"];
    assert_refused(&bench.run(&["--quiet", "--dry-run"]), &lacks);
    assert_refused(&bench.run(&["--quiet"]), &lacks);
    assert!(!bench.path("plan.trials").exists(), "nothing was begun");
}

#[test]
fn another_plan_needs_another_output() {
    let bench = Bench::tiny(&PLAN.replace("trials = 6", "trials = 1"));
    stdout(&bench.run(&["--quiet"]));
    let plan = fs::read_to_string(bench.path("plan.toml")).unwrap();
    fs::write(bench.path("plan.toml"), plan.replace("max_new_tokens = 8", "max_new_tokens = 9")).unwrap();
    assert_refused(&bench.run(&["--quiet"]), &["plan.jsonl:1:", "other settings"]);
    fs::write(bench.path("plan.toml"), plan.replace("trials = 1", "trials = 2")).unwrap();
    stdout(&bench.run(&["--quiet"]));
    let counts = bench.trials().iter().fold(BTreeMap::new(), |mut counts: BTreeMap<String, usize>, trial| {
        *counts.entry(trial["search"].as_str().unwrap().to_owned()).or_default() += 1;
        counts
    });
    assert!(counts.values().all(|count| *count == 2), "{counts:?}");
    fs::write(bench.path("plan.toml"), plan).unwrap();
    let text = stdout(&bench.run(&["--quiet"]));
    assert!(text.contains("6 of 6 trials"), "{text}");
}

#[test]
fn a_search_is_bound_to_the_weights_it_ran_on() {
    let bench = Bench::tiny(&PLAN.replace("trials = 6", "trials = 1"));
    let own = copy_of("blades/honest", &bench.path(""));
    let plan = fs::read_to_string(bench.path("plan.toml")).unwrap();
    let plan = plan.replace(&models().join("blades/honest").display().to_string(), &own.display().to_string());
    fs::write(bench.path("plan.toml"), &plan).unwrap();
    stdout(&bench.run(&["--quiet"]));
    fs::write(bench.path("plan.toml"), plan.replace("[model]\n", "[model]\nprecision = \"bf16\"\n")).unwrap();
    assert_refused(&bench.run(&["--quiet"]), &["plan.jsonl:1:", "other settings"]);
    fs::write(bench.path("plan.toml"), &plan).unwrap();
    let weights = own.join("adapter_model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, bytes).unwrap();
    assert_refused(&bench.run(&["--quiet"]), &["plan.jsonl:1:", "other settings"]);
}

#[test]
fn trials_that_were_scored_on_prompts_with_other_labels_are_refused() {
    let plan = PLAN.replace("trials = 6", "trials = 1") + "[objectives.helpful]\nprompts = \"honesty\"\n";
    let bench = Bench::tiny(&plan);
    stdout(&bench.run(&["--quiet"]));
    let swapped = TUNED.replace("honesty", "other").replace("helpfulness", "honesty");
    fs::write(bench.path("tune.jsonl"), swapped).unwrap();
    assert_refused(&bench.run(&["--quiet"]), &["plan.jsonl:1:", "other settings"]);
}

#[test]
fn prompts_are_no_ledger() {
    for name in ["tune.jsonl", "later.jsonl"] {
        let bench = Bench::tiny(&PLAN.replace("[tune]\n", &format!("[tune]\noutput = {name:?}\n")));
        let before = fs::read(bench.path(name)).unwrap();
        assert_refused(&bench.run(&["--quiet"]), &[name, "holds prompts of the plan", "another output"]);
        assert_eq!(fs::read(bench.path(name)).unwrap(), before);
    }
    let bench = Bench::tiny(&PLAN.replace("[tune]\n", "[tune]\noutput = \"model.jsonl\"\n"));
    fs::write(bench.path("model.jsonl"), "{\"a\": 1}").unwrap();
    assert_refused(&bench.run(&["--quiet"]), &["model.jsonl:1:", "not a trial"]);
    assert_eq!(fs::read_to_string(bench.path("model.jsonl")).unwrap(), "{\"a\": 1}");
}

#[test]
fn a_judge_that_needs_no_server_scores_and_a_second_run_asks_it_nothing() {
    let plan = PLAN.replace("trials = 6\nstartup = 3", "trials = 2\nstartup = 1") + "[judge]\noffline = true\n";
    let bench = Bench::new(&plan);
    let text = stdout(&bench.run(&["--quiet"]));
    assert!(text.contains("6 of 6 trials, scored by the judge"), "{text}");
    let trials = bench.trials();
    let scores = trials.iter().map(|trial| trial["scores"].as_object().unwrap().values().next().unwrap().as_f64().unwrap());
    assert!(scores.clone().all(|score| (0.0..=1.0).contains(&score)), "{trials:?}");
    let judged = bench.path("plan.trials").join("harmless-000.judged.jsonl");
    // Two responses by the one rubric of safety. A trial that the ledger has lost is scored again
    // from the judgements on disk.
    let before = fs::read_to_string(&judged).unwrap();
    assert_eq!(before.lines().filter(|line| line.contains("\"harmfulness\"")).count(), 2, "{before}");
    fs::remove_file(bench.path("plan.jsonl")).unwrap();
    stdout(&bench.run(&["--quiet"]));
    assert_eq!(bench.trials(), trials);
    assert_eq!(fs::read_to_string(&judged).unwrap(), before);
}

/// The blades score recorded steps. Trials that a judge scores record none.
#[test]
fn responses_of_a_judge_are_not_scored_by_the_blades() {
    let plan = PLAN.replace("trials = 6", "trials = 1");
    let bench = Bench::new(&format!("{plan}[judge]\noffline = true\n"));
    stdout(&bench.run(&["--quiet"]));
    fs::remove_file(bench.path("plan.jsonl")).unwrap();
    fs::write(bench.path("plan.toml"), &plan).unwrap();
    let says = ["trial 0 of ", "has no steps of response", "made for a judge", "give [tune] another output"];
    assert_refused(&bench.run(&["--quiet"]), &says);
    // Some of the responses are lost, as after an interruption.
    let trials = fs::read_dir(bench.path("plan.trials")).unwrap().map(|entry| entry.unwrap().path());
    let is_output = |path: &PathBuf| path.to_str().unwrap().ends_with("-000.jsonl");
    for output in trials.filter(is_output).collect::<Vec<_>>() {
        let text = fs::read_to_string(&output).unwrap();
        fs::write(&output, text.split_inclusive('\n').next().unwrap()).unwrap();
    }
    assert_refused(&bench.run(&["--quiet"]), &says);
}

#[test]
fn the_model_that_ships_is_tuned() {
    let plan =
        PLAN.replace("trials = 6\nstartup = 3", "trials = 3\nstartup = 2") + "[objectives.harmless]\nprompts = \"helpfulness\"\n";
    let bench = Bench::new(&plan);
    let output = bench.run(&[]);
    let text = stdout(&output);
    assert!(text.contains("3 of 3 trials") && text.contains("harmless, best"), "{text}");
    assert_eq!(
        stderr(&output).lines().filter(|line| line.contains("/3 trials · ") && line.contains("left · harmless ")).count(),
        3,
        "{}",
        stderr(&output)
    );
    let trials = bench.trials();
    assert!(trials.iter().all(|trial| trial["responses"] == 1 && trial["scores"]["harmless"].is_number()), "{trials:?}");
}
