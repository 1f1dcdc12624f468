//! `swiss-knife arms`: several schemes choose among the same candidates.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{assert_refused, models, run, run_on_models, stdout};

/// Rounding of probabilities and of numbers read back from a file.
const ROUNDING: f64 = 1e-9;

fn report(args: &[&str]) -> Value {
    serde_json::from_str(&stdout(&run_on_models("arms", &[args, &["--json", "--quiet"]].concat()))).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn records(path: &Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn arm<'a>(step: &'a Value, name: &str) -> &'a Value {
    step["arms"].as_array().unwrap().iter().find(|arm| arm["name"] == name).unwrap()
}

const SHORT: [&str; 5] = ["Hello", "--max-new-tokens", "40", "--span-tokens", "10"];

#[test]
fn arms_do_not_change_the_answer() {
    let alone: Value = serde_json::from_str(&stdout(&run_on_models("generate", &[&SHORT[..], &["--json"]].concat()))).unwrap();
    let report = report(&SHORT);
    assert_eq!((&report["text"], report["scheme"].as_str()), (&alone["text"], Some("swiss-knife")));
    assert_eq!(report["steps"].as_array().unwrap().len() as u64, alone["steps"].as_u64().unwrap());
    // By default, the arms are all shipped schemes that use the same candidates.
    let names: Vec<&str> =
        report["summary"]["arms"].as_array().unwrap().iter().map(|arm| arm["name"].as_str().unwrap()).collect();
    assert_eq!(names[0], "swiss-knife");
    for name in ["drafter", "no-cbn", "elo", "softmax-mu", "sigma-shuffled", "sigma-zero", "swiss-knife-thurstone"] {
        assert!(names.contains(&name), "{names:?}");
    }
    for name in ["swiss-knife-paper", "base", "best-of-n", "fudge"] {
        assert!(!names.contains(&name), "{names:?}");
    }
}

#[test]
fn an_arm_makes_of_the_first_candidates_what_it_makes_alone() {
    let folder = tempfile::tempdir().unwrap();
    let together = folder.path().join("together.jsonl");
    let args =
        [&SHORT[..], &["--arm", "no-cbn", "--arm", "sigma-shuffled", "--arm", "cold=swiss-knife,selector.temperature=0.5"]];
    report(&[&args.concat()[..], &["--trace", together.to_str().unwrap()]].concat());
    let first = &records(&together)[0];
    for (name, scheme) in [
        ("no-cbn", &["--scheme", "no-cbn"][..]),
        ("sigma-shuffled", &["--scheme", "sigma-shuffled"]),
        ("cold", &["--scheme", "swiss-knife", "--set", "selector.temperature=0.5"]),
    ] {
        let alone = folder.path().join(name);
        stdout(&run_on_models("generate", &[&SHORT[..], scheme, &["--trace", alone.to_str().unwrap()]].concat()));
        let alone = &records(&alone)[0];
        assert_eq!(alone["candidates"], first["candidates"], "{name}");
        let seen = arm(first, name);
        for field in ["blades", "fluency", "mu", "sigma", "ratings", "probabilities", "chosen"] {
            assert_eq!(alone[field], seen[field], "{name}: {field}");
        }
    }
}

#[test]
fn shares_and_distances_are_those_of_the_steps() {
    let report = report(&[&SHORT[..], &["--arm", "drafter", "--arm", "elo", "--arm", "same=swiss-knife"]].concat());
    let steps = report["steps"].as_array().unwrap();
    let summary = &report["summary"];
    assert_eq!(summary["steps"].as_u64().unwrap() as usize, steps.len());
    let distance = |step: &Value, a: &str, b: &str| -> f64 {
        let (p, q) = (numbers(&arm(step, a)["probabilities"]), numbers(&arm(step, b)["probabilities"]));
        0.5 * p.iter().zip(q).map(|(p, q)| (p - q).abs()).sum::<f64>()
    };
    let names = ["swiss-knife", "drafter", "elo", "same"];
    for (a, one) in names.iter().enumerate() {
        for (b, other) in names.iter().enumerate() {
            let mean = steps.iter().map(|step| distance(step, one, other)).sum::<f64>() / steps.len() as f64;
            assert!((numbers(&summary["total_variation"][a])[b] - mean).abs() < ROUNDING, "{one} and {other}");
            let same = steps.iter().filter(|step| arm(step, one)["chosen"] == arm(step, other)["chosen"]).count();
            assert!((numbers(&summary["agreement"][a])[b] - same as f64 / steps.len() as f64).abs() < ROUNDING);
        }
        assert_eq!(summary["arms"][a]["name"].as_str(), Some(*one));
        let most = steps.iter().map(|step| distance(step, "swiss-knife", one)).fold(0.0, f64::max);
        assert!((summary["arms"][a]["most_total_variation"].as_f64().unwrap() - most).abs() < ROUNDING);
    }
    // The same scheme under another name makes the same choices.
    let same = &summary["arms"][3];
    assert_eq!((same["same_choice"].as_f64(), same["total_variation"].as_f64()), (Some(1.0), Some(0.0)));
    assert!(summary["arms"][1]["total_variation"].as_f64().unwrap() > 0.0);
    for step in steps {
        assert_eq!(step["candidates"].as_array().unwrap().len(), 7);
        assert!(numbers(&arm(step, "drafter")["probabilities"]).iter().all(|p| (p - 1.0 / 7.0).abs() < ROUNDING));
    }
}

#[test]
fn a_trace_is_replayed_without_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("steps.jsonl");
    let trace = path.to_str().unwrap();
    let arms = ["--arm", "no-cbn", "--arm", "elo", "--arm", "sigma-shuffled", "--arm", "softmax-mu"];
    let live = report(&[&SHORT[..], &["-w", "helpful=2,honest=1"], &arms, &["--trace", trace]].concat());
    let replay = |more: &[&str]| run([&["arms", "--replay", trace], more].concat());
    let replayed: Value = serde_json::from_str(&stdout(&replay(&[&arms[..], &["--json"]].concat()))).unwrap();
    assert!(replayed["text"].is_null());
    let pairs = live["steps"].as_array().unwrap().iter().zip(replayed["steps"].as_array().unwrap());
    for (live, replayed) in pairs {
        assert_eq!(live["candidates"], replayed["candidates"]);
        for name in ["swiss-knife", "no-cbn", "elo", "sigma-shuffled", "softmax-mu"] {
            let (live, replayed) = (arm(live, name), arm(replayed, name));
            for field in ["mu", "sigma", "ratings", "probabilities"] {
                for (a, b) in numbers(&live[field]).iter().zip(numbers(&replayed[field])) {
                    assert!((a - b).abs() <= ROUNDING * b.abs().max(1.0), "{name}, {field}: {a} and {b}");
                }
            }
            assert_eq!(live["argmax"], replayed["argmax"]);
        }
    }
    // A replay with other weights than the recorded ones.
    let other: Value = serde_json::from_str(&stdout(&replay(&["--arm", "elo", "-w", "honest=1", "--json"]))).unwrap();
    assert_ne!(arm(&other["steps"][0], "elo")["mu"], arm(&replayed["steps"][0], "elo")["mu"]);
    // A table per step, then the summary.
    let text = stdout(&replay(&arms));
    let steps = replayed["steps"].as_array().unwrap().len();
    assert_eq!(text.lines().filter(|line| line.starts_with("step ")).count(), steps, "{text}");
    assert!(text.contains(&format!("{steps} steps, beside swiss-knife")) && text.contains("above the diagonal"), "{text}");
    let summary = stdout(&replay(&[&arms[..], &["--summary"]].concat()));
    assert!(!summary.contains("step 1") && text.ends_with(&summary), "{summary}");

    assert_refused(&replay(&["--arm", "elo", "-w", "harmless=1"]), &["steps.jsonl:1:", "\"harmless\"", "helpful, honest"]);
    let kind = ["--arm", "x=swiss-knife,blades.*.kind=likelihood"];
    assert_refused(
        &replay(&kind),
        &["\"x\"", "blades.*.kind is \"likelihood\", not \"implicit-reward\"", "give a prompt instead"],
    );
    let error = ["--arm", "x=swiss-knife,blades.*.dispersion=standard-error"];
    assert_refused(&replay(&error), &["\"x\"", "blades.*.dispersion"]);
    // An option that repeats how the trace was made is accepted.
    stdout(&replay(&["--arm", "x=swiss-knife,proposal.candidates=3", "--n", "3", "--summary"]));
    for (option, value) in [("--temperature", "9"), ("--w-tour", "0"), ("--set", "selector.kind=argmax")] {
        assert_refused(&replay(&["--arm", "elo", option, value]), &[option, "does not apply to --replay"]);
    }
    let idle = [
        &["Hello"][..],
        &["--seed", "1"],
        &["--device", "cpu"],
        &["--trace", "x"],
        &["--tokenizer", "x"],
        &["--blade", "calm=x"],
        &["--head", "calm=x"],
    ];
    for idle in idle {
        assert_refused(&replay(&[&["--arm", "elo"], idle].concat()), &["--replay", "cannot be used with"]);
    }
    let whole = fs::read_to_string(&path).unwrap();
    let damaged = |text: &str, parts: &[&str]| {
        fs::write(&path, text).unwrap();
        assert_refused(&replay(&["--arm", "elo"]), parts);
    };
    damaged("", &["steps.jsonl:1:", "no steps"]);
    damaged("{\"step\": 0}\n", &["steps.jsonl:1:", "not a step of a trace", "missing field"]);
    let cut = whole.replacen("\"n\":7", "\"n\":4096", 1);
    damaged(&cut, &["steps.jsonl:1:", "7 of 4096 candidates were kept", "a trace of `arms` keeps all"]);
    let certified = |more: &[&str]| stdout(&run([&["certify", trace, "--json"], more].concat()));
    for more in [&[][..], &["--delta", "1e-3", "--audit", "--evaluations", "5"]] {
        let report: Value = serde_json::from_str(&certified(more)).unwrap();
        assert!(report["batches"][0]["certificate"]["refused"].as_str().unwrap().contains("only 7 of its 4096 candidates"));
        assert!(report["batches"][0]["audit"].is_null() && report["batches"][1]["certificate"]["refused"].is_null());
    }
    // As in the trace of a sweep with two schemes.
    let first = whole.lines().next().unwrap();
    let of = |scheme: &str| first.replacen('{', &format!("{{\"id\":\"{scheme}/-/p/1\","), 1);
    damaged(&[of("a"), of("b")].join("\n"), &["steps.jsonl:2:", "the schemes \"a\" and \"b\""]);
    let second = format!("{}\n{{", whole.lines().next().unwrap());
    damaged(&second, &["steps.jsonl:2:", "not a step of a trace"]);
    let latin = [whole.lines().next().unwrap().as_bytes(), b"\n\xff\n"].concat();
    fs::write(&path, latin).unwrap();
    assert_refused(&replay(&["--arm", "elo"]), &["steps.jsonl:2:", "UTF-8"]);
    let (name, minus) = ("\"name\":\"honest\",\"weight\":", "\"name\":\"honest\",\"weight\":-");
    assert!(whole.contains(name), "the field is where the damage is done");
    let says = ["steps.jsonl:1:", "blade \"honest\" has the weight -", "not negative"];
    damaged(&whole.replacen(name, minus, 1), &says);
    damaged(&whole.replace("\"chosen\":", "\"chosen\":9"), &["steps.jsonl:1:", "of 7"]);
    damaged(
        &whole.replace("\"probabilities\":[", "\"probabilities\":[0.5,"),
        &["steps.jsonl:1:", "8 probabilities for 7 candidates"],
    );
}

#[test]
fn token_by_token_the_backbone_looks_on() {
    let report =
        report(&["Hello", "--max-new-tokens", "6", "--scheme", "args", "--arm", "base", "--arm", "greedy", "-w", "honest=1"]);
    let steps = report["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 6);
    for step in steps {
        let listed = step["candidates"].as_array().unwrap();
        assert!(listed.len() <= 16, "of a vocabulary, the most probable");
        assert!(step["n"].as_u64().unwrap() > 16, "and how many there were");
        for arm in step["arms"].as_array().unwrap() {
            assert!(listed.iter().any(|candidate| candidate["index"] == arm["chosen"]), "what an arm chooses is listed");
        }
        assert_eq!(arm(step, "greedy")["probability"].as_f64(), Some(1.0));
    }
}

#[test]
fn arms_that_cannot_share_are_refused_with_the_reason() {
    let refused = |args: &[&str], parts: &[&str]| assert_refused(&run_on_models("arms", &[&["Hi"], args].concat()), parts);
    refused(
        &["--arm", "mod"],
        &["\"mod\"", "\"swiss-knife\"", "proposal.kind is \"vocabulary\", not \"drafter\"", "[granularity]"],
    );
    refused(&["--arm", "swiss-knife-paper"], &["proposal.top_k is 50, not 0"]);
    refused(&["--arm", "elo,proposal.candidates=5"], &["proposal.candidates is 5, not 7"]);
    refused(&["--arm", "elo,granularity.span_tokens=5"], &["granularity.span_tokens is 5, not 32"]);
    refused(&["--arm", "args-reward-head", "--scheme", "args-greedy"], &["\"args-reward-head\"", "give a head with --head"]);
    refused(&["--arm", "elo", "--arm", "elo"], &["two arms are called \"elo\""]);
    refused(&["--arm", "swiss-knife"], &["two arms are called \"swiss-knife\""]);
    refused(&["--arm", "eloo"], &["arm \"eloo\"", "did you mean \"elo\"?"]);
    refused(&["--arm", "elo,aggregator.k_mx=3"], &["arm \"elo,aggregator.k_mx=3\"", "did you mean \"k_max\"?"]);
    refused(&["--arm", "=elo"], &["[NAME=]SCHEME"]);
    refused(&["--arm", "elo,temperature"], &["SLOT.FIELD=VALUE"]);
    refused(
        &["--scheme", "rewarded-soups"],
        &["no other scheme that ships can be compared with \"rewarded-soups\"", "give one with --arm", "changed fields"],
    );
    refused(&["--scheme", "args-greedy"], &["name one that reads heads with --arm, such as args-reward-head"]);
    let folder = tempfile::tempdir().unwrap();
    let scheme = folder.path().join("other.toml");
    let adapter = models().join("blades/honest").display().to_string();
    fs::write(&scheme, format!("[blades.helpful]\nadapter = {adapter:?}\n[blades.b0]\nkind = \"fluency\"\n")).unwrap();
    let backbone = models().join("backbone").display().to_string();
    let drafter = models().join("drafter").display().to_string();
    let blade = format!("helpful={}", models().join("blades/helpful").display());
    let args = ["arms", "Hi", "--backbone", &backbone, "--drafter", &drafter, "--scheme", "swiss-knife", "--blade", &blade];
    // The command-line blade applies to every arm, so both arms use one adapter.
    let arm = format!("other={}", scheme.display());
    let both = run([&args[..], &["--arm", &arm, "--max-new-tokens", "4", "--summary"]].concat());
    assert!(stdout(&both).contains("other"));
    let second = folder.path().join("second.toml");
    let own = models().join("blades/helpful").display().to_string();
    fs::write(&second, format!("[blades.helpful]\nadapter = {own:?}\n[blades.b0]\nkind = \"fluency\"\n")).unwrap();
    let args =
        ["arms", "Hi", "--backbone", &backbone, "--drafter", &drafter, "--scheme", second.to_str().unwrap(), "--arm", &arm];
    assert_refused(&run(args), &["arm \"other\"", "\"helpful\" is ", "blades/helpful for one arm", "blades/honest for another"]);
}

#[test]
fn schemes_that_the_options_do_not_apply_to_do_not_look_on() {
    let names = |args: &[&str]| -> Vec<String> {
        let report = report(&[&SHORT[..], &["--max-new-tokens", "12"], args].concat());
        let arms = report["summary"]["arms"].as_array().unwrap().iter();
        // GSI drafts from the whole distribution unless an option says otherwise.
        arms.map(|arm| arm["name"].as_str().unwrap().to_owned()).filter(|name| name != "gsi").collect()
    };
    let all = names(&[]);
    for options in [
        &["--n", "3"][..],
        &["--top-k", "5"],
        &["--top-p", "0.9"],
        &["--draft-temperature", "0.5"],
        &["--repetition-penalty", "1.1"],
        &["--set", "proposal.candidates=3"],
    ] {
        assert_eq!(names(options), all, "{options:?}");
    }
    assert!(names(&["--set", "granularity.kind=sentence"]).contains(&"no-cbn".to_owned()));
}

#[test]
fn by_default_only_schemes_with_the_scores_of_a_trace_are_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("steps.jsonl");
    let trace = path.to_str().unwrap();
    stdout(&run_on_models("generate", &[&SHORT[..], &["--trace", trace]].concat()));
    let replayed: Value = serde_json::from_str(&stdout(&run(["arms", "--replay", trace, "--json"]))).unwrap();
    let names: Vec<&str> =
        replayed["summary"]["arms"].as_array().unwrap().iter().map(|arm| arm["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"elo") && names.contains(&"sigma-zero"), "{names:?}");
    // `base` shares the candidates but not the scores; `args-reward-head` takes part only if it is
    // named.
    stdout(&run_on_models("generate", &["Hi", "--scheme", "args", "--max-new-tokens", "3", "--trace", trace]));
    assert_refused(&run(["arms", "--replay", trace, "--scheme", "args"]), &["no other scheme", "\"args\"", "--arm"]);
}
