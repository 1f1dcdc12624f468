//! What a sweep records for a cell, and which commands read it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;
use sk_bench::judge::read_responses;
use sk_report::record::read_records;
use sk_report::settings::read_settings;

use crate::common::{assert_refused, copy_of, model_section, models, run, run_on_models, stderr, stdout};
use crate::{Bench, CELLS, PLAN, steps};

/// A scheme that has a certificate for every batch.
const CERTIFIED: &str = "[normalizer]\nkind = \"raw\"\n[aggregator]\nkind = \"thurstone\"\nstandardize = false\nalpha = 0\n\
                         [selector]\nkind = \"softmax\"\ntemperature = 0.5\n";

#[test]
fn a_sweep_answers_every_cell_and_the_judge_reads_the_answers() {
    let bench = Bench::new(PLAN);
    let error = stderr(&bench.run(&[]));
    assert!(error.contains("28 cells, 0 done") && error.contains("28 cells are in "), "{error}");
    let listed = stdout(&bench.run(&["--dry-run", "--quiet"]));
    assert!(listed.lines().all(|line| line.starts_with("done ")), "{listed}");

    let records = read_records(&bench.path("plan.jsonl")).unwrap();
    let responses = read_responses(&bench.path("plan.jsonl")).unwrap();
    assert_eq!((records.len(), responses.len()), (CELLS, CELLS));
    for (record, response) in records.iter().zip(&responses) {
        assert_eq!((&record.id, &record.prompt, &record.response), (&response.id, &response.prompt, &response.response));
        assert_eq!((Some(&record.scheme), Some(&record.prompt_id)), (response.scheme.as_ref(), response.prompt_id.as_ref()));
        assert_eq!((&record.weights, Some(record.seed)), (&response.weights, response.seed));
        let expected = if record.scheme == "base" { 0 } else { 3 };
        assert_eq!(record.weights.len(), expected);
        assert!(record.tokens <= 20 && record.steps >= 1 && record.elapsed > 0.0 && record.seconds.total() > 0.0);
        let axis = if record.prompt_id == "sky" { "honesty" } else { "helpfulness" };
        assert_eq!((record.axis.as_deref(), record.device.as_str()), (Some(axis), "cpu"));
    }
    let draws: BTreeSet<u64> = records.iter().map(|record| record.draws).collect();
    assert_eq!(draws.len(), CELLS, "every cell draws for itself");
    let settings: BTreeSet<&str> = records.iter().map(|record| record.settings.as_str()).collect();
    assert_eq!(settings.len(), 3, "one per scheme");

    // The file of traces has no gaps, and `certify` reads it.
    let traces = bench.path("plan.traces.jsonl");
    let end = records.iter().map(|record| record.trace.unwrap().end()).max().unwrap();
    assert_eq!(fs::metadata(&traces).unwrap().len(), end);
    let scheme = bench.path("certified.toml");
    fs::write(&scheme, CERTIFIED).unwrap();
    let report = stdout(&run(["certify", traces.to_str().unwrap(), "--scheme", scheme.to_str().unwrap(), "--json"]));
    let report: Value = serde_json::from_str(&report).unwrap();
    let count: usize = records.iter().map(|record| record.steps).sum();
    assert_eq!(report["batches"].as_array().unwrap().len(), count);
    for record in bench.records() {
        let steps = steps(&traces, &record["trace"]);
        let expected = match record["scheme"].as_str().unwrap() {
            "swiss-knife" => 7,
            "cool" => 3,
            // A trace keeps the 16 most probable tokens of a vocabulary.
            _ => 16,
        };
        assert!(steps.iter().all(|step| step["candidates"].as_array().unwrap().len() == expected), "{record}");
        assert!(steps.iter().all(|step| step["chosen"].as_u64().unwrap() < expected as u64));
    }
}

#[test]
fn a_cell_is_what_generate_writes_with_its_seed() {
    let bench = Bench::new(PLAN);
    bench.finish();
    let records = bench.records();
    let cells = records.iter().filter(|r| r["scheme"] == "cool" && r["weights"]["honest"] == 0.5);
    for record in cells.clone() {
        let seed = record["draws"].to_string();
        let settings = ["--set", "selector.temperature=0.5", "--set", "proposal.candidates=3", "--scheme", "swiss-knife"];
        // `generate` reads a dialogue as the sweep does, and frames a plain question as the sweep
        // does.
        let prompt = record["prompt"].as_str().unwrap();
        let prompt = if record["prompt_id"] == "sky" { "Why is the sky blue?" } else { prompt };
        let args = [prompt, "--max-new-tokens", "20", "--json", "--quiet", "-w", "helpful=1,honest=1"];
        let report = stdout(&run_on_models("generate", &[&args[..], &settings, &["--seed", &seed]].concat()));
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!((&report["text"], &report["ended"]), (&record["response"], &record["ended"]));
    }
    assert_eq!(cells.count(), 4);
}

/// Uses the model that ships, whose answer after "Assistant:" begins with a space.
#[cfg(feature = "embedded-model")]
#[test]
fn a_cell_without_a_frame_is_what_generate_writes_with_its_seed() {
    let bench = Bench::new("");
    let prompts = "[prompts]\nsources = [\"prompts.jsonl\"]\n[generation]\nmax_new_tokens = 8\nframing = \"none\"\n";
    let weights = "[weights]\nkind = \"listed\"\nlist = [{ helpful = 1 }]\n";
    let model = "[model]\ndevice = \"cpu\"\n[schemes.swiss-knife]\n";
    fs::write(bench.path("plan.toml"), format!("{model}{weights}{prompts}")).unwrap();
    bench.finish();
    for record in bench.records() {
        let (prompt, seed) = (record["prompt"].as_str().unwrap(), record["draws"].to_string());
        let args = ["generate", prompt, "--framing", "none", "--max-new-tokens", "8", "-w", "helpful=1", "--seed", &seed];
        let report = stdout(&run([&args[..], &["--json", "--quiet", "--device", "cpu"]].concat()));
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["text"], record["response"]);
        assert!(report["text"].as_str().unwrap().starts_with(' '), "{report}");
    }
}

#[test]
fn the_order_of_a_plan_changes_no_answer() {
    let (bench, other) = (Bench::new(PLAN), Bench::new(""));
    bench.finish();
    let reversed = PLAN
        .replace("seeds = [1, 2]", "seeds = [2, 1]\noutput = \"plan.jsonl\"")
        .replace("[schemes.swiss-knife]\n", "")
        .replace("[weights]", "[schemes.swiss-knife]\n[weights]")
        .replace(
            "[{ helpful = 1 }, { helpful = 1, honest = 1 }, ",
            "[{ honest = 2, helpful = 2 }, { helpful = 3, harmless = 0 }, ",
        );
    other.plan(&reversed);
    let lines: Vec<&str> = crate::PROMPTS.lines().rev().collect();
    fs::write(other.path("prompts.jsonl"), lines.join("\n")).unwrap();
    other.finish();
    assert_ne!(bench.records()[0]["id"], other.records()[0]["id"]);
    assert_eq!(bench.answers(), other.answers());
}

#[test]
fn cells_that_are_answered_at_once_have_the_answers_of_one_at_a_time() {
    let answers = ["1", "9"].map(|at_once| {
        let bench = Bench::new(PLAN);
        stdout(&bench.run(&["--quiet", "--at-once", at_once]));
        bench.answers()
    });
    assert_eq!(answers[0].len(), CELLS);
    assert_eq!(answers[0], answers[1]);
}

#[test]
fn without_traces_no_steps_are_kept() {
    let bench = Bench::new(&PLAN.replace("[sweep]", "[sweep]\ntraces = false").replace("[1, 2]", "[1]"));
    bench.finish();
    assert!(!bench.path("plan.traces.jsonl").exists());
    assert!(bench.records().iter().all(|record| record.get("trace").is_none()));
}

#[test]
fn the_folder_of_the_output_is_made() {
    let bench = Bench::new(&PLAN.replace("[sweep]", "[sweep]\noutput = \"new/folder/out.jsonl\"").replace("[1, 2]", "[1]"));
    stdout(&bench.run(&["--quiet"]));
    assert!(bench.path("new/folder/out.jsonl").is_file());
}

#[test]
fn a_plan_may_grow_but_not_change_what_was_made() {
    let bench = Bench::new(&PLAN.replace("[1, 2]", "[1]"));
    bench.finish();
    let first = bench.answers();
    bench.plan(PLAN);
    bench.finish();
    let grown = bench.answers();
    assert_eq!(grown.len(), CELLS);
    assert!(first.iter().all(|(id, answer)| grown[id] == *answer), "what was there is kept");
    bench.plan(&PLAN.replace("[schemes.base]", ""));
    let error = stderr(&bench.run(&["--dry-run"]));
    assert!(error.contains("24 cells, 24 done; 4 records of other cells are kept"), "{error}");

    let refused = |plan: &str, parts: &[&str]| {
        bench.plan(plan);
        assert_refused(&bench.run(&[]), parts);
    };
    // Records of cells that the plan no longer lists count as well.
    refused(&PLAN.replace("= 20", "= 21").replace("[1, 2]", "[3]"), &["plan.jsonl:1:", "other settings", "another output"]);
    refused(&PLAN.replace("= 20", "= 21"), &["plan.jsonl:1:", "other settings", "another output"]);
    refused(&PLAN.replace("=0.5", "=0.6"), &["plan.jsonl:", "cell cool/", "other settings"]);
    let prompts = crate::PROMPTS.replace("blue", "red");
    fs::write(bench.path("prompts.jsonl"), prompts).unwrap();
    refused(PLAN, &["plan.jsonl:1:", "prompt \"sky\" has another text"]);
    fs::write(bench.path("prompts.jsonl"), crate::PROMPTS.replace("\"honesty\"", "\"safety\"")).unwrap();
    refused(PLAN, &["plan.jsonl:1:", "prompt \"sky\" has another label \"axis\" than in the plan", "another output"]);
    fs::write(bench.path("prompts.jsonl"), crate::PROMPTS).unwrap();
    fs::write(bench.path("plan.jsonl"), "{\"id\":1}\n").unwrap();
    refused(PLAN, &["plan.jsonl:1:", "not a record of a sweep"]);
}

#[test]
fn a_sweep_is_bound_to_the_weights_it_ran_on() {
    let bench = Bench::new("");
    let own = bench.path("honest");
    let copied = copy_of("blades/honest", bench.folder.path());
    assert_eq!(copied, own);
    let plan = |honest: &Path, more: &str| {
        let models =
            model_section().replace(&models().join("blades/honest").display().to_string(), &honest.display().to_string());
        let models = models.replace("[model]\n", &format!("[model]\n{more}\n"));
        fs::write(bench.path("plan.toml"), format!("{}\n{models}", PLAN.replace("[1, 2]", "[1]"))).unwrap();
    };
    plan(&own, "");
    bench.finish();
    let kept = read_settings(&bench.path("plan.jsonl")).unwrap();
    assert_eq!(kept.len(), 3, "one per scheme");

    // Another precision of the models is another setting.
    plan(&own, "precision = \"bf16\"");
    assert_refused(&bench.run(&["--quiet"]), &["plan.jsonl:1:", "other settings"]);
    // The same adapter at another path is the same setting; another adapter at the same path is
    // not.
    let elsewhere = bench.path("elsewhere");
    fs::rename(&own, &elsewhere).unwrap();
    plan(&elsewhere, "");
    bench.finish();
    let weights = elsewhere.join("adapter_model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, bytes).unwrap();
    assert_refused(&bench.run(&["--quiet"]), &["plan.jsonl:1:", "other settings"]);
    assert_refused(&bench.run(&["--dry-run"]), &["plan.jsonl:1:", "other settings"]);
}

#[test]
fn a_sweep_is_bound_to_the_weights_of_the_model_of_a_blade_and_not_to_its_path() {
    let bench = Bench::new(&PLAN.replace("[schemes.swiss-knife]\n", "[schemes.swiss-knife]\nscheme = \"small.toml\"\n"));
    let own = copy_of("drafter", bench.folder.path());
    let scheme = |on: &str| {
        let text = format!("[blades.small]\nkind = \"likelihood\"\non = {on:?}\n[blades.\"*\"]\n");
        fs::write(bench.path("small.toml"), text).unwrap();
    };
    scheme("./drafter");
    bench.finish();
    let elsewhere = bench.path("elsewhere");
    fs::rename(&own, &elsewhere).unwrap();
    scheme("./elsewhere");
    bench.finish();
    let weights = elsewhere.join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, bytes).unwrap();
    assert_refused(&bench.run(&["--dry-run"]), &["plan.jsonl:", "cell swiss-knife/", "other settings"]);
}

#[test]
fn settings_are_kept_beside_the_records_that_name_them() {
    let bench = Bench::new(PLAN);
    bench.finish();
    let text = fs::read_to_string(bench.path("plan.settings.jsonl")).unwrap();
    let kept = read_settings(&bench.path("plan.jsonl")).unwrap();
    for record in read_records(&bench.path("plan.jsonl")).unwrap() {
        let of = &kept[&record.settings].of;
        assert_eq!((of.max_new_tokens, of.precision.as_str(), of.convention.as_str()), (20, "f32", "sound"));
        if record.scheme == "cool" {
            assert_eq!((of.numbers["temperature"], of.numbers["candidates"], of.numbers["alpha"]), (0.5, 3.0, 0.5));
            assert_eq!(of.adapters.len(), 3);
            assert_eq!(of.slots["selector"]["temperature"], 0.5, "{}", of.slots["selector"]);
        }
    }
    // A line that a killed run left incomplete is cut off, and a later plan adds its own settings.
    fs::write(bench.path("plan.settings.jsonl"), &text[..text.len() - 9]).unwrap();
    bench.plan(&PLAN.replace(
        "[schemes.base]",
        "[schemes.base]\n[schemes.cold]\nscheme = \"swiss-knife\"\nset = [\"selector.temperature=0.1\"]",
    ));
    bench.finish();
    let grown = fs::read_to_string(bench.path("plan.settings.jsonl")).unwrap();
    assert_eq!(grown.lines().count(), 4);
    assert!(text.lines().all(|line| grown.lines().any(|other| other == line)));
}

#[test]
fn a_byte_order_mark_before_the_records_is_skipped() {
    let bench = Bench::new(&PLAN.replace("[1, 2]", "[1]"));
    bench.finish();
    for name in ["plan.jsonl", "plan.settings.jsonl"] {
        let text = fs::read_to_string(bench.path(name)).unwrap();
        fs::write(bench.path(name), format!("\u{feff}{text}")).unwrap();
    }
    bench.plan(PLAN);
    bench.finish();
    assert_eq!(read_records(&bench.path("plan.jsonl")).unwrap().len(), CELLS);
}

/// Root may write everywhere: run as root, this test checks nothing.
#[test]
fn a_finished_sweep_needs_no_permission_to_write() {
    let bench = Bench::new(&PLAN.replace("[1, 2]", "[1]"));
    bench.finish();
    for name in ["plan.jsonl", "plan.traces.jsonl", "plan.settings.jsonl"] {
        let mut permissions = fs::metadata(bench.path(name)).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(bench.path(name), permissions).unwrap();
    }
    bench.finish();
}

#[test]
fn an_output_that_is_something_else_is_refused_and_stays() {
    let refused = |output: &str, name: &str, text: &str, parts: &[&str]| {
        let bench = Bench::new(&PLAN.replace("[sweep]", &format!("[sweep]\noutput = {output:?}")));
        let text = if text.is_empty() { fs::read_to_string(bench.path(name)).unwrap() } else { text.to_owned() };
        fs::write(bench.path(name), &text).unwrap();
        assert_refused(&bench.run(&["--quiet"]), parts);
        assert_eq!(fs::read_to_string(bench.path(name)).unwrap(), text, "{name}");
    };
    let prompt = r#"{"id":"sky","prompt":"Why is the sky blue?"}"#;
    refused("prompts.jsonl", "prompts.jsonl", "", &["prompts.jsonl holds prompts", "another output"]);
    refused("prompts.jsonl", "prompts.jsonl", prompt, &["prompts.jsonl holds prompts"]);
    refused("model.jsonl", "model.jsonl", "{\"hidden_size\": 16}", &["model.jsonl:1:", "not a record of a sweep"]);
    refused("notes.jsonl", "notes.jsonl", "not a record", &["notes.jsonl:1:", "not a record of a sweep"]);
    refused("out.jsonl", "out.traces.jsonl", "somebody's", &["out.traces.jsonl", "no trace of a sweep", "another output"]);
}

#[test]
fn a_prompt_that_does_not_fit_is_named_before_anything_is_answered() {
    let bench = Bench::new(PLAN);
    let long = format!("{}{{\"id\":\"long\",\"prompt\":{:?}}}\n", crate::PROMPTS, "x".repeat(600));
    fs::write(bench.path("prompts.jsonl"), long).unwrap();
    assert_refused(&bench.run(&["--quiet"]), &["prompt \"long\" (prompts.jsonl, row 3)", "the model holds 512"]);
    assert!(!bench.path("plan.jsonl").exists());
}

/// The prompt and the instruction fit alone.
#[test]
fn a_prompt_that_does_not_fit_with_an_instruction_is_named_before_anything_is_answered() {
    let bench = Bench::new(&crate::PLAN.replace("{ helpful = 1 },", "{ calm = 1 },"));
    let plan = fs::read_to_string(bench.path("plan.toml")).unwrap();
    fs::write(bench.path("plan.toml"), format!("{plan}calm = \"instruction:{}\"\n", "y".repeat(300))).unwrap();
    let long = format!("{}{{\"id\":\"long\",\"prompt\":{:?}}}\n", crate::PROMPTS, "x".repeat(300));
    fs::write(bench.path("prompts.jsonl"), long).unwrap();
    let parts = ["prompt \"long\" (prompts.jsonl, row 3)", "the longest instruction adds", "shorten either"];
    assert_refused(&bench.run(&["--quiet"]), &parts);
    assert!(!bench.path("plan.jsonl").exists());
}
