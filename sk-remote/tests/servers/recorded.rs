//! Answers of a real vLLM, recorded, and what is read from them.
//!
//! To record them again, serve the model that ships with its three adapters as the page "Models
//! behind a server" of the book says, and run
//!
//! ```sh
//! SK_REMOTE_VLLM=http://localhost:8000 cargo test -p sk-remote --test servers record -- --ignored
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sk_core::{Candidates, DraftRequest, Engine, FixedLength, Sampling};
use sk_remote::{CheckReport, RemoteOptions, TokenizerCheck};

use crate::fake::{Act, Seen};
use crate::*;

/// The environment variable with the address of the server to record.
const VARIABLE: &str = "SK_REMOTE_VLLM";

/// The adapters, named as their blades.
const BLADES: [&str; 3] = ["helpful", "honest", "harmless"];

/// A prompt of the shipped model.
const PROMPT: &str = "\n\nHuman: How do I clean my bicycle?\n\nAssistant: Use warm water";

/// A request, and what the server answered.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Exchange {
    path: String,
    request: Value,
    status: u16,
    answer: Value,
}

/// All of them, and the tokens of the prompt by the tokenizer of the model.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Recording {
    tokens: Vec<TokenId>,
    exchanges: Vec<Exchange>,
}

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/vllm-0.32.json")
}

/// Checks the server, drafts three spans and reads them under all policies.
fn talk(server: &Fake, tokens: &[TokenId]) -> (CheckReport, Candidates, Readings) {
    let role: Role = format!("vllm+{}#base", server.url).parse().unwrap();
    let mut options = RemoteOptions::new(role, Arc::from([]), vec![]);
    options.adapters = BLADES.iter().map(|name| ((*name).to_owned(), (*name).to_owned())).collect();
    options.tolerance = Tolerance::F32;
    let engine = RemoteEngine::new(options).unwrap();
    let report = engine.check(&Probe { tokens, text: Some(PROMPT) }).unwrap();
    let mut generation = engine.start(&sampled(3, Sampling::nucleus()), &spec()).unwrap();
    let four = FixedLength(NonZeroUsize::new(4).unwrap());
    let request = DraftRequest { context: tokens, granularity: &four, limit: 4 };
    let candidates = generation.proposal.propose(request, &mut ChaCha8Rng::seed_from_u64(1)).unwrap();
    let readings = generation.backbone.read(tokens, &candidates, &all()).unwrap();
    (report, candidates, readings)
}

fn all() -> Vec<Policy> {
    std::iter::once(Policy::Backbone).chain(BLADES.map(variant)).collect()
}

#[test]
fn recorded_answers_are_read_as_the_server_meant_them() {
    let recording: Recording = serde_json::from_slice(&std::fs::read(file()).unwrap()).unwrap();
    let key = |path: &str, request: &Value| format!("{path} {request}");
    let answers: BTreeMap<String, Exchange> =
        recording.exchanges.iter().map(|exchange| (key(&exchange.path, &exchange.request), exchange.clone())).collect();
    let server = Fake::start(Setup::new(Kind::Vllm, &[]));
    server.behave(move |seen, _| match answers.get(&key(&seen.path, &seen.body)) {
        Some(exchange) => Act::Say(exchange.status, exchange.answer.to_string()),
        None => Act::Status(418, None, "not recorded"),
    });
    let tokens = &recording.tokens;
    let (report, candidates, readings) = talk(&server, tokens);

    assert_eq!((report.servers[0].tokenizer, report.servers[0].limit), (TokenizerCheck::Same, Some(512)));
    // The server computes in f32.
    assert!(report.servers[0].noise < 1e-5);
    assert!(report.adapters.iter().all(|(_, distance)| *distance > 0.05), "{:?}", report.adapters);
    assert_eq!(candidates.len(), 3);

    // Each number again, found by hand in the answer to the last request of the policy.
    for policy in all() {
        let model = if let Policy::Variant(name) = &policy { name } else { "base" };
        let spoken = recording.exchanges.iter().rev().find(|exchange| {
            exchange.request["model"] == *model
                && exchange.request["prompt_logprobs"] == 1
                && exchange.request["prompt"][0].as_array().is_some_and(|row| row.len() > tokens.len())
        });
        let answer = &spoken.unwrap().answer;
        for (row, candidate) in candidates.iter().enumerate() {
            let reading = &readings.get(&policy).unwrap()[row];
            assert_eq!(reading.log_probs.len(), candidate.tokens.len());
            for (place, token) in candidate.tokens.iter().enumerate() {
                let entry = answer["choices"][row]["prompt_logprobs"][tokens.len() + place].as_object().unwrap();
                let number = |value: &Value| value["logprob"].as_f64().unwrap() as f32;
                assert_eq!(reading.log_probs[place], number(&entry[&token.to_string()]));
                let most = entry.values().map(number).fold(f32::NEG_INFINITY, f32::max);
                assert_eq!(reading.min_entropy[place], -most);
            }
        }
    }
    // Drafted at temperature 1 and top-p 0.95, the tokens have the numbers with which they are read.
    for (candidate, reading) in candidates.iter().zip(readings.get(&Policy::Backbone).unwrap()) {
        assert!(candidate.log_probs.iter().zip(&reading.log_probs).all(|(a, b)| (a - b).abs() < 1e-4));
    }
}

#[test]
#[ignore = "needs a vLLM server: see the head of the file"]
fn record() {
    let url = std::env::var(VARIABLE).unwrap_or_else(|_| panic!("set {VARIABLE} to the address of a vLLM server"));
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

    let proxy = Fake::start(Setup::new(Kind::Vllm, &[]));
    let kept = Arc::clone(&recording);
    proxy.behave(move |Seen { path, body, .. }, _| {
        let (status, text) = forward(path, body);
        let mut answer: Value = serde_json::from_str(&text).unwrap();
        forget_place(&mut answer);
        kept.lock().unwrap().exchanges.push(Exchange { path: path.clone(), request: body.clone(), status, answer });
        Act::Say(status, text)
    });
    talk(&proxy, &tokens);
    std::fs::create_dir_all(file().parent().unwrap()).unwrap();
    // One exchange a line keeps differences readable and the file small.
    let lines: Vec<String> =
        recording.lock().unwrap().exchanges.iter().map(|exchange| serde_json::to_string(exchange).unwrap()).collect();
    let tokens = serde_json::to_string(&tokens).unwrap();
    std::fs::write(file(), format!("{{\"tokens\":{tokens},\"exchanges\":[\n{}\n]}}\n", lines.join(",\n"))).unwrap();
}

/// Drops what tells of the machine and the moment.
fn forget_place(answer: &mut Value) {
    for model in answer["data"].as_array_mut().into_iter().flatten() {
        for field in ["root", "permission", "created"] {
            model.as_object_mut().map(|model| model.remove(field));
        }
    }
    if let Some(answer) = answer.as_object_mut() {
        ["id", "created", "system_fingerprint"].map(|field| answer.remove(field)).into_iter().for_each(drop);
    }
}
