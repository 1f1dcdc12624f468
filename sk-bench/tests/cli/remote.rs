//! The program with models behind servers that imitate vLLM and SGLang.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sk_core::TokenId;
use sk_remote::Kind;

use crate::common::{assert_refused, models, program, run, run_on_models, stderr, stdout};
use crate::fake::{Act, Fake, Mistake, Seen, Setup, tokenize};
use crate::model;
use crate::serve::Server;

/// The adapters of the server; the blades have the same names without the prefix `lora-`.
const ADAPTERS: [&str; 2] = ["lora-helpful", "lora-honest"];

/// Servers send numbers in f32.
const ROUNDING: f64 = 1e-5;

const SHORT: [&str; 4] = ["--max-new-tokens", "18", "--span-tokens", "6"];

fn start(kind: Kind) -> Fake {
    Fake::start(Setup::new(kind, &ADAPTERS))
}

fn address(server: &Fake) -> String {
    format!("{}+{}", server.kind().name(), server.url)
}

fn tokenizer() -> String {
    models().join("backbone").display().to_string()
}

/// The options that name the server and its adapters.
fn remote_args(server: &Fake) -> Vec<String> {
    let mut args = vec!["--backbone".to_owned(), address(server), "--tokenizer".to_owned(), tokenizer()];
    args.extend(ADAPTERS.iter().flat_map(|name| ["--blade".to_owned(), format!("{}=lora:{name}", &name[5..])]));
    args
}

fn run_on(server: &Fake, command: &str, args: &[&str]) -> Output {
    program().arg(command).args(remote_args(server)).args(args).output().unwrap()
}

fn lines(path: &Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn ids(value: &Value) -> Vec<TokenId> {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn a_response_is_steered_by_the_numbers_of_the_servers() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("steps.jsonl");
    for kind in Kind::ALL {
        let server = start(kind);
        let options = [&["Hello there", "--framing", "none", "--n", "3", "--beta", "1", "--quiet", "--trace"], &SHORT[..]];
        let args = [options[0], &[trace.to_str().unwrap()], options[1]].concat();
        let text = stdout(&run_on(&server, "generate", &args));
        let steps = lines(&trace);
        assert!(steps.len() >= 3, "{steps:?}");
        // The tokenizer has a token per byte.
        let mut context: Vec<TokenId> = "Hello there".bytes().map(TokenId::from).collect();
        for step in &steps {
            assert_eq!(step["position"], context.len());
            for (place, candidate) in step["candidates"].as_array().unwrap().iter().enumerate() {
                let span = ids(&candidate["tokens"]);
                let sum = |adapter| model::reading(adapter, &context, &span).log_probs.iter().map(|&p| f64::from(p)).sum::<f64>();
                for (blade, adapter) in step["blades"].as_array().unwrap().iter().zip(ADAPTERS) {
                    assert_eq!(blade["name"], adapter[5..]);
                    // μ = β (Σ log π_k − Σ log π_B)/L.
                    let expected = (sum(Some(adapter)) - sum(None)) / span.len() as f64;
                    assert!((blade["mu"][place].as_f64().unwrap() - expected).abs() < ROUNDING, "{kind:?}: {blade} {expected}");
                }
            }
            context.extend(ids(&step["candidates"][step["chosen"].as_u64().unwrap() as usize]["tokens"]));
        }
        assert_eq!(text, stdout(&run_on(&server, "generate", &args)), "the same seed gives the same bytes");
    }
}

#[test]
fn servers_that_do_not_pass_are_refused_with_both_numbers() {
    for kind in Kind::ALL {
        let server = start(kind);
        server.behave(|_, _| {
            let of_base =
                |row, adapter: Option<&str>| (row > 0 && adapter.is_none()).then_some(Mistake::Adapter(Some("lora-helpful")));
            Act::Mistake(Arc::new(of_base))
        });
        let output = run_on(&server, "generate", &["Hi"]);
        let error = stderr(&output);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{error}");
        assert!(error.contains("in a mixed batch: token") && error.contains("the base model has log-probability -"), "{error}");
        assert!(error.contains("(alone)") && error.contains("they differ by more than"), "{error}");

        server.behave(|seen, _| match seen.path.as_str() {
            "/tokenize" => Act::Alter(Arc::new(|answer| answer["tokens"][3] = json!(9))),
            _ => Act::Serve,
        });
        assert_refused(&run_on(&server, "generate", &["Hi"]), &["another tokenizer", "position 3", "has 9"]);
        server.behave(|_, _| Act::Serve);
        let unknown = ["Hi", "--blade", "calm=lora:calm"];
        assert_refused(&run_on(&server, "generate", &unknown), &["adapter \"calm\"", "status 40"]);
    }
}

#[test]
fn options_that_servers_do_not_support_are_refused_by_name() {
    let server = start(Kind::Vllm);
    let local = models().join("drafter").display().to_string();
    let head = models().join("backbone").display().to_string();
    for (args, parts) in [
        (vec!["--drafter", &local], ["--drafter", "behind servers"]),
        (vec!["--head", &format!("calm={head}")], ["--head", "hidden states"]),
        (vec!["--precision", "int8"], ["--precision", "servers choose"]),
        (vec!["--device", "cpu"], ["--device", "servers choose"]),
        (vec!["--scheme", "rewarded-soups"], ["soup", "servers do not average"]),
        (vec!["--scheme", "cards"], ["by entropy", "another granularity"]),
        (vec!["--backbone", "vllm+http://a/b"], ["http://a/b", "path"]),
        (vec!["--backbone", "http://a:1"], ["http://a:1", "begin with sglang+http://"]),
    ] {
        assert_refused(&run_on(&server, "generate", &[&["Hi"], &args[..]].concat()), &parts);
    }
    assert_refused(&run(["generate", "Hi", "--backbone", &address(&server)]), &["--tokenizer", "tokenizer.json"]);
    let missing = ["generate", "Hi", "--scheme", "greedy", "--backbone", &address(&server), "--tokenizer", "/nowhere"];
    assert_refused(&run(missing), &["/nowhere/tokenizer.json"]);
    assert_refused(&run_on_models("generate", &["Hi", "--tokenizer", &tokenizer()]), &["--tokenizer", "has its own"]);
    assert_refused(&run_on_models("bench", &["--tokenizer", &tokenizer()]), &["--tokenizer", "has its own"]);
    assert_refused(&run_on_models("generate", &["Hi", "--blade", "calm=lora:calm"]), &["calm", "adapter of a server"]);
    let drafter = address(&server);
    assert_refused(&run_on_models("generate", &["Hi", "--drafter", &drafter]), &["--drafter", "needs a backbone on a server"]);
}

#[test]
fn a_key_that_anybody_can_read_on_its_way_is_warned_about() {
    let generate = |backbone: &str| {
        let args = ["generate", "Hi", "--scheme", "greedy", "--backbone", backbone, "--tokenizer", &tokenizer()];
        stderr(&program().env("SWISS_KNIFE_REMOTE_KEY", "key").args(args).output().unwrap())
    };
    let server = start(Kind::Vllm);
    for (address, warned) in [(address(&server).as_str(), false), ("vllm+http://nowhere.invalid:8000", true)] {
        let said = generate(address);
        assert_eq!(said.contains("warning: the API key is sent without encryption"), warned, "{said}");
    }
}

#[test]
fn an_answer_ends_where_the_context_of_the_server_is_full() {
    for kind in Kind::ALL {
        let server = start(kind);
        server.behave(|seen, _| match seen.path.as_str() {
            "/v1/models" => Act::Alter(Arc::new(|answer| answer["data"][0]["max_model_len"] = json!(40))),
            "/server_info" => Act::Alter(Arc::new(|answer| answer["max_req_input_len"] = json!(40))),
            _ => Act::Serve,
        });
        let args = ["Hello there", "--framing", "none", "--max-new-tokens", "200", "--span-tokens", "6", "--n", "3", "--json"];
        let answer: Value = serde_json::from_str(&stdout(&run_on(&server, "generate", &args))).unwrap();
        // The prompt has 11 tokens, and a server generates one after the span that it reads.
        assert_eq!((&answer["ended"], &answer["tokens"]), (&json!("context_full"), &json!(28)), "{kind:?}: {answer}");
    }
}

#[test]
fn the_steps_before_a_failure_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("steps.jsonl");
    let server = start(Kind::Vllm);
    let args = [&["Hello there", "--n", "3", "--trace", trace.to_str().unwrap()][..], &SHORT].concat();
    let failing = |from: usize| {
        let mut drafts = 0;
        server.behave(move |seen, _| {
            drafts += usize::from(seen.drafts() && seen.body["n"] == 3);
            if drafts > from { Act::Status(400, None, "CUDA error") } else { Act::Serve }
        });
        let output = run_on(&server, "generate", &args);
        assert!(!output.status.success() && stderr(&output).contains("CUDA error"), "{}", stderr(&output));
        output
    };
    // The check drafts one row at a time.
    assert!(!failing(2).stdout.is_empty());
    assert_eq!(lines(&trace).len(), 2);
    failing(0);
    assert_eq!(lines(&trace).len(), 2, "a run without steps does not replace the trace");
}

/// Runs `chat` with these lines.
fn chat(server: &Fake, input: &str) -> Output {
    let mut command = program();
    command.arg("chat").args(remote_args(server)).args(SHORT);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn an_adapter_without_a_seat_is_not_checked() {
    for leaves in ["/unseat calm\n/seat other=/models/other\n", "/swap calm other=/models/other\n"] {
        let server = start(Kind::Vllm);
        stdout(&chat(&server, &format!("/seat calm=/models/calm\n{leaves}")));
        let seen = server.seen();
        let loaded = seen.iter().rposition(|seen| seen.path == "/v1/load_lora_adapter").unwrap();
        let read: Vec<String> = seen[loaded..].iter().filter(|seen| seen.reads()).flat_map(Seen::adapters).collect();
        assert!(read.iter().any(|name| name == "other") && read.iter().all(|name| name != "calm"), "{read:?}");
    }
}

#[test]
fn a_question_whose_answer_failed_is_asked_again() {
    let server = start(Kind::Vllm);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("saved.json");
    let is_draft = |seen: &Seen| {
        let asked = tokenize("And why?");
        seen.drafts() && ids(&seen.body["prompt"]).windows(asked.len()).any(|tokens| tokens == asked)
    };
    // The draft of the question with this number fails; none if it is 0.
    let saved = |failing: usize, input: &str, failed: &str| -> Value {
        let mut drafts = 0;
        server.behave(move |seen, _| {
            drafts += usize::from(is_draft(seen));
            if is_draft(seen) && drafts == failing { Act::Status(400, None, "CUDA error") } else { Act::Serve }
        });
        let output = chat(&server, &format!("/seed 1\nIs it?\nAnd why?\n{input}/save {}\n", file.display()));
        assert!(stderr(&output).contains(failed), "{}", stderr(&output));
        let saved = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        fs::remove_file(&file).unwrap();
        saved
    };
    let whole = saved(0, "", "saved 2 exchanges");
    let steps = server.seen().iter().filter(|seen| is_draft(seen)).count();
    assert!(steps > 1);
    assert_eq!(saved(1, "/again\n", "1 line failed"), whole);
    assert_eq!(saved(2, "/again\n", "1 line failed"), whole, "after a step");
    // A second answer that fails leaves the first one and its seed.
    assert_eq!(saved(steps + 1, "/again\n", "1 line failed"), whole);
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_the_retries() {
    use std::os::unix::process::ExitStatusExt;

    let server = start(Kind::Vllm);
    server.behave(|seen, _| if seen.drafts() && seen.body["n"] == 3 { Act::Status(503, None, "busy") } else { Act::Serve });
    let mut command = program();
    command.arg("generate").args(remote_args(&server)).args(["Hi", "--n", "3"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !server.seen().iter().any(|seen| seen.drafts() && seen.body["n"] == 3) {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    // If the retries went on, the program would end with their error.
    assert_eq!(output.status.signal(), Some(2), "{}", stderr(&output));
}

#[test]
fn a_directory_is_loaded_under_a_name_of_its_contents() {
    for kind in Kind::ALL {
        let server = start(kind);
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().display().to_string();
        let blade = format!("calm={directory}");
        let generate = || {
            stdout(&run_on(&server, "generate", &[&["Hi", "--quiet", "--blade", &blade][..], &SHORT].concat()));
            let last = server.seen().into_iter().rfind(|seen| seen.body["lora_path"] == directory.as_str()).unwrap();
            last.body["lora_name"].as_str().unwrap().to_owned()
        };
        fs::write(folder.path().join("adapter_config.json"), "{}").unwrap();
        fs::write(folder.path().join("adapter_model.safetensors"), "one").unwrap();
        let one = generate();
        assert!(one.starts_with("calm-"), "{one}");
        assert_eq!(generate(), one, "the servers keep it");
        fs::write(folder.path().join("adapter_model.safetensors"), "two").unwrap();
        assert_ne!(generate(), one);
    }
}

#[test]
fn a_seat_that_servers_refuse_does_not_block_later_ones() {
    let server = start(Kind::Vllm);
    let error = stderr(&chat(&server, "/seat calm=lora:nope\n/seat calm=lora:lora-honest\nHi\n"));
    assert!(error.contains("nope") && error.contains("1 line failed"), "{error}");
    assert!(error.contains("calm=0.333"), "{error}");
}

#[test]
fn a_chat_seats_adapters_that_servers_know_or_load() {
    for kind in Kind::ALL {
        let server = start(kind);
        let input =
            "Hi\n/seat calm=/models/calm\n/swap helpful frank=lora:lora-honest\n/weights\nAnd now?\n/seat gone=/models/missing\n";
        let output = chat(&server, input);
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("frank=0.333,honest=0.333,calm=0.333"), "{error}");
        assert!(error.contains("missing") && error.contains("1 line failed"), "{error}");
        assert_eq!(error.matches("tokens/s").count(), 2, "{error}");
        let last = server
            .seen()
            .iter()
            .rev()
            .filter(|seen| seen.reads())
            .take(4)
            .flat_map(super::fake::Seen::adapters)
            .collect::<Vec<_>>();
        assert!(last.iter().any(|name| name == "calm"), "{last:?}");
    }
}

#[test]
fn answers_are_compared_up_to_a_failure() {
    let server = start(Kind::Vllm);
    let args = [&["Hello", "--json", "--n", "3"], &SHORT[..]].concat();
    let columns = |output: &Output| -> Vec<Value> { serde_json::from_slice(&output.stdout).unwrap() };
    let whole = columns(&run_on(&server, "compare", &args));
    assert_eq!(whole.len(), 2);
    for column in &whole {
        assert_eq!(column["scores"].as_array().unwrap().len(), 2, "{column}");
    }

    let is_step = |seen: &Seen| seen.drafts() && seen.body["n"] == 3;
    let steps = server.seen().iter().filter(|seen| is_step(seen)).count();
    let mut drafted = 0;
    server.behave(move |seen, _| {
        drafted += usize::from(is_step(seen));
        if is_step(seen) && drafted == steps { Act::Status(400, None, "CUDA error") } else { Act::Serve }
    });
    let output = run_on(&server, "compare", &args);
    assert!(!output.status.success() && stderr(&output).contains("CUDA error"), "{}", stderr(&output));
    let finished = columns(&output);
    assert_eq!((finished.len(), &finished[0]["text"], &finished[0]["scores"]), (1, &whole[0]["text"], &whole[0]["scores"]));

    // A scheme that cannot be opened is a failure, too.
    server.behave(|_, _| Act::Serve);
    let schemes = ["--scheme", "swiss-knife", "--scheme", "rewarded-soups", "-w", "helpful=1"];
    let output = run_on(&server, "compare", &[&args[..], &schemes].concat());
    assert!(!output.status.success() && stderr(&output).contains("do not average"), "{}", stderr(&output));
    assert_eq!(columns(&output).len(), 1);
}

#[test]
fn a_step_records_its_traffic_and_bench_measures_it() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("steps.jsonl");
    for kind in Kind::ALL {
        let server = start(kind);
        stdout(&run_on(&server, "generate", &[&["Hi", "--n", "3", "--trace", trace.to_str().unwrap()], &SHORT[..]].concat()));
        for step in lines(&trace) {
            let traffic = &step["traffic"];
            // At least two round trips: one to draft, and one to read the drafts.
            assert!(traffic["round_trips"].as_u64() >= Some(2) && traffic["retries"] == 0, "{traffic}");
            assert!(traffic["bytes_out"].as_u64() > Some(100) && traffic["bytes_in"].as_u64() > Some(100), "{traffic}");
        }
        let args = ["--repeat", "2", "--new-tokens", "20", "--prompt-tokens", "30", "--n", "3", "--span-tokens", "5", "--json"];
        let report: Value = serde_json::from_str(&stdout(&run_on(&server, "bench", &args))).unwrap();
        assert_eq!(
            (&report["candidates"], &report["blades"], &report["servers"]),
            (&json!(3), &json!(2), &json!(address(&server)))
        );
        let median = |part: &str| report["step_traffic"][part]["median"].as_f64().unwrap();
        // vLLM needs one request for each of the three policies that score.
        let reading = if kind == Kind::Vllm { 3.0 } else { 1.0 };
        assert!(median("requests") > reading && median("round_trips") >= 2.0 && median("bytes_in") > 100.0, "{report}");
        let table = stdout(&run_on(&server, "bench", &args[..args.len() - 1]));
        assert!(table.contains("round trips") && table.contains("received") && table.contains("tokens/s"), "{table}");
        assert_refused(&run_on(&server, "bench", &["--generations", "2"]), &["--generations", "models on servers"]);
    }
    // With models in this process, a trace has no traffic.
    let args = ["Hi", "--max-new-tokens", "8", "--trace", trace.to_str().unwrap()];
    stdout(&run_on_models("generate", &args));
    assert!(lines(&trace).iter().all(|step| step.get("traffic").is_none() && step.get("head").is_none()));
}

#[test]
fn schemes_over_the_vocabulary_choose_from_its_head() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("steps.jsonl");
    for kind in Kind::ALL {
        let server = start(kind);
        // `args-greedy` reads ten tokens; the other schemes read more tokens than a server lists.
        for (scheme, size) in [("args", 20), ("mod", 20), ("args-greedy", 10), ("greedy", 20)] {
            let args = ["Hi", "--scheme", scheme, "--max-new-tokens", "4", "--explain", "--trace", trace.to_str().unwrap()];
            let output = run_on(&server, "generate", &args);
            stdout(&output);
            for step in lines(&trace) {
                let candidates = step["candidates"].as_array().unwrap();
                assert_eq!((&step["head"], &step["n"]), (&json!(size), &json!(size)), "{scheme}");
                // A trace keeps the 16 most probable tokens.
                assert_eq!(candidates.len(), size.min(16));
                assert!(candidates.iter().all(|candidate| ids(&candidate["tokens"]).len() == 1));
            }
            assert!(stderr(&output).contains("most likely tokens that the server returned"), "{}", stderr(&output));
        }
    }
}

#[test]
fn a_sweep_answers_its_cells() {
    let server = start(Kind::Sglang);
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    fs::write(folder.path().join("prompts.jsonl"), "{\"id\":\"sky\",\"prompt\":\"Why is the sky blue?\"}\n").unwrap();
    let text = format!(
        "[model]\nbackbone = {:?}\ntokenizer = {:?}\nblades = {{ helpful = \"lora:lora-helpful\", honest = \"lora:lora-honest\" }}\n\
         [schemes.swiss-knife]\nset = [\"proposal.candidates=3\"]\n[weights]\nkind = \"listed\"\nlist = [{{ helpful = 1 }}, {{ honest = 1 }}]\n\
         [prompts]\nsources = [\"prompts.jsonl\"]\n[generation]\nmax_new_tokens = 12\n",
        address(&server),
        tokenizer(),
    );
    fs::write(&plan, text).unwrap();
    stdout(&program().arg("sweep").arg(&plan).arg("--quiet").output().unwrap());
    let records: Vec<Value> =
        lines(&folder.path().join("plan.jsonl")).into_iter().filter(|line| line["id"].is_string()).collect();
    assert_eq!(records.len(), 2);
    assert!(records.iter().all(|record| record["device"] == address(&server).as_str() && record["tokens"].as_u64() > Some(0)));
}

#[test]
fn every_adapter_of_a_sweep_is_checked() {
    let server = start(Kind::Vllm);
    // The server accepts it, and does not apply it.
    server.set_up(|setup| drop(setup.adapters.insert("lora-idle".to_owned(), None)));
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    file("prompts.jsonl", "{\"id\":\"sky\",\"prompt\":\"Why is the sky blue?\"}\n");
    for (scheme, adapter) in [("idle", "lora-idle"), ("calm", "lora-helpful")] {
        file(
            &format!("{scheme}.toml"),
            &format!("[blades.calm]\nadapter = \"lora:{adapter}\"\n[blades.b0]\nkind = \"fluency\"\n"),
        );
    }
    let text = format!(
        "[model]\nbackbone = {:?}\ntokenizer = {:?}\n[schemes]\nidle = {{ scheme = \"idle.toml\" }}\ncalm = {{ scheme = \"calm.toml\" }}\n\
         [weights]\nkind = \"listed\"\nlist = [{{ calm = 1 }}]\n[prompts]\nsources = [\"prompts.jsonl\"]\n[generation]\nmax_new_tokens = 12\n",
        address(&server),
        tokenizer(),
    );
    file("plan.toml", &text);
    let output = program().arg("sweep").arg(folder.path().join("plan.toml")).arg("--quiet").output().unwrap();
    let error = stderr(&output);
    assert!(output.status.code() == Some(1) && error.contains("under adapter \"lora-idle\" as under the base model"), "{error}");
}

#[test]
fn a_server_steers_models_of_other_servers() {
    let upstream = start(Kind::Vllm);
    let server = Server::of(program().arg("serve").args(["--port", "0"]).args(remote_args(&upstream)));
    let body = json!({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 12, "seed": 1,
        "swiss_knife": {"weights": {"honest": 1}, "set": ["proposal.candidates=3"], "explain": true}});
    let answer = server.chat(&body).json();
    assert!(answer["usage"]["completion_tokens"].as_u64() > Some(0), "{answer}");
    // Steps have fields of their own, which the description has too.
    let mut over_vocabulary = body.clone();
    (over_vocabulary["model"], over_vocabulary["swiss_knife"]["set"]) = (json!("swiss-knife:args"), json!([]));
    let step = server.chat(&over_vocabulary).json()["choices"][0]["swiss_knife"]["steps"][0].clone();
    assert!(step["head"].is_u64() && step["traffic"]["round_trips"].is_u64(), "{step}");
    let description = server.ask("GET", "/openapi.json", "", &Value::Null).json();
    let described = description["components"]["schemas"]["Step"]["properties"].as_object().unwrap();
    assert!(step.as_object().unwrap().keys().all(|field| described.contains_key(field)), "{step}");
    // Schemes that servers cannot run are not offered.
    let models = server.ask("GET", "/v1/models", "", &Value::Null).2;
    assert!(models.contains("\"swiss-knife:best-of-n\""), "{models}");
    assert!(!models.contains("rewarded-soups") && !models.contains("swiss-knife:cards"), "{models}");
    // The server refuses `logprobs`, which it cannot request from the backbone's server.
    let scored = json!({"messages": [{"role": "user", "content": "Hello"}], "logprobs": true});
    let refused = server.chat(&scored);
    assert!(
        refused.0 == 400 && refused.json()["error"]["message"].as_str().unwrap().contains("on other servers"),
        "{}",
        refused.2
    );
}

#[test]
fn a_server_keeps_the_failures_of_model_servers_to_its_log() {
    let upstream = start(Kind::Vllm);
    let server = Server::of(program().arg("serve").args(["--port", "0"]).args(remote_args(&upstream)));
    upstream.behave(|_, _| Act::Status(400, None, "CUDA error"));
    let answer = server.chat(&json!({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 12}));
    assert!(answer.0 == 502 && !answer.2.contains("CUDA") && !answer.2.contains(&upstream.url), "{}", answer.2);
    assert!(answer.2.contains("failed or refused"), "{}", answer.2);
    server.until(|server| server.log.lock().unwrap().contains("CUDA error"));
    let log = server.log.lock().unwrap().clone();
    let line = log.lines().find(|line| line.contains("CUDA error")).unwrap();
    assert!(line.contains("WARN") && line.contains("request=") && line.contains(&upstream.url), "{line}");
}

#[test]
fn an_adapter_that_model_servers_do_not_load_is_the_fault_of_the_one_that_is_to_blame() {
    let upstream = start(Kind::Vllm);
    // The files are on the machines of the servers.
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("there")).unwrap();
    let options = ["serve", "--port", "0", "--adapters", folder.path().to_str().unwrap()];
    let server = Server::of(program().args(options).args(remote_args(&upstream)));
    let load = |name: &str| server.ask("POST", "/swiss-knife/blades", "", &json!({"name": name, "adapter": "there"}));
    upstream.behave(|seen, _| match seen.path.as_str() {
        "/v1/load_lora_adapter" => Act::Status(400, None, "CUDA error"),
        _ => Act::Serve,
    });
    let failed = load("more");
    assert!(failed.0 == 502 && !failed.2.contains("CUDA") && !failed.2.contains(&upstream.url), "{}", failed.2);
    server.until(|server| server.log.lock().unwrap().contains("CUDA error"));
    let log = server.log.lock().unwrap().clone();
    let line = log.lines().find(|line| line.contains("CUDA error")).unwrap();
    assert!(line.contains("WARN") && line.contains("request=") && line.contains(&upstream.url), "{line}");
    // The name of an adapter that the servers have is the client's choice.
    upstream.behave(|_, _| Act::Serve);
    let known = load("lora-helpful");
    assert_eq!((known.0, known.json()["error"]["param"].as_str()), (400, Some("name")), "{}", known.2);
    assert!(known.2.contains("lora-helpful") && !known.2.contains(&upstream.url), "{}", known.2);
    assert_eq!(load("more").0, 201);
}

#[test]
fn an_answer_waits_for_a_model_server_no_longer_than_its_time() {
    let upstream = start(Kind::Vllm);
    let options = ["serve", "--port", "0", "--timeout", "3", "--concurrent", "1"];
    let server = Server::of(program().args(options).args(remote_args(&upstream)));
    upstream.behave(|_, _| Act::Hang(Duration::from_secs(300)));
    let body = json!({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 12});
    assert_eq!(server.chat(&body).0, 504);
    upstream.behave(|_, _| Act::Serve);
    // On a busy machine an answer may take longer than its time.
    server.until(|server| server.chat(&body).0 == 200);
}

/// Serves the drafts of the first step of three candidates, and nothing later.
fn hang_after_a_step(upstream: &Fake) {
    let mut drafts = 0;
    upstream.behave(move |seen, _| {
        drafts += usize::from(seen.drafts() && seen.body["n"] == 3);
        if drafts > 1 { Act::Hang(Duration::from_secs(300)) } else { Act::Serve }
    });
}

#[test]
fn an_answer_without_a_step_leaves_the_others_of_its_request() {
    let upstream = start(Kind::Vllm);
    let options = ["serve", "--port", "0", "--timeout", "10", "--concurrent", "1"];
    let server = Server::of(program().args(options).args(remote_args(&upstream)));
    hang_after_a_step(&upstream);
    // An answer of one token has one step.
    let body = json!({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1, "n": 2, "seed": 1,
        "swiss_knife": {"set": ["proposal.candidates=3"]}});
    let reply = server.chat(&body);
    assert_eq!(reply.0, 200, "{}", reply.2);
    let answer = reply.json();
    assert_eq!((&answer["usage"]["swiss_knife"]["steps"], &answer["usage"]["completion_tokens"]), (&json!(1), &json!(1)));
    let empty = &answer["choices"][1];
    assert_eq!((&empty["message"]["content"], &empty["finish_reason"]), (&json!(""), &json!("length")), "{answer}");
}

#[test]
fn an_answer_that_the_time_cuts_off_has_the_text_of_its_steps() {
    let upstream = start(Kind::Vllm);
    let options = ["serve", "--port", "0", "--span-tokens", "6", "--timeout"];
    let [server, hasty] = ["600", "10"].map(|time| Server::of(program().args(options).arg(time).args(remote_args(&upstream))));
    let complete = |server: &Server, tokens: usize, stop: &str| {
        let body = json!({"prompt": "Hello", "max_tokens": tokens, "seed": 1, "stop": stop,
            "swiss_knife": {"set": ["proposal.candidates=3"]}});
        let reply = server.ask("POST", "/v1/completions", "", &body);
        assert_eq!(reply.0, 200, "{}", reply.2);
        reply.json()
    };
    let whole = complete(&server, 6, "none");
    let text = whole["choices"][0]["text"].as_str().unwrap();
    hang_after_a_step(&upstream);
    // The last character of the step is held back, because the stop text may follow.
    let cut = complete(&hasty, 12, &format!("{}none", text.chars().last().unwrap()));
    assert_eq!((&cut["choices"][0]["text"], &cut["choices"][0]["finish_reason"]), (&json!(text), &json!("length")));
    assert_eq!(cut["usage"]["completion_tokens"], whole["usage"]["completion_tokens"]);
}

#[test]
fn a_server_ends_while_a_model_server_hangs() {
    let upstream = start(Kind::Vllm);
    let mut server = Server::of(program().args(["serve", "--port", "0", "--drain", "1"]).args(remote_args(&upstream)));
    upstream.behave(|_, _| Act::Hang(Duration::from_secs(300)));
    let body = json!({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 12}).to_string();
    let _waiting = server.send("POST", "/v1/chat/completions", "", &body);
    server.until(|_| !upstream.seen().is_empty());
    server.terminate();
    let (status, took) = server.wait();
    assert!(status == Some(0) && took < Duration::from_secs(30), "{status:?} after {took:?}");
}

#[test]
fn an_exported_model_answers_as_the_model_that_ships() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("model");
    let export = || run(["export", root.to_str().unwrap()]);
    // After a full disk, the same command succeeds.
    let full = ["-c", "ulimit -f 40; exec \"$0\" export \"$1\""];
    let itself = program().get_program().to_owned();
    let output = std::process::Command::new("sh").args(full).arg(itself).arg(&root).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot write") && !root.exists(), "{}", stderr(&output));
    stdout(&export());
    let part = |name: &str| root.join(name).display().to_string();
    let mut args = vec!["--backbone".to_owned(), part("backbone"), "--drafter".to_owned(), part("drafter")];
    for name in ["harmless", "helpful", "honest"] {
        args.extend(["--blade".to_owned(), format!("{name}={}", part(&format!("blades/{name}")))]);
    }
    // By default the model that ships drafts twelve candidates at its own temperature.
    let drafting = ["--n", "4", "--draft-temperature", "0.75"];
    let options =
        [&["generate", "How do I apologise?", "--max-new-tokens", "16", "--seed", "3", "--quiet"][..], &drafting].concat();
    let shipped = stdout(&run(options.clone()));
    assert_eq!(stdout(&program().args(options).args(&args).output().unwrap()), shipped);
    assert!(shipped.trim().len() > 8, "{shipped:?}");
    assert_refused(&export(), &["model", "not empty"]);
}
