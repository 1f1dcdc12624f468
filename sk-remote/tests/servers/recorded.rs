//! Recorded answers of real servers, and the values that the crate reads from them.
//!
//! To record them again, serve the model that ships with its three adapters as the page "Models
//! behind a server" of the book says, and run
//!
//! ```sh
//! SK_REMOTE=vllm+http://localhost:8000#base cargo test -p sk-remote --test servers record -- --ignored
//! SK_REMOTE=sglang+http://localhost:30000 cargo test -p sk-remote --test servers record -- --ignored
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sk_core::{Candidates, Capped, DraftRequest, Engine, Response, Sampling};
use sk_remote::{CheckReport, RemoteOptions};

use crate::fake::{Act, Seen};
use crate::*;

/// The environment variable with the role of the server to record.
const VARIABLE: &str = "SK_REMOTE";

/// The adapters, which have the names of their blades.
const BLADES: [&str; 3] = ["helpful", "honest", "harmless"];

/// The end-of-text token of the model that ships, which is the last of its vocabulary.
const END_OF_TEXT: TokenId = 4095;

/// A prompt for the model that ships.
const PROMPT: &str = "\n\nHuman: How do I clean my bicycle?\n\nAssistant: Use warm water";

/// A request and the server's answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Exchange {
    path: String,
    request: Value,
    status: u16,
    answer: Value,
}

/// All exchanges, and the prompt's tokens by the model's tokenizer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Recording {
    tokens: Vec<TokenId>,
    exchanges: Vec<Exchange>,
}

/// The recording of a kind of server; its name has the server's version.
fn file(kind: Kind) -> PathBuf {
    let name = match kind {
        Kind::Vllm => "vllm-0.32.json",
        Kind::Sglang => "sglang-0.5.23.json",
    };
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// The role of a server that replays a recording or makes one.
fn role(kind: Kind, server: &Fake) -> Role {
    match kind {
        Kind::Vllm => format!("vllm+{}#base", server.url),
        Kind::Sglang => format!("sglang+{}", server.url),
    }
    .parse()
    .unwrap()
}

/// Checks the server, drafts three spans, and reads them under all policies. For SGLang, spans are
/// long enough to reach an end of text.
fn talk(kind: Kind, server: &Fake, tokens: &[TokenId]) -> (CheckReport, Candidates, Readings) {
    let (most, end_of_text) = match kind {
        Kind::Vllm => (4, vec![]),
        Kind::Sglang => (24, vec![END_OF_TEXT]),
    };
    let mut options = RemoteOptions::new(role(kind, server), Arc::from([]), end_of_text);
    options.tolerance = Tolerance::F32;
    let engine = RemoteEngine::new(options).unwrap();
    BLADES.iter().for_each(|name| engine.adapters().insert(*name, *name));
    let report = engine.check(&Probe { tokens, text: PROMPT }).unwrap();
    let mut generation = engine.start(&sampled(3, Sampling::nucleus()), &spec()).unwrap();
    let length = Capped { rule: Response, tokens: NonZeroUsize::new(most).unwrap() };
    let request = DraftRequest { context: tokens, granularity: &length, limit: most };
    let candidates = generation.proposal.propose(request, &mut ChaCha8Rng::seed_from_u64(1)).unwrap();
    let readings = generation.backbone.read(tokens, &candidates, &all()).unwrap();
    (report, candidates, readings)
}

fn all() -> Vec<Policy> {
    std::iter::once(Policy::Backbone).chain(BLADES.map(variant)).collect()
}

/// log π(y_t) and log π(argmax) at a position of a row, looked up directly in the recorded answers.
fn found(kind: Kind, recording: &Recording, policy: &Policy, row: usize, place: usize, token: TokenId) -> (f32, f32) {
    let number = |value: &Value| value.as_f64().unwrap() as f32;
    let adapter = if let Policy::Variant(name) = policy { Some(&**name) } else { None };
    let length = recording.tokens.len();
    match kind {
        Kind::Vllm => {
            let spoken = recording.exchanges.iter().rev().find(|exchange| {
                exchange.request["model"] == *adapter.unwrap_or("base")
                    && exchange.request["prompt_logprobs"] == 1
                    && exchange.request["prompt"][0].as_array().is_some_and(|row| row.len() > length)
            });
            let entry = spoken.unwrap().answer["choices"][row]["prompt_logprobs"][length + place].as_object().unwrap();
            let most = entry.values().map(|value| number(&value["logprob"])).fold(f32::NEG_INFINITY, f32::max);
            (number(&entry[&token.to_string()]["logprob"]), most)
        }
        Kind::Sglang => {
            // The last request reads all rows, policy by policy.
            let Exchange { request, answer, .. } = recording.exchanges.last().unwrap();
            let adapters = request["lora_path"].as_array().unwrap();
            let first = adapters.iter().position(|name| name.as_str() == adapter).unwrap();
            let meta = &answer[first + row]["meta_info"];
            (number(&meta["input_token_logprobs"][1 + place][0]), number(&meta["input_top_logprobs"][1 + place][0][0]))
        }
    }
}

#[test]
fn recorded_answers_are_read_as_the_server_meant_them() {
    for (kind, limit) in [(Kind::Vllm, 512), (Kind::Sglang, 1018)] {
        let recording: Recording = serde_json::from_slice(&std::fs::read(file(kind)).unwrap()).unwrap();
        let key = |path: &str, request: &Value| format!("{path} {request}");
        let answers: BTreeMap<String, Exchange> =
            recording.exchanges.iter().map(|exchange| (key(&exchange.path, &exchange.request), exchange.clone())).collect();
        let server = Fake::start(Setup::new(kind, &[]));
        server.behave(move |seen, _| match answers.get(&key(&seen.path, &seen.body)) {
            Some(exchange) => Act::Say(exchange.status, exchange.answer.to_string()),
            None => Act::Status(418, None, "not recorded"),
        });
        let (report, candidates, readings) = talk(kind, &server, &recording.tokens);

        assert_eq!((report.servers[0].tokenizes, report.servers[0].limit), (true, Some(limit)));
        // The server computes in f32.
        assert!(report.servers[0].noise < 1e-5);
        assert!(report.adapters.iter().all(|(_, distance)| *distance > 0.05), "{:?}", report.adapters);
        assert_eq!(candidates.len(), 3);
        for policy in all() {
            for (row, candidate) in candidates.iter().enumerate() {
                let reading = &readings.get(&policy).unwrap()[row];
                assert_eq!(reading.log_probs.len(), candidate.tokens.len());
                for (place, &token) in candidate.tokens.iter().enumerate() {
                    let (own, most) = found(kind, &recording, &policy, row, place, token);
                    assert_eq!((reading.log_probs[place], reading.min_entropy[place]), (own, -most), "{kind:?}");
                }
            }
        }
        // At temperature 1 and top-p 0.95, drafting and reading give the tokens the same numbers.
        for (candidate, reading) in candidates.iter().zip(readings.get(&Policy::Backbone).unwrap()) {
            assert!(candidate.log_probs.iter().zip(&reading.log_probs).all(|(a, b)| (a - b).abs() < 1e-4));
        }
        // SGLang echoes this token as 0, because it is the last of the vocabulary.
        let has_ended = candidates.iter().any(|candidate| candidate.tokens.last() == Some(&END_OF_TEXT));
        assert_eq!(has_ended, kind == Kind::Sglang);
    }
}

#[test]
#[ignore = "needs a server: see the head of the file"]
fn record() {
    let asked = std::env::var(VARIABLE).unwrap_or_else(|_| panic!("set {VARIABLE} to the role of a server"));
    let Role { kind, urls, .. } = asked.parse().unwrap();
    let url = urls[0].clone();
    let recording = Arc::new(Mutex::new(Recording::default()));
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let forward = move |path: &str, body: &Value| {
        let address = format!("{url}{path}");
        let answered = match body {
            Value::Null => agent.get(&address).call(),
            body => agent.post(&address).content_type("application/json").send(body.to_string()),
        };
        let mut answer = answered.unwrap();
        (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
    };
    let (_, tokenized) = forward("/tokenize", &serde_json::json!({"prompt": PROMPT, "add_special_tokens": false}));
    let tokenized: Value = serde_json::from_str(&tokenized).unwrap();
    let tokens: Vec<TokenId> = serde_json::from_value(tokenized["tokens"].clone()).unwrap();
    recording.lock().unwrap().tokens.clone_from(&tokens);

    let proxy = Fake::start(Setup::new(kind, &[]));
    let kept = Arc::clone(&recording);
    proxy.behave(move |Seen { path, body, .. }, _| {
        let (status, text) = forward(path, body);
        let mut answer: Value = serde_json::from_str(&text).unwrap();
        forget_place(&mut answer);
        kept.lock().unwrap().exchanges.push(Exchange { path: path.clone(), request: body.clone(), status, answer });
        Act::Say(status, text)
    });
    talk(kind, &proxy, &tokens);
    // One exchange per line keeps diffs readable and the file small.
    let lines: Vec<String> =
        recording.lock().unwrap().exchanges.iter().map(|exchange| serde_json::to_string(exchange).unwrap()).collect();
    let tokens = serde_json::to_string(&tokens).unwrap();
    std::fs::write(file(kind), format!("{{\"tokens\":{tokens},\"exchanges\":[\n{}\n]}}\n", lines.join(",\n"))).unwrap();
}

/// Removes fields that depend on the machine or the time.
fn forget_place(answer: &mut Value) {
    for model in answer.get_mut("data").and_then(Value::as_array_mut).into_iter().flatten() {
        for field in ["root", "permission", "created"] {
            model.as_object_mut().map(|model| model.remove(field));
        }
    }
    for row in answer.as_array_mut().into_iter().flatten() {
        let numbers = |name: &String| name == "finish_reason" || name.ends_with("_logprobs") || name.ends_with("_tokens");
        if let Some(meta) = row["meta_info"].as_object_mut() {
            meta.retain(|name, _| numbers(name));
        }
    }
    if let Some(answer) = answer.as_object_mut() {
        ["id", "created", "system_fingerprint"].map(|field| answer.remove(field)).into_iter().for_each(drop);
        // SGLang's description of itself contains paths.
        if answer.contains_key("max_req_input_len") {
            answer.retain(|name, _| ["context_length", "max_req_input_len"].contains(&name.as_str()));
        }
    }
}
