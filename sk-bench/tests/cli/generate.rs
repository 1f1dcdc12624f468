//! `swiss-knife generate` on a tiny random model.

use std::fs;
use std::io::Read;
use std::process::Stdio;

use crate::common::{
    BLADES, CONTEXT, assert_refused, copy_of, edit_json, model_args, models, program, run, run_on_models, run_with_input, stderr,
    stdout,
};
use serde_json::Value;

/// Rounding of a sum of N probabilities.
const ROUNDING: f64 = 1e-9;

fn records(path: &std::path::Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_response_goes_to_standard_output_and_a_summary_beside_it() {
    let output = run_on_models("generate", &["Hello there", "--max-new-tokens", "60"]);
    let text = stdout(&output);
    assert!(text.ends_with('\n') && text.trim().len() > 10, "{text:?}");
    let error = stderr(&output);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains("tokens/s") && error.contains("seed 42") && error.contains(" step"), "{error}");
    assert!(!error.contains('\u{1b}'), "no colour in a pipe");
    let quiet = run_on_models("generate", &["Hello there", "--max-new-tokens", "60", "--quiet"]);
    assert_eq!((stdout(&quiet), stderr(&quiet)), (text, String::new()));
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let with_seed = |seed| run_on_models("generate", &["Tell me", "--max-new-tokens", "80", "--seed", seed]).stdout;
    let first = with_seed("7");
    assert_eq!(first, with_seed("7"));
    assert_ne!(first, with_seed("8"));
}

/// Uses the model that ships: its vocabulary is read in several parts, and one thread and three
/// threads divide that many rows differently.
#[test]
fn the_number_of_threads_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("steps.jsonl");
    let options = ["--n", "12", "--span-tokens", "24", "--max-new-tokens", "24", "--quiet", "--device", "cpu", "--trace"];
    for precision in ["f32", "bf16", "int8"] {
        let steps = |threads: &str| {
            let mut command = program();
            command.env("RAYON_NUM_THREADS", threads).args(["generate", "How do I apologise?", "--precision", precision]);
            stdout(&command.args(options).arg(&trace).output().unwrap());
            let lines = fs::read_to_string(&trace).unwrap();
            let step = |line: &str| {
                let mut step: Value = serde_json::from_str(line).unwrap();
                step.as_object_mut().unwrap().remove("seconds");
                step
            };
            lines.lines().map(step).collect::<Vec<_>>()
        };
        let one = steps("1");
        for threads in ["2", "3", "8"] {
            assert_eq!(steps(threads), one, "{precision}, {threads} threads");
        }
    }
}

#[test]
fn the_prompt_may_come_from_an_argument_a_file_or_a_pipe() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("prompt.txt");
    fs::write(&file, "Why is the sky blue?\n").unwrap();
    let limit = ["--max-new-tokens", "40"];
    let argument = stdout(&run_on_models("generate", &[&["Why is the sky blue?"], &limit[..]].concat()));
    let from_file = run_on_models("generate", &[&["--file", file.to_str().unwrap()], &limit[..]].concat());
    assert_eq!(stdout(&from_file), argument);
    for dash in [&["-"][..], &[]] {
        let piped = run_with_input("generate", &[dash, &limit[..]].concat(), "Why is the sky blue?\n");
        assert_eq!(stdout(&piped), argument);
    }
    let other = stdout(&run_on_models("generate", &[&["Why is the sky red?"], &limit[..]].concat()));
    assert_ne!(other, argument);
}

#[test]
fn weights_presets_conventions_and_numbers_change_what_is_written() {
    let base = ["Say it", "--max-new-tokens", "60"];
    let with = |more: &[&str]| stdout(&run_on_models("generate", &[&base[..], more].concat()));
    let default = with(&[]);
    let mut seen = vec![default.clone()];
    for settings in [
        &["-w", "helpful=1", "--temperature", "0"][..],
        &["-w", "harmless=1", "--temperature", "0"],
        &["--preset", "honesty"],
        &["--convention", "paper"],
        &["--n", "2"],
        &["--span-tokens", "3"],
        &["--draft-temperature", "0.3"],
        &["--framing", "chat"],
        &["--framing", "none"],
        &["--system", "Be brief."],
    ] {
        let text = with(settings);
        assert!(!seen.contains(&text), "{settings:?} changes nothing");
        seen.push(text);
    }
    // The same options, which are the defaults.
    let spelled =
        ["-w", "helpful=2,honest=2,harmless=2", "--preset", "responsive", "--convention", "sound", "--n", "7", "--alpha", "0.5"];
    assert_eq!(with(&spelled), default);
}

#[test]
fn an_explanation_is_a_table_per_step_and_leaves_the_text_alone() {
    let args = ["Hello", "--max-new-tokens", "40", "--span-tokens", "10", "--n", "5"];
    let plain = run_on_models("generate", &args);
    let explained = run_on_models("generate", &[&args[..], &["--explain=full"]].concat());
    assert_eq!(stdout(&explained), stdout(&plain));
    let error = stderr(&explained);
    let steps = error.lines().filter(|line| line.starts_with("step ")).count();
    assert!(steps >= 4, "{error}");
    assert_eq!(error.matches('←').count(), steps, "one choice per step");
    let tables: String = error.lines().filter(|line| !line.starts_with("step ")).collect();
    for title in
        ["candidate", "helpful (0.33)", "honest (0.33)", "harmless (0.33)", "fluency", "composite", "rating", "probability"]
    {
        assert_eq!(tables.matches(title).count(), steps, "{title}");
    }
    // A table of eighty columns has two blocks, each with a row per candidate.
    let rows = |step: &str| step.lines().skip(1).filter(|line| line.contains('±')).count();
    assert!(error.split("step ").skip(1).all(|step| rows(step) == 10), "{error}");
    assert!(error.lines().all(|line| line.chars().count() <= 80), "{error}");
}

#[test]
fn a_brief_explanation_has_a_line_per_candidate_within_eighty_columns() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("steps.jsonl");
    let args =
        ["Hello", "--max-new-tokens", "40", "--span-tokens", "10", "--n", "5", "--explain", "--trace", trace.to_str().unwrap()];
    let output = run_on_models("generate", &args);
    let error = stderr(&output);
    assert!(error.lines().all(|line| line.chars().count() <= 80), "{error}");
    let shown: Vec<&str> = error.split("step ").skip(1).collect();
    let steps = records(&trace);
    assert_eq!(shown.len(), steps.len());
    for (shown, step) in shown.iter().zip(&steps) {
        let lines: Vec<&str> = shown.lines().skip(2).take(5).collect();
        let probabilities = step["probabilities"].as_array().unwrap();
        for (i, (line, probability)) in lines.iter().zip(probabilities).enumerate() {
            assert!(line.contains(&format!(" {:.2} ", probability.as_f64().unwrap())), "{line}");
            assert_eq!(line.starts_with('→'), step["chosen"] == i, "{line}");
        }
        assert_eq!(shown.matches('→').count(), 1, "{shown}");
        assert!(BLADES.iter().all(|name| shown.contains(&format!("{name} 0.33"))), "{shown}");
    }
    assert!(!error.contains("certificate"), "{error}");
}

/// Raw scores, a round robin and a softmax: a scheme that has a certificate.
const CERTIFIED: &str = "[normalizer]\nkind = \"raw\"\n[aggregator]\nkind = \"thurstone\"\nstandardize = false\n\
                         [selector]\nkind = \"softmax\"\ntemperature = 0.5\n";

#[test]
fn steps_say_within_which_radius_they_are_certified_or_why_not() {
    let directory = tempfile::tempdir().unwrap();
    let (scheme, trace) = (directory.path().join("certified.toml"), directory.path().join("steps.jsonl"));
    fs::write(&scheme, CERTIFIED).unwrap();
    let (scheme, trace_name) = (scheme.to_str().unwrap(), trace.to_str().unwrap());
    let args = ["Hello", "--max-new-tokens", "30", "--span-tokens", "10", "--explain", "--trace", trace_name];
    let certified = run_on_models("generate", &[&args[..], &["--scheme", scheme, "--tolerance", "0.25"]].concat());
    stdout(&certified);
    let steps = records(&trace);
    let error = stderr(&certified);
    assert_eq!(error.matches("certified radius").count(), steps.len(), "{error}");
    assert!(error.contains("by more than 0.25 in total variation") && !error.contains("no certificate"), "{error}");
    // The trace holds the radii that `certify` computes from it.
    let report = stdout(&run(["certify", trace_name, "--scheme", scheme, "--tolerance", "0.25", "--json"]));
    let report: Value = serde_json::from_str(&report).unwrap();
    for (step, batch) in steps.iter().zip(report["batches"].as_array().unwrap()) {
        let (kept, radius) = (&step["certificate"], &batch["certificate"]["radius"]);
        assert_eq!(kept["tolerance"].as_f64(), Some(0.25));
        for (field, form) in [("radius", "sharpened"), ("uniform_radius", "uniform"), ("published_radius", "published")] {
            let (kept, computed) = (kept[field].as_f64().unwrap(), radius[form].as_f64().unwrap());
            // A number may lose its last bit in JSON.
            assert!(kept > 0.0 && (kept - computed).abs() < ROUNDING * kept, "{field}: {kept} {computed}");
        }
        assert!(kept["radius"].as_f64().unwrap() > kept["published_radius"].as_f64().unwrap());
    }
    // The reference scheme has no certificate, and the program says so once.
    let refused = run_on_models("generate", &[&args[..], &["--tolerance", "0.1"]].concat());
    let error = stderr(&refused);
    assert!(error.lines().filter(|line| line.starts_with("step ")).count() > 1, "{error}");
    assert_eq!((error.matches("no certificate: ").count(), error.matches("certified radius").count()), (1, 0), "{error}");
    assert!(records(&trace).iter().all(|step| step["certificate"]["refused"].as_str().unwrap().contains("z-scores")));
}

#[test]
fn a_trace_holds_every_step_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("steps.jsonl");
    let args = ["Hello", "--max-new-tokens", "50", "--span-tokens", "12", "--json", "--trace", path.to_str().unwrap()];
    let output = run_on_models("generate", &args);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let records = records(&path);
    assert_eq!(records.len(), report["steps"].as_u64().unwrap() as usize);
    let mut tokens = 0;
    for (step, record) in records.iter().enumerate() {
        assert_eq!((record["turn"].as_u64(), record["step"].as_u64()), (Some(0), Some(step as u64)));
        let candidates = record["candidates"].as_array().unwrap();
        assert_eq!(candidates.len(), 7);
        for field in ["mu", "sigma", "ratings", "probabilities", "fluency"] {
            assert_eq!(record[field].as_array().unwrap().len(), 7, "{field}");
        }
        let blades = record["blades"].as_array().unwrap();
        assert_eq!(blades.iter().map(|blade| blade["name"].as_str().unwrap()).collect::<Vec<_>>(), BLADES);
        for blade in blades {
            assert!((blade["weight"].as_f64().unwrap() - 1.0 / 3.0).abs() < ROUNDING);
            assert_eq!((blade["mu"].as_array().unwrap().len(), blade["sigma"].as_array().unwrap().len()), (7, 7));
        }
        let mass: f64 = record["probabilities"].as_array().unwrap().iter().map(|p| p.as_f64().unwrap()).sum();
        assert!((mass - 1.0).abs() < ROUNDING);
        let chosen = &candidates[record["chosen"].as_u64().unwrap() as usize];
        let length = chosen["tokens"].as_array().unwrap().len();
        assert!(length <= 12 && !chosen["text"].as_str().unwrap().is_empty());
        assert!(["complete", "end_of_text", "limit"].contains(&chosen["end"].as_str().unwrap()));
        assert!(record["seconds"]["draft"].as_f64().unwrap() > 0.0);
        tokens += length;
    }
    assert_eq!(tokens as u64, report["tokens"].as_u64().unwrap());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing but the trace is left");
}

#[test]
fn a_trace_over_a_vocabulary_keeps_the_most_probable_candidates_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("steps.jsonl");
    let trace = path.to_str().unwrap();
    let args = ["Hello", "--scheme", "args", "--max-new-tokens", "6", "--trace", trace];
    let output = run_on_models("generate", &args);
    let text = stdout(&output);
    assert!(stderr(&output).contains("the trace keeps the 16 most likely candidates of each step"), "{}", stderr(&output));
    let steps = records(&path);
    assert_eq!(steps.len(), 6);
    for step in &steps {
        let length = |field: &Value| field.as_array().unwrap().len();
        assert_eq!(length(&step["candidates"]), 16);
        assert!(step["n"].as_u64().unwrap() > 200, "{}", step["n"]);
        for field in ["mu", "sigma", "ratings", "probabilities"] {
            assert_eq!(length(&step[field]), 16, "{field}");
        }
        assert!(
            step["blades"].as_array().unwrap().iter().all(|blade| length(&blade["mu"]) == 16 && length(&blade["sigma"]) == 16)
        );
        assert!(step["chosen"].as_u64().unwrap() < 16);
        // No dropped candidate is more probable than a kept one, except for the one that was drawn.
        let probabilities: Vec<f64> = step["probabilities"].as_array().unwrap().iter().map(|p| p.as_f64().unwrap()).collect();
        let (kept, n) = (probabilities.iter().sum::<f64>(), step["n"].as_f64().unwrap());
        let chosen = usize::try_from(step["chosen"].as_u64().unwrap()).unwrap();
        let least = (0..16).filter(|i| *i != chosen).map(|i| probabilities[i]).fold(f64::INFINITY, f64::min);
        assert!(1.0 - kept <= (n - 16.0) * least + 1e-9, "{kept} {least}");
    }
    let chosen = |step: &Value| {
        let chosen = usize::try_from(step["chosen"].as_u64().unwrap()).unwrap();
        step["candidates"][chosen]["text"].as_str().unwrap().to_owned()
    };
    let written: String = steps.iter().map(chosen).collect();
    assert!(written.contains('\u{fffd}') || written.trim().starts_with(text.trim()), "{written:?} {text:?}");
    // Commands that read a trace report that it is partial. The arm has the scores of `args`.
    let args_text = sk_scheme::Shipped::named("args").unwrap().text.split("[selector]").next().unwrap().to_owned();
    let arm = folder.path().join("highest.toml");
    fs::write(&arm, args_text + "[selector]\nkind = \"argmax\"\n").unwrap();
    let arm = arm.to_str().unwrap();
    assert_refused(&run(["arms", "--replay", trace, "--scheme", "args", "--arm", arm]), &["16 of", "were kept"]);
    assert_refused(&run(["certify", trace]), &["only 16 of its", "a certificate needs all"]);

    let quiet = run_on_models("generate", &[&args[..], &["--quiet"]].concat());
    assert_eq!((stdout(&quiet), stderr(&quiet)), (text, String::new()));
    let arms = ["Hello", "--scheme", "args", "--arm", arm, "--max-new-tokens", "2", "--trace", trace];
    stdout(&run_on_models("arms", &arms));
    assert!(records(&path).iter().all(|step| step["n"] == step["candidates"].as_array().unwrap().len()));
    stdout(&run(["arms", "--replay", trace, "--scheme", "args", "--arm", arm]));
}

#[test]
fn a_trace_that_fails_leaves_the_earlier_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("steps.jsonl");
    fs::write(&path, "earlier\n").unwrap();
    let long = "x".repeat(CONTEXT);
    let output = run_on_models("generate", &[long.as_str(), "--trace", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read_to_string(&path).unwrap(), "earlier\n");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_report_in_json_says_what_was_done() {
    let args = ["Hello", "--max-new-tokens", "30", "--json", "--quiet", "-w", "helpful=3,honest=1", "--seed", "9"];
    let report: Value = serde_json::from_str(&stdout(&run_on_models("generate", &args))).unwrap();
    assert_eq!((report["prompt"].as_str(), report["seed"].as_u64()), (Some("Hello"), Some(9)));
    assert_eq!(report["weights"]["helpful"].as_f64(), Some(0.75));
    assert_eq!(report["weights"]["harmless"].as_f64(), Some(0.0));
    assert!(report["tokens"].as_u64().unwrap() <= 30 && report["steps"].as_u64().unwrap() >= 1);
    assert!(["limit", "end_of_text", "stop_text"].contains(&report["ended"].as_str().unwrap()));
    let text = run_on_models("generate", &["Hello", "--max-new-tokens", "30", "-w", "helpful=3,honest=1", "--seed", "9"]);
    assert_eq!(stdout(&text).trim_end_matches('\n'), report["text"].as_str().unwrap().trim_end_matches('\n'));
}

#[test]
fn a_response_ends_where_the_context_does() {
    let prompt = "y".repeat(CONTEXT - 60);
    let args = [prompt.as_str(), "--json", "--max-new-tokens", "500", "--draft-temperature", "0"];
    let report: Value = serde_json::from_str(&stdout(&run_on_models("generate", &args))).unwrap();
    let framing = "\n\nHuman: \n\nAssistant:".len();
    match report["ended"].as_str().unwrap() {
        "context_full" => assert_eq!(report["tokens"].as_u64().unwrap() as usize, 60 - framing),
        ended => assert_eq!(ended, "end_of_text"),
    }
}

#[test]
fn a_scheme_file_fills_the_slots() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("scheme.toml");
    let blade = models().join("blades/honest").display().to_string();
    let text = format!(
        "[proposal]\ncandidates = 4\ntop_k = 20\n[granularity]\nkind = \"fixed-length\"\nspan_tokens = 6\n\
         [blades.calm]\nadapter = {blade:?}\nweight = 3\n[blades.fit]\nkind = \"backbone-likelihood\"\nweight = 1\n\
         [normalizer]\nkind = \"rank\"\n[aggregator]\nkind = \"weakest-link\"\n[selector]\nkind = \"argmax\"\n"
    );
    fs::write(&path, text).unwrap();
    let trace = directory.path().join("trace.jsonl");
    let backbone = models().join("backbone").display().to_string();
    let scheme = path.to_str().unwrap();
    let output = run([
        "generate",
        "Hi",
        "--backbone",
        &backbone,
        "--scheme",
        scheme,
        "--max-new-tokens",
        "24",
        "--trace",
        trace.to_str().unwrap(),
    ]);
    stdout(&output);
    for record in records(&trace) {
        let names: Vec<&str> = record["blades"].as_array().unwrap().iter().map(|b| b["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["calm", "fit"]);
        assert_eq!(record["blades"][0]["weight"].as_f64(), Some(0.75));
        assert_eq!(record["candidates"].as_array().unwrap().len(), 4);
        assert!(record["fluency"].is_null(), "a file that lists its blades has only those");
        let chosen = record["chosen"].as_u64().unwrap() as usize;
        assert_eq!(record["probabilities"][chosen].as_f64(), Some(1.0));
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = program()
        .arg("generate")
        .args(model_args())
        .args(["Hello", "--max-new-tokens", "300", "--span-tokens", "2"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0];
    let mut pipe = child.stdout.take().unwrap();
    pipe.read_exact(&mut first).unwrap();
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    assert!(!stderr(&output).contains("panic") && !stderr(&output).contains("error"), "{}", stderr(&output));
}

#[cfg(target_os = "linux")]
#[test]
fn a_trace_outlives_an_output_that_fails() {
    let folder = tempfile::tempdir().unwrap();
    let (prompt, trace) = (folder.path().join("prompt"), folder.path().join("steps.jsonl"));
    fs::write(&prompt, "Hello\n").unwrap();
    for command in ["generate", "chat", "arms"] {
        let mut program = program();
        program.arg(command).args(model_args()).args(["--max-new-tokens", "40", "--span-tokens", "10", "--trace"]).arg(&trace);
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = program.stdin(fs::File::open(&prompt).unwrap()).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{command}: {}", stderr(&output));
        assert!(!records(&trace).is_empty(), "{command}");
        fs::remove_file(&trace).unwrap();
    }
    // Without a step, the trace of an earlier run stays.
    fs::write(&trace, "earlier").unwrap();
    fs::write(&prompt, "/weights\n/help\n").unwrap();
    let mut program = program();
    program.arg("chat").args(model_args()).arg("--trace").arg(&trace).stdin(fs::File::open(&prompt).unwrap());
    program.stdout(fs::File::options().write(true).open("/dev/full").unwrap()).output().unwrap();
    assert_eq!(fs::read_to_string(&trace).unwrap(), "earlier");
}

#[test]
fn the_steps_before_a_full_disk_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("steps.jsonl");
    let questions = folder.path().join("questions");
    fs::write(&questions, "Hello\nHello again\nAnd again\n").unwrap();
    // A step of `generate` and `chat` takes about 2.6 kB, one of `arms` 29 kB. A block has 512 bytes.
    for (command, blocks, status) in [("generate", 40, 1), ("chat", 40, 2), ("arms", 120, 1)] {
        let full = format!("ulimit -f {blocks}; exec \"$0\" \"$@\"");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &full]).arg(program().get_program()).arg(command).args(model_args());
        shell.args(["--max-new-tokens", "120", "--span-tokens", "4", "--trace"]).arg(&trace);
        let output = shell.stdin(fs::File::open(&questions).unwrap()).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{command}: {}", stderr(&output));
        assert!(stderr(&output).contains("steps.jsonl"), "{command}: {}", stderr(&output));
        assert!(!records(&trace).is_empty(), "{command}");
        fs::remove_file(&trace).unwrap();
    }
}

#[test]
fn a_trace_replaces_no_file_of_a_model_and_no_log() {
    let folder = tempfile::tempdir().unwrap();
    let (backbone, blade) = (copy_of("backbone", folder.path()), copy_of("blades/honest", folder.path()));
    let named = format!("calm={}", blade.display());
    let given = ["Hello", "--max-new-tokens", "4", "--backbone", backbone.to_str().unwrap(), "--blade", &named];
    for file in [backbone.join("model.safetensors"), blade.join("adapter_config.json")] {
        let before = fs::read(&file).unwrap();
        for command in ["generate", "arms", "chat"] {
            let given = if command == "chat" { &given[1..] } else { &given[..] };
            let output = program().arg(command).args(given).arg("--trace").arg(&file).output().unwrap();
            assert_refused(&output, &["is an input and would be overwritten"]);
        }
        assert!(fs::read(&file).unwrap() == before);
    }
    // A chat may load a blade later.
    let file = blade.join("adapter_config.json");
    let output = run_with_input("chat", &["--trace", file.to_str().unwrap()], &format!("/seat {named}\n"));
    assert!(stderr(&output).contains("is an input and would be overwritten"), "{}", stderr(&output));
    let log = folder.path().join("log");
    fs::write(&log, "earlier\n").unwrap();
    let mut generate = program();
    generate.arg("generate").args(given).args(["--trace", "/dev/stderr"]);
    let appended = fs::File::options().append(true).open(&log).unwrap();
    stdout(&generate.stderr(appended).output().unwrap());
    let logged = fs::read_to_string(&log).unwrap();
    assert!(logged.starts_with("earlier\n") && logged.contains("{\"turn\":0,") && logged.contains("tokens in"), "{logged}");
}

#[test]
fn help_that_cannot_be_printed_is_an_error() {
    for flag in ["--help", "--version"] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = program().arg(flag).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{flag}");
        assert!(stderr(&output).contains("cannot write to standard output"), "{flag}: {}", stderr(&output));
    }
}

#[test]
fn help_is_there_for_every_command_and_fits_the_screen() {
    for command in [
        &[][..],
        &["generate"],
        &["chat"],
        &["bench"],
        &["certify"],
        &["sweep"],
        &["train"],
        &["train", "lm"],
        &["train", "tokenizer"],
    ] {
        for flag in ["-h", "--help"] {
            let text = stdout(&run([command, &[flag]].concat()));
            assert!(text.contains("Usage: swiss-knife"), "{text}");
            let wide = text.lines().find(|line| line.chars().count() > 140);
            assert_eq!(wide, None, "{command:?} {flag}");
        }
    }
    let version = stdout(&run(["--version"]));
    assert_eq!(version.trim(), concat!("swiss-knife ", env!("CARGO_PKG_VERSION")));
}

#[cfg(feature = "embedded-model")]
#[test]
fn the_model_that_ships_needs_no_path() {
    let elsewhere = tempfile::tempdir().unwrap();
    let args = ["generate", "How do I apologise to a friend?", "-w", "helpful=0.6,honest=0.3,harmless=0.1"];
    // The program reads the model from its own binary. It unpacks no files, which a kill would
    // leave behind.
    let speak = || {
        let mut program = program();
        program.args(args).args(["--max-new-tokens", "40"]).current_dir(&elsewhere).env("TMPDIR", "/no/such/directory");
        program.output().unwrap()
    };
    let text = stdout(&speak());
    assert!(text.split_whitespace().count() >= 3, "{text:?}");
    assert_eq!(text, stdout(&speak()));
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[cfg(feature = "embedded-model")]
#[test]
fn without_a_frame_every_command_keeps_the_white_space_that_an_answer_begins_with() {
    let prompt = "You can clean your bicycle with";
    let options = ["--framing", "none", "--max-new-tokens", "8", "--quiet", "--device", "cpu"];
    let generated = stdout(&run([&["generate", prompt], &options[..]].concat()));
    assert!(generated.starts_with(' '), "{generated:?}");
    let folder = tempfile::tempdir().unwrap();
    let lines = folder.path().join("lines");
    fs::write(&lines, prompt).unwrap();
    let chat = program().arg("chat").args(options).stdin(fs::File::open(&lines).unwrap()).output().unwrap();
    assert_eq!(stdout(&chat), generated);
    let arms = stdout(&run([&["arms", prompt, "--arm", "elo", "--json"], &options[..]].concat()));
    assert_eq!(serde_json::from_str::<Value>(&arms).unwrap()["text"], generated.trim_end_matches('\n'));
}

#[cfg(feature = "embedded-model")]
#[test]
fn parts_of_the_model_that_ships_have_names() {
    let parts = ["--backbone", "embedded:backbone", "--blade", "kind=embedded:blades/helpful", "--framing", "chat"];
    let said = run([&["generate", "Hello", "--max-new-tokens", "8"], &parts[..]].concat());
    assert!(!stdout(&said).trim().is_empty());
    let unknown = run(["generate", "Hello", "--backbone", "embedded:backbone", "--blade", "kind=embedded:blades/none"]);
    assert_refused(&unknown, &["\"kind\"", "embedded:blades/none"]);
}

#[test]
fn weights_may_be_given_one_by_one() {
    let output = run_on_models("generate", &["Hi", "--max-new-tokens", "2", "--json", "-w", "helpful=1", "-w", "honest=3"]);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let weight = |name: &str| report["weights"][name].as_f64().unwrap();
    assert_eq!(BLADES.map(weight), [0.25, 0.75, 0.0]);
}

#[test]
fn a_full_context_is_said() {
    let long = "x".repeat(CONTEXT - 60);
    let output = run_on_models("generate", &[&long, "--max-new-tokens", "400", "--scheme", "greedy"]);
    assert!(stderr(&output).contains(", stopped: context full"), "{}", stderr(&output));
}

#[cfg(unix)]
#[test]
fn a_trace_goes_through_links_and_pipes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let trace = |name: &str| stdout(&run_on_models("generate", &["Hi", "--max-new-tokens", "4", "--trace", &path(name)]));
    std::os::unix::fs::symlink(path("target.jsonl"), path("link.jsonl")).unwrap();
    fs::write(path("target.jsonl"), "stale").unwrap();
    trace("link.jsonl");
    assert!(folder.path().join("link.jsonl").is_symlink());
    assert!(!records(&folder.path().join("target.jsonl")).is_empty());

    assert!(std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = path("pipe");
        move || fs::read_to_string(pipe).unwrap()
    });
    trace("pipe");
    let candidates = |line: &str| serde_json::from_str::<Value>(line).unwrap()["candidates"].clone();
    let read = reader.join().unwrap();
    assert_eq!(read.lines().map(candidates).collect::<Vec<_>>(), {
        let text = fs::read_to_string(path("target.jsonl")).unwrap();
        text.lines().map(candidates).collect::<Vec<_>>()
    });
}

/// The context must fit into each model that a blade reads, too.
#[test]
fn a_prompt_is_at_most_as_long_as_the_shortest_context_of_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let small = copy_of("drafter", folder.path());
    edit_json(&small.join("config.json"), |config| config["max_position_embeddings"] = 24.into());
    let scheme = folder.path().join("small.toml");
    fs::write(&scheme, format!("[blades.small]\nkind = \"likelihood\"\non = '{}'\n", small.display())).unwrap();
    let generate = |prompt: &str| run_on_models("generate", &[prompt, "--scheme", scheme.to_str().unwrap(), "--framing", "none"]);
    assert_refused(&generate(&"long ".repeat(6)), &["the prompt has 30 tokens and the model holds 24"]);
    // The response ends where that context is full.
    assert!(generate("short").status.success());
}
