//! The server as clients of OpenAI's API use it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sk_models::device::DeviceName;
use sk_models::engine::Frozen;
use sk_models::local::{ModelOptions, Models};

use crate::common::{assert_refused, copy_of, edit_json, model_args, models, program, run_on_models, stdout};

/// A time-out that only a hanging server exceeds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server; it ends with the test.
pub(crate) struct Server {
    process: Child,
    address: String,
    /// Its log so far.
    log: Arc<Mutex<String>>,
}

/// A reply: status, headers and body.
pub(crate) struct Reply(pub(crate) u16, String, pub(crate) String);

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.2).unwrap_or_else(|error| panic!("{error}: {}", self.2))
    }
}

impl Server {
    /// Starts a server of the tiny model, or of the model that ships if `args` asks for it.
    fn start(args: &[&str]) -> Self {
        Self::of(program().arg("serve").args(["--port", "0"]).args(model_args()).args(args))
    }

    pub(crate) fn of(command: &mut Command) -> Self {
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let mut is_first = true;
        let address = loop {
            let line = lines.next().expect("the server says where it listens").unwrap();
            // The server binds its address before it loads the models, and says "loading" first.
            assert!(!is_first || line.starts_with("loading") || line.starts_with("warning"), "{line}");
            is_first = false;
            if let Some((_, rest)) = line.split_once("listening at http://") {
                break rest.split('/').next().unwrap().to_owned();
            }
        };
        let log = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&log);
        thread::spawn(move || lines.map_while(Result::ok).for_each(|line| *kept.lock().unwrap() += &(line + "\n")));
        Self { process, address, log }
    }

    /// Sends a request and leaves the connection open.
    fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n");
        // The server may refuse a request by its length and not read the rest of it.
        let _ = stream.write_all(format!("{head}{body}").as_bytes());
        stream
    }

    fn ask(&self, method: &str, path: &str, headers: &str, body: &Value) -> Reply {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut text = String::new();
        self.send(method, path, headers, &body).read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = if head.contains("transfer-encoding: chunked") { unchunked(body) } else { body.to_owned() };
        Reply(status, head.to_owned(), body)
    }

    pub(crate) fn chat(&self, body: &Value) -> Reply {
        self.ask("POST", "/v1/chat/completions", "", body)
    }

    /// Asks the server to shut down.
    fn terminate(&self) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }

    /// Waits for the process to end. Returns the exit status and the time that it took.
    fn wait(&mut self) -> (Option<i32>, Duration) {
        let start = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return (status.code(), start.elapsed());
            }
            assert!(start.elapsed() < PATIENCE, "the server goes on");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Requests a stream larger than the socket buffers and reads nothing of it.
    fn send_and_take_nothing(&self) -> TcpStream {
        let body = hello(&json!({"stream": true, "max_tokens": 440, "swiss_knife":
            {"explain": true, "set": ["proposal.candidates=300"]}}));
        let stream = self.send("POST", "/v1/chat/completions", "", &body.to_string());
        self.until(|server| server.metric("swiss_knife_answers_under_way") > 0.0);
        stream
    }

    fn until(&self, holds: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            assert!(start.elapsed() < PATIENCE, "it does not come to that");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The value of a metric; 0 if it is absent.
    fn metric(&self, name: &str) -> f64 {
        let Reply(_, _, text) = self.ask("GET", "/metrics", "", &Value::Null);
        let line = text.lines().find(|line| line.starts_with(name) && !line.starts_with('#'));
        line.map_or(0.0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn memory_that_is_not_there_is_refused_and_the_server_stays() {
    let folder = tempfile::tempdir().unwrap();
    let backbone = copy_of("backbone", folder.path());
    edit_json(&backbone.join("config.json"), |config| config["max_position_embeddings"] = json!(1_000_000_000));
    let command = format!(
        "ulimit -v 8000000; exec {} serve --port 0 --memory 1000000 --max-new-tokens 1000000000 --concurrent 2 --device cpu --backbone {} --blade helpful={}",
        env!("CARGO_BIN_EXE_swiss-knife"),
        backbone.display(),
        models().join("blades/helpful").display()
    );
    let server = Server::of(Command::new("sh").args(["-c", &command]));
    let ask = |tokens: u64| server.chat(&json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": tokens}));
    for tokens in [50_000_000, 900_000_000] {
        let Reply(status, _, body) = ask(tokens);
        assert!(status == 400 && body.contains("this server gives all answers"), "{status}: {body}");
    }
    assert_eq!(ask(4).0, 200);
}

/// Joins the pieces of a chunked body.
fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole.push_str(&rest[..size]);
        body = rest.get(size + 2..).unwrap_or_default();
    }
    whole
}

/// The events of a stream, without the final `[DONE]`.
fn chunks(body: &str) -> Vec<Value> {
    let mut data: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(data.pop(), Some("[DONE]"), "{body}");
    assert!(!body.contains("event:"), "a named event is not a chunk");
    data.into_iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn hello(more: &Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "Hello there"}], "seed": 7, "max_tokens": 40});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn text(reply: &Reply) -> String {
    assert_eq!(reply.0, 200, "{}", reply.2);
    reply.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

#[test]
fn an_answer_is_what_generate_writes() {
    let server = Server::start(&[]);
    let weights = json!({"swiss_knife": {"weights": {"helpful": 0.7, "honest": 0.3}}});
    let reply = server.chat(&hello(&weights));
    let args = ["Hello there", "-w", "helpful=0.7,honest=0.3", "--seed", "7", "--max-new-tokens", "40", "--json", "-q"];
    let generated: Value = serde_json::from_str(&stdout(&run_on_models("generate", &args))).unwrap();
    assert_eq!(text(&reply), generated["text"]);
    let body = reply.json();
    assert_eq!((&body["object"], &body["model"]), (&json!("chat.completion"), &json!("swiss-knife")));
    assert_eq!(body["usage"]["completion_tokens"], generated["tokens"]);
    assert_eq!(body["usage"]["swiss_knife"]["steps"], generated["steps"]);
    assert_eq!(body["choices"][0]["finish_reason"], "length");
    // Without settings in the body, those of the header apply.
    let header = format!("X-Swiss-Knife: {}\r\n", weights["swiss_knife"]);
    assert_eq!(text(&server.ask("POST", "/v1/chat/completions", &header, &hello(&json!({})))), generated["text"]);
    assert_ne!(text(&server.chat(&hello(&json!({"seed": 8})))), generated["text"]);
    // A prompt as text, and the same prompt as tokens.
    let completed = server.ask("POST", "/v1/completions", "", &json!({"prompt": "Hello", "seed": 1, "max_tokens": 9}));
    assert_eq!(completed.0, 200, "{}", completed.2);
    let tokens: Vec<u32> = "Hello".bytes().map(u32::from).collect();
    let of_tokens = server.ask("POST", "/v1/completions", "", &json!({"prompt": tokens, "seed": 1, "max_tokens": 9}));
    assert_eq!(completed.json()["choices"][0]["text"], of_tokens.json()["choices"][0]["text"]);
}

#[test]
fn spans_stream_as_they_are_chosen() {
    let server = Server::start(&["--span-tokens", "8"]);
    let whole = server.chat(&hello(&json!({"n": 2})));
    let streamed = server.chat(&hello(&json!({"n": 2, "stream": true, "stream_options": {"include_usage": true},
        "swiss_knife": {"explain": true}})));
    assert!(streamed.1.contains("text/event-stream"), "{}", streamed.1);
    let mut chunks = chunks(&streamed.2);
    let usage = chunks.pop().unwrap();
    assert_eq!((&usage["choices"], &usage["usage"]["prompt_tokens"]), (&json!([]), &whole.json()["usage"]["prompt_tokens"]));
    assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none() && chunk["id"] == usage["id"]));
    for choice in 0..2 {
        let of: Vec<&Value> = chunks.iter().filter(|chunk| chunk["choices"][0]["index"] == choice).collect();
        assert_eq!(of[0]["choices"][0]["delta"]["role"], "assistant");
        assert_eq!(of[of.len() - 1]["choices"][0]["finish_reason"], "length");
        let joined: String = of.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(joined, whole.json()["choices"][choice]["message"]["content"]);
        let steps: Vec<&Value> = of.iter().map(|chunk| &chunk["swiss_knife"]["step"]).filter(|step| !step.is_null()).collect();
        assert!(steps.len() >= 5, "{}", steps.len());
        for step in steps {
            let candidates = step["candidates"].as_array().unwrap();
            let mass: f64 = candidates.iter().map(|candidate| candidate["probability"].as_f64().unwrap()).sum();
            assert!((mass - 1.0).abs() < 1e-9 && candidates[0]["blades"].as_object().unwrap().len() == 3, "{step}");
            // The composite is the sum of the blades' contributions.
            for candidate in candidates {
                let blades = candidate["blades"].as_object().unwrap().values();
                let added: f64 = blades.map(|blade| blade["contribution"].as_f64().unwrap()).sum();
                assert!((added - candidate["mu"].as_f64().unwrap()).abs() < 1e-9, "{candidate}");
            }
            let shares: f64 = step["influence"].as_object().unwrap().values().map(|share| share.as_f64().unwrap()).sum();
            assert!((shares - 1.0).abs() < 1e-9, "{step}");
        }
    }
    let without = server.chat(&hello(&json!({"stream": true})));
    assert!(!without.2.contains("usage") && !without.2.contains("swiss_knife\""), "{}", without.2);
    // No part of a stop text is sent.
    let all = text(&server.chat(&hello(&json!({}))));
    let (at, _) = all.char_indices().nth(10).unwrap();
    let end = all[at..].char_indices().nth(2).map_or(all.len(), |(length, _)| at + length);
    let stopped = server.chat(&hello(&json!({"stop": &all[at..end]})));
    assert_eq!(stopped.json()["choices"][0]["finish_reason"], "stop");
    assert!(!text(&stopped).contains(&all[at..end]));
}

#[test]
fn what_cannot_be_served_is_refused_in_openais_shape() {
    let server = Server::start(&[]);
    for (body, status, param) in [
        (hello(&json!({"tools": [{"type": "function"}]})), 400, "tools"),
        (hello(&json!({"response_format": {"type": "json_object"}})), 400, "response_format"),
        (hello(&json!({"swiss_knife": {"weights": {"kind": 1}}})), 400, "swiss_knife.weights"),
        (hello(&json!({"swiss_knife": {"weights": {"helpful": -1}}})), 400, "swiss_knife.weights"),
        (hello(&json!({"swiss_knife": {"scheme": "/etc/passwd"}})), 400, "swiss_knife.scheme"),
        (hello(&json!({"swiss_knife": {"set": ["blades.helpful.adapter=/etc"]}})), 400, "swiss_knife.set"),
        (hello(&json!({"swiss_knife": {"blades": {"calm": "/etc"}}})), 400, "swiss_knife.blades"),
        (hello(&json!({"messages": [{"role": "user", "content": "a".repeat(600)}]})), 400, "messages"),
        (json!([]), 400, "body"),
    ] {
        let reply = server.chat(&body);
        let error = &reply.json()["error"];
        assert_eq!((reply.0, error["param"].as_str().unwrap()), (status, param), "{error}");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()) && error.get("code").is_some());
    }
    let known = server.chat(&hello(&json!({"swiss_knife": {"weights": {"kind": 1}}})));
    assert!(known.2.contains("helpful"), "the known blades are named: {}", known.2);
    let elsewhere = server.chat(&hello(&json!({"model": "gpt-5"})));
    assert_eq!((elsewhere.0, elsewhere.json()["error"]["code"].as_str()), (404, Some("not_found")));
    assert_eq!(server.ask("GET", "/v1/models/swiss-knife:best-of-n", "", &Value::Null).0, 200);
    let bogus = server.ask("GET", "/v1/models/swiss-knife:bogus", "", &Value::Null);
    assert!(bogus.0 == 404 && bogus.2.contains("best-of-n"), "{}", bogus.2);
    assert_eq!(server.chat(&hello(&json!({"model": "swiss-knife:bogus"}))).0, 404);
    assert_eq!(server.ask("GET", "/v2", "", &Value::Null).0, 404);
    let long = server.ask("POST", "/v1/chat/completions", "", &json!("x".repeat(2 << 20)));
    assert_eq!((long.0, long.json()["error"]["code"].as_str()), (413, Some("request_too_large")));
    assert_eq!(server.ask("DELETE", "/v1/models", "", &Value::Null).json()["error"]["code"], "method_not_allowed");
    let many = hello(&json!({"swiss_knife": {"set": ["proposal.candidates=65"]}}));
    assert_eq!(server.chat(&many).json()["error"]["param"], "swiss_knife.set");
    // A scheme may be named as the model, and a blade may be an instruction.
    let scheme = hello(&json!({"model": "swiss-knife:best-of-n"}));
    assert_ne!(text(&server.chat(&scheme)), text(&server.chat(&hello(&json!({})))));
    let calm = json!({"swiss_knife": {"blades": {"calm": "instruction:Be calm."}, "weights": {"calm": 1}}});
    assert!(!text(&server.chat(&hello(&calm))).is_empty());
    let models = server.ask("GET", "/v1/models", "", &Value::Null).json();
    assert!(models["data"].as_array().unwrap().iter().any(|model| model["id"] == "swiss-knife:best-of-n"));
}

#[test]
fn more_tokens_than_an_answer_may_have_are_refused() {
    let server = Server::start(&["--max-new-tokens", "20"]);
    for field in ["max_tokens", "max_completion_tokens"] {
        let refused = server.chat(&hello(&json!({"max_tokens": null, field: 21})));
        assert_eq!((refused.0, refused.json()["error"]["param"].as_str()), (400, Some(field)), "{}", refused.2);
        assert!(refused.2.contains("at most 20 tokens"), "{}", refused.2);
    }
    let all = server.chat(&hello(&json!({"max_tokens": null}))).json();
    assert_eq!(all["usage"]["completion_tokens"], 20);
}

#[test]
fn a_key_is_asked_for() {
    let mut command = program();
    command.env("SWISS_KNIFE_SERVE_KEY", "secret").arg("serve").args(["--port", "0"]).args(model_args());
    let server = Server::of(&mut command);
    for header in ["", "Authorization: Bearer wrong\r\n", "Authorization: secret\r\n"] {
        let reply = server.ask("GET", "/v1/models", header, &Value::Null);
        assert_eq!((reply.0, reply.json()["error"]["code"].as_str()), (401, Some("invalid_api_key")));
    }
    assert_eq!(server.ask("GET", "/v1/models", "Authorization: Bearer secret\r\n", &Value::Null).0, 200);
    assert_eq!(server.ask("GET", "/health", "", &Value::Null).0, 200);
}

#[test]
fn weights_change_while_it_answers() {
    let server = Server::start(&["--span-tokens", "4", "--max-candidates", "300"]);
    // The chunks exceed the socket buffers, so the answer waits for its reader.
    let body = hello(&json!({"stream": true, "max_tokens": 440, "swiss_knife":
        {"explain": true, "weights": {"helpful": 1}, "set": ["proposal.candidates=300"]}}));
    let mut lines = BufReader::new(server.send("POST", "/v1/chat/completions", "", &body.to_string())).lines();
    let mut weights = Vec::new();
    let mut edited = false;
    while let Some(Ok(line)) = lines.next() {
        let Some(data) = line.strip_prefix("data: ").filter(|data| *data != "[DONE]") else { continue };
        let chunk: Value = serde_json::from_str(data).unwrap();
        if !edited {
            // The first chunk holds the id.
            let path = format!("/swiss-knife/generations/{}", chunk["id"].as_str().unwrap());
            assert_eq!(server.ask("PATCH", &path, "", &json!({"weights": {"kind": 1}})).0, 400);
            assert_eq!(server.ask("PATCH", &path, "", &json!({"blades": {"kind": "/etc"}})).0, 400);
            let reply = server.ask("PATCH", &path, "", &json!({"weights": {"honest": 3, "harmless": 1}}));
            assert_eq!((reply.0, &reply.json()["weights"]["honest"]), (200, &json!(0.75)), "{}", reply.2);
            edited = true;
        }
        if let Some(step) = chunk["swiss_knife"]["step"].as_object() {
            weights.push(step["weights"].clone());
        }
    }
    assert_eq!(weights[weights.len() - 1], json!({"honest": 0.75, "harmless": 0.25}));
    assert_eq!(server.ask("GET", "/swiss-knife/generations/chatcmpl-0", "", &Value::Null).0, 404);
}

#[test]
fn a_blade_takes_and_leaves_a_seat_while_it_answers() {
    let server = Server::start(&["--span-tokens", "4", "--max-candidates", "300"]);
    let body = hello(&json!({"stream": true, "max_tokens": 440, "swiss_knife":
        {"explain": true, "weights": {"helpful": 1}, "set": ["proposal.candidates=300"]}}));
    let mut lines = BufReader::new(server.send("POST", "/v1/chat/completions", "", &body.to_string())).lines();
    let mut seen = Vec::new();
    while let Some(Ok(line)) = lines.next() {
        let Some(data) = line.strip_prefix("data: ").filter(|data| *data != "[DONE]") else { continue };
        let chunk: Value = serde_json::from_str(data).unwrap();
        if seen.is_empty() {
            let path = format!("/swiss-knife/generations/{}", chunk["id"].as_str().unwrap());
            let long = "Be calm. ".repeat(50);
            let taken = server.ask("PATCH", &path, "", &json!({"blades": {"calm": format!("instruction:{long}")}}));
            assert_eq!((taken.0, taken.json()["error"]["param"].as_str()), (400, Some("blades")), "{}", taken.2);
            let edit = json!({"blades": {"calm": "instruction:Be calm.", "helpful": null}, "weights": {"calm": 1, "honest": 1}});
            let reply = server.ask("PATCH", &path, "", &edit);
            assert_eq!((reply.0, &reply.json()["weights"]["calm"]), (200, &json!(0.5)), "{}", reply.2);
            assert!(reply.json()["weights"].get("helpful").is_none());
            // An adapter that the server knows can be seated again; any other is refused.
            let unknown = server.ask("PATCH", &path, "", &json!({"blades": {"kind": "adapter"}}));
            assert!(unknown.0 == 400 && unknown.2.contains("helpful"), "{}", unknown.2);
            let again = json!({"blades": {"helpful": "adapter"}, "weights": {"helpful": 1, "honest": 1}});
            let reply = server.ask("PATCH", &path, "", &again);
            assert_eq!((reply.0, &reply.json()["weights"]["helpful"]), (200, &json!(0.5)), "{}", reply.2);
        }
        let weights = &chunk["swiss_knife"]["step"]["weights"];
        seen.push(weights.clone());
    }
    assert!(!seen.is_empty());
    assert!(seen.contains(&json!({"helpful": 0.5, "honest": 0.5})), "{seen:?}");
}

#[test]
fn an_answer_goes_on_from_what_it_begins_with() {
    let server = Server::start(&["--span-tokens", "4"]);
    let whole = server.chat(&hello(&json!({"swiss_knife": {"explain": true}})));
    let steps = whole.json()["choices"][0]["swiss_knife"]["steps"].as_array().unwrap().clone();
    let other = (steps[0]["chosen"].as_u64().unwrap() as usize + 1) % steps[0]["candidates"].as_array().unwrap().len();
    let taken = &steps[0]["candidates"][other];
    let body = json!({"swiss_knife": {"explain": true, "prefix": taken["tokens"]}, "max_tokens": 8});
    let rest = server.chat(&hello(&body));
    assert_eq!(rest.0, 200, "{}", rest.2);
    let prompt = |reply: &Reply| reply.json()["usage"]["prompt_tokens"].as_u64().unwrap() as usize;
    assert_eq!(prompt(&rest), prompt(&whole) + taken["tokens"].as_array().unwrap().len());
    // The answer is the same as if the prompt had ended with the prefix.
    let dialogue = "\n\nHuman: Hello there\n\nAssistant:".bytes().map(u32::from);
    let taken = taken["tokens"].as_array().unwrap().iter().map(|token| token.as_u64().unwrap() as u32);
    let tokens: Vec<u32> = dialogue.chain(taken).collect();
    let completed = server.ask("POST", "/v1/completions", "", &json!({"prompt": tokens, "seed": 7, "max_tokens": 8}));
    assert_eq!(completed.json()["choices"][0]["text"], rest.json()["choices"][0]["message"]["content"]);
    let unknown = server.chat(&hello(&json!({"swiss_knife": {"prefix": [99999]}})));
    assert_eq!((unknown.0, unknown.json()["error"]["param"].as_str()), (400, Some("swiss_knife.prefix")));
}

/// A pass over a whole text adds log-probabilities in another order.
const ROUNDING: f64 = 1e-4;

#[test]
fn what_the_search_costs_is_measured() {
    let server = Server::start(&["--span-tokens", "8"]);
    let body = hello(&json!({"stream": true, "stream_options": {"include_usage": true}, "swiss_knife":
        {"explain": true, "weights": {"helpful": 1, "honest": 1}}}));
    let chunks = chunks(&server.chat(&body).2);
    let cost = &chunks[chunks.len() - 1]["usage"]["swiss_knife"];
    // The backbone and two adapters score each drafted token.
    let drafted = cost["drafted_tokens"].as_u64().unwrap();
    assert!(drafted > 0 && cost["scored_tokens"] == 3 * drafted, "{cost}");
    // The server counts an answer after it has sent the last chunk.
    server.until(|server| server.metric("swiss_knife_answers_total{outcome=\"complete\"}") == 1.0);
    assert_eq!(server.metric("swiss_knife_scored_tokens_total"), 3.0 * drafted as f64);
    assert_eq!(server.metric("swiss_knife_kv_bytes"), 0.0, "nothing is left of it");
    assert!(
        server.metric("swiss_knife_pass_positions_bucket{le=\"+Inf\"}")
            > server.metric("swiss_knife_pass_positions_bucket{le=\"1\"}")
    );
    assert!(server.metric("swiss_knife_pass_requests_count") > 0.0 && server.metric("swiss_knife_span_seconds_count") > 0.0);
    // While an answer is under way, its cache is smaller than the memory reserved for it.
    let server = Server::start(&LONG_ANSWERS);
    let _reader = server.send_and_take_nothing();
    server.until(|server| server.metric("swiss_knife_kv_bytes") > 0.0);
    assert!(server.metric("swiss_knife_kv_bytes") < server.metric("swiss_knife_reserved_bytes"));
}

#[test]
fn a_stream_ends_with_the_log_probabilities_of_its_tokens() {
    let server = Server::start(&[]);
    for (path, body) in [
        ("/v1/chat/completions", hello(&json!({"logprobs": true, "top_logprobs": 2}))),
        ("/v1/completions", json!({"prompt": "Hello", "echo": true, "logprobs": 1, "max_tokens": 9, "seed": 7})),
    ] {
        let whole = server.ask("POST", path, "", &body).json();
        let mut streamed = body.clone();
        streamed["stream"] = true.into();
        let chunks = chunks(&server.ask("POST", path, "", &streamed).2);
        let told: Vec<&Value> =
            chunks.iter().map(|chunk| &chunk["choices"][0]["logprobs"]).filter(|log_probs| !log_probs.is_null()).collect();
        assert_eq!(told, [&whole["choices"][0]["logprobs"]], "{path}");
    }
}

#[test]
fn certificates_are_at_the_tolerance_that_is_asked_for() {
    let server = Server::start(&[]);
    let radius = |more: Value| {
        // The default scheme, a tournament, has no certificate.
        let mut steering = json!({"explain": true, "scheme": "softmax-mu"});
        steering.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let reply = server.chat(&hello(&json!({"swiss_knife": steering}))).json();
        let certificate = &reply["choices"][0]["swiss_knife"]["steps"][0]["certificate"];
        (certificate["tolerance"].as_f64().unwrap(), certificate["radius"].as_f64().unwrap())
    };
    let (usual, narrow) = (radius(json!({})), radius(json!({"tolerance": 0.05})));
    assert_eq!((usual.0, narrow.0), (0.1, 0.05));
    // The radius is proportional to 4 T atanh(τ).
    let ratio = 0.1_f64.atanh() / 0.05_f64.atanh();
    assert!((usual.1 / narrow.1 - ratio).abs() < 1e-9, "{usual:?} {narrow:?}");
}

#[test]
fn requests_are_logged_without_what_they_say() {
    for (args, says) in [(&[][..], false), (&["--log-prompts"][..], true)] {
        let server = Server::start(args);
        let reply = server.chat(&hello(&json!({"messages": [{"role": "user", "content": "Something private"}]})));
        let id = reply.1.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap();
        let logged = |part: &str| server.log.lock().unwrap().lines().any(|line| line.contains(id) && line.contains(part));
        server.until(|_| logged("status=200") && logged("outcome=\"complete\""));
        assert!(logged("tokens=40") && logged("seconds="), "{}", server.log.lock().unwrap());
        assert_eq!(logged("Something private"), says);
        assert_eq!(logged(&format!("{:?}", text(&reply))), says, "{}", server.log.lock().unwrap());
    }
}

#[test]
fn a_text_is_scored_under_the_backbone() {
    let server = Server::start(&[]);
    let complete = |body: Value| {
        let reply = server.ask("POST", "/v1/completions", "", &body);
        assert_eq!(reply.0, 200, "{}", reply.2);
        reply.json()
    };
    // A request of lm-evaluation-harness: several prompts as tokens, and one new token.
    let prompts: Vec<Vec<u32>> = ["Hello there", "General"].map(|text| text.bytes().map(u32::from).collect()).to_vec();
    let asked = json!({"prompt": prompts, "echo": true, "logprobs": 1, "max_tokens": 1, "temperature": 0, "seed": 1234});
    let body = complete(asked);
    for (place, prompt) in prompts.iter().enumerate() {
        let choice = &body["choices"][place];
        let log_probs = &choice["logprobs"];
        let lists = ["tokens", "token_logprobs", "top_logprobs", "text_offset"].map(|list| log_probs[list].as_array().unwrap());
        assert!(lists.iter().all(|list| list.len() == prompt.len() + 1), "{choice}");
        assert!(choice["text"].as_str().unwrap().starts_with(["Hello there", "General"][place]), "{choice}");
        assert!(lists[1][0].is_null() && lists[2][0].is_null());
        for (own, top) in lists[1].iter().zip(lists[2]).skip(1) {
            let best = top.as_object().unwrap().values().next().unwrap().as_f64().unwrap();
            assert!(own.as_f64().unwrap() <= best && best <= 0.0, "{choice}");
        }
        // A token has the same log-probability whether a shorter prompt or a longer one holds it.
        let half = &prompt[..prompt.len() - 2];
        let alone = complete(json!({"prompt": half, "echo": true, "logprobs": 0, "max_tokens": 0}));
        let alone = alone["choices"][0]["logprobs"]["token_logprobs"].as_array().unwrap().clone();
        assert_eq!(alone.len(), half.len());
        for (a, b) in alone.iter().zip(lists[1]).skip(1) {
            assert!((a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < ROUNDING, "{a} {b}");
        }
    }
    // The library gives the same scores without HTTP.
    let path = |part: &str| Some(models().join(part).display().to_string());
    let options =
        ModelOptions { backbone: path("backbone"), drafter: path("drafter"), device: DeviceName::Cpu, ..ModelOptions::default() };
    let engine = Models::open(&options, &mut ()).unwrap();
    for (place, prompt) in prompts.iter().enumerate() {
        let scores = Frozen::new(Arc::clone(&engine.backbone)).score(prompt, 1, 0).unwrap();
        let served = body["choices"][place]["logprobs"]["token_logprobs"].as_array().unwrap()[1..].iter();
        for (own, served) in scores.iter().zip(served) {
            assert!((f64::from(own.log_prob) - served.as_f64().unwrap()).abs() < ROUNDING, "{own:?} {served}");
        }
    }
    let chat = server.chat(&hello(&json!({"logprobs": true, "top_logprobs": 2, "max_tokens": 9}))).json();
    let content = chat["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(content.len() as u64, chat["usage"]["completion_tokens"].as_u64().unwrap());
    assert_eq!(content[0]["top_logprobs"].as_array().unwrap().len(), 2);
    let written: Vec<u8> =
        content.iter().flat_map(|token| serde_json::from_value::<Vec<u8>>(token["bytes"].clone()).unwrap()).collect();
    assert_eq!(String::from_utf8_lossy(&written), chat["choices"][0]["message"]["content"].as_str().unwrap());
    // A completion of no tokens without `echo` has nothing to return.
    assert_eq!(server.ask("POST", "/v1/completions", "", &json!({"prompt": "Hi", "max_tokens": 0})).0, 400);
}

#[test]
fn adapters_come_and_go_if_the_operator_allows_it() {
    let refused = Server::start(&[]);
    let load = json!({"name": "more", "adapter": "helpful"});
    assert_eq!(refused.ask("POST", "/swiss-knife/blades", "", &load).0, 403);
    assert_eq!(refused.ask("DELETE", "/swiss-knife/blades/helpful", "", &Value::Null).0, 403);
    let server = Server::start(&["--adapters", models().join("blades").to_str().unwrap()]);
    for adapter in ["../helpful", "/etc", "", ".", "helpful/.."] {
        assert_eq!(server.ask("POST", "/swiss-knife/blades", "", &json!({"name": "x", "adapter": adapter})).0, 400, "{adapter}");
    }
    assert_eq!(server.ask("POST", "/swiss-knife/blades", "", &json!({"name": "x", "adapter": "nowhere"})).0, 404);
    assert_eq!(server.ask("POST", "/swiss-knife/blades", "", &json!({"name": "helpful", "adapter": "helpful"})).0, 400);
    let before = text(&server.chat(&hello(&json!({"swiss_knife": {"weights": {"helpful": 1}}}))));
    let loaded = server.ask("POST", "/swiss-knife/blades", "", &load);
    assert_eq!(loaded.0, 201, "{}", loaded.2);
    let weights = json!({"swiss_knife": {"weights": {"more": 1}}});
    assert_eq!(text(&server.chat(&hello(&weights))), before);
    assert!(server.ask("GET", "/swiss-knife/blades", "", &Value::Null).2.contains("\"more\""));
    assert_eq!(server.ask("DELETE", "/swiss-knife/blades/more", "", &Value::Null).0, 204);
    assert_eq!(server.chat(&hello(&weights)).0, 400);
    assert_eq!(server.ask("DELETE", "/swiss-knife/blades/more", "", &Value::Null).0, 404);
}

#[test]
fn origins_are_let_in_by_name() {
    let asked = "Origin: http://a\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-stainless-os\r\n";
    let preflight = |server: &Server| server.ask("OPTIONS", "/v1/chat/completions", asked, &Value::Null).1;
    let closed = preflight(&Server::start(&[]));
    assert!(!closed.contains("access-control-allow-origin"), "{closed}");
    let open = preflight(&Server::start(&["--origin", "http://a", "--origin", "http://b"]));
    assert!(open.contains("access-control-allow-origin: http://a") && open.contains("x-stainless-os"), "{open}");
    assert!(!preflight(&Server::start(&["--origin", "http://b"])).contains("allow-origin: http://a"));
}

/// The server accepts every field and serves every path of its OpenAPI description.
#[test]
fn the_description_says_what_is_served() {
    let server = Server::start(&[]);
    let description = server.ask("GET", "/openapi.json", "", &Value::Null).json();
    for (path, methods) in description["paths"].as_object().unwrap() {
        for (method, _) in methods.as_object().unwrap().iter().filter(|(method, _)| *method != "parameters") {
            let path = path.replace("{id}", "swiss-knife").replace("{name}", "helpful");
            let status = server.ask(&method.to_uppercase(), &path, "", &Value::Null).0;
            assert_ne!(status, 405, "{method} {path}");
            assert!(status != 404 || path.contains("generations"), "{method} {path}");
        }
    }
    for (schema, path, least) in [
        ("ChatRequest", "/v1/chat/completions", json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4})),
        ("CompletionRequest", "/v1/completions", json!({"prompt": "Hi", "max_tokens": 4})),
    ] {
        let fields = description["components"]["schemas"][schema]["properties"].as_object().unwrap();
        for (field, about) in fields {
            let mut body = least.clone();
            if field == "top_logprobs" {
                body["logprobs"] = true.into();
            }
            let example = about.get("example").or_else(|| least.get(field));
            body[field] = example.unwrap_or_else(|| panic!("{schema}.{field} has no example")).clone();
            let reply = server.ask("POST", path, "", &body);
            assert_eq!(reply.0, 200, "{schema}.{field}: {}", reply.2);
        }
    }
    let steering = description["components"]["schemas"]["Steering"]["properties"].as_object().unwrap();
    for (field, about) in steering {
        // A certificate is sent with an explanation only.
        let reply = server.chat(&hello(&json!({"max_tokens": 4, "swiss_knife": {"explain": true, field: about["example"]}})));
        assert_eq!(reply.0, 200, "swiss_knife.{field}: {}", reply.2);
    }
    let about = server.ask("GET", "/swiss-knife", "", &Value::Null).json();
    assert_eq!(about["blades"].as_array().unwrap().len(), 3, "{about}");
    assert!(about["blades"][0]["weight"].as_f64().unwrap() > 0.3 && about["defaults"]["candidates"].is_number(), "{about}");
}

/// Everything that the page loads comes from the server.
#[test]
fn the_page_loads_nothing_from_elsewhere() {
    let server = Server::start(&[]);
    let page = server.ask("GET", "/", "", &Value::Null);
    assert!(page.1.contains("content-security-policy: default-src 'self'") && page.1.contains("text/html"), "{}", page.1);
    let linked = |text: &str| -> Vec<String> {
        let quoted = text.split(['"', '\'']);
        let named = quoted.filter_map(|part| part.strip_prefix("/playground/").or_else(|| part.strip_prefix("./")));
        named.map(|name| format!("/playground/{name}")).collect()
    };
    let (mut open, mut seen) = (linked(&page.2), BTreeSet::new());
    while let Some(path) = open.pop() {
        if seen.insert(path.clone()) {
            let file = server.ask("GET", &path, "", &Value::Null);
            assert_eq!(file.0, 200, "{path}");
            // Modules import other modules.
            open.extend(linked(&file.2));
        }
    }
    assert!(seen.len() > 10, "{seen:?}");
    assert_eq!(Server::start(&["--no-playground"]).ask("GET", "/", "", &Value::Null).0, 404);
}

#[test]
fn an_answer_ends_with_its_client() {
    // Many candidates, so that an answer takes far longer than it takes to hang up.
    let server = Server::start(&["--span-tokens", "2", "--n", "48", "--concurrent", "4"]);
    for stream in [true, false] {
        let body = hello(&json!({"stream": stream, "max_tokens": 440, "n": 4}));
        let connection = server.send("POST", "/v1/chat/completions", "", &body.to_string());
        let start = Instant::now();
        while server.metric("swiss_knife_answers_under_way") < 1.0 {
            assert!(start.elapsed() < PATIENCE);
        }
        drop(connection);
        while server.metric("swiss_knife_answers_under_way") > 0.0 {
            assert!(start.elapsed() < PATIENCE, "still under way");
        }
    }
    assert!(server.metric("swiss_knife_answers_total{outcome=\"hung_up\"}") >= 2.0);
    assert_eq!(server.metric("swiss_knife_answers_total{outcome=\"complete\"}"), 0.0);
    // None of the eight answers ran to its end.
    assert!(server.metric("swiss_knife_tokens_total") < 8.0 * 440.0, "{}", server.metric("swiss_knife_tokens_total"));
    assert!(!text(&server.chat(&hello(&json!({})))).is_empty());
}

/// Options that allow answers larger than the socket buffers.
const LONG_ANSWERS: [&str; 4] = ["--span-tokens", "4", "--max-candidates", "300"];

#[test]
fn whoever_is_too_slow_is_cut_off() {
    let server = Server::start(&[&LONG_ANSWERS[..], &["--patience", "1"]].concat());
    let start = Instant::now();
    for half in ["", "POST /v1/chat/completions HTTP/1.1\r\nHost: te"] {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(half.as_bytes()).unwrap();
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        assert!(text.is_empty() || text.contains("408"), "{text}");
    }
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.write_all(b"POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\nContent-Length: 100\r\n\r\n{").unwrap();
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    assert!(text.starts_with("HTTP/1.1 408"), "{text}");
    assert!(start.elapsed() > Duration::from_secs(1) && start.elapsed() < PATIENCE);
    // A client that reads nothing is cut off, and its slot becomes free.
    let mut reader = server.send_and_take_nothing();
    server.until(|server| server.metric("swiss_knife_answers_under_way") == 0.0);
    thread::sleep(Duration::from_secs(2));
    let mut rest = Vec::new();
    let _ = reader.read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains("[DONE]"));
}

#[test]
fn nobody_holds_up_the_end_of_the_server() {
    let mut server = Server::start(&[&LONG_ANSWERS[..], &["--patience", "2"]].concat());
    let mut half = TcpStream::connect(&server.address).unwrap();
    half.write_all(b"GET /health HTTP/1.1\r\nHost: te").unwrap();
    let _reader = server.send_and_take_nothing();
    let mut answered = server.send("POST", "/v1/chat/completions", "", &hello(&json!({"max_tokens": 200})).to_string());
    server.until(|server| server.metric("swiss_knife_answers_under_way") > 1.0);
    server.terminate();
    // The server closes connections without a request when SIGTERM arrives, so a reply may be
    // empty.
    server.until(|server| {
        let mut text = String::new();
        let _ = server.send("GET", "/ready", "", "").read_to_string(&mut text);
        text.starts_with("HTTP/1.1 503")
    });
    let refused = server.chat(&hello(&json!({})));
    assert!(refused.0 == 503 && refused.1.contains("retry-after"), "{}", refused.1);
    // An answer that is under way ends as usual.
    let mut text = String::new();
    answered.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("\"finish_reason\":"), "{text}");
    let (status, took) = server.wait();
    assert!(status == Some(0) && took < Duration::from_secs(20), "{status:?} {took:?}");
    // `--drain` limits how long the server waits for answers.
    let mut server = Server::start(&[&LONG_ANSWERS[..], &["--drain", "1"]].concat());
    let _reader = server.send_and_take_nothing();
    server.terminate();
    let (status, took) = server.wait();
    assert!(status == Some(0) && took < Duration::from_secs(20), "{status:?} {took:?}");
}

#[test]
fn requests_have_limits() {
    let server = Server::start(&["--max-body", "600", "--max-header", "700", "--max-depth", "5", "--max-prompt-tokens", "60"]);
    let long = hello(&json!({"user": "x".repeat(600)}));
    assert_eq!(server.chat(&long).json()["error"]["code"], "request_too_large");
    let header = format!("X-Long: {}\r\n", "x".repeat(800));
    assert_eq!(server.ask("GET", "/health", &header, &Value::Null).0, 431);
    let deep = server.chat(&hello(&json!({"metadata": [[[[[1]]]]]})));
    assert!(deep.0 == 400 && deep.2.contains("6 levels deep"), "{}", deep.2);
    let header = "X-Swiss-Knife: [[[[[[1]]]]]]\r\n";
    let deep = server.ask("POST", "/v1/chat/completions", header, &hello(&json!({})));
    assert!(deep.0 == 400 && deep.2.contains("6 levels deep"), "{}", deep.2);
    let prompt = |length: usize| json!({"prompt": "x".repeat(length), "max_tokens": 2});
    let long = server.ask("POST", "/v1/completions", "", &prompt(61));
    assert_eq!((long.0, long.json()["error"]["code"].as_str()), (400, Some("context_length_exceeded")), "{}", long.2);
    assert_eq!(server.ask("POST", "/v1/completions", "", &prompt(60)).0, 200);
}

#[test]
fn comments_keep_a_stream_alive_unless_they_are_switched_off() {
    // A step of two thousand candidates takes a while.
    let body = hello(&json!({"stream": true, "max_tokens": 400, "swiss_knife": {"set": ["proposal.candidates=2000"]}}));
    let has_comment = |every: &str| {
        let server = Server::start(&["--keep-alive", every, "--max-candidates", "2000", "--span-tokens", "400"]);
        let start = Instant::now();
        let mut lines = BufReader::new(server.send("POST", "/v1/chat/completions", "", &body.to_string())).lines();
        let found = lines.by_ref().map_while(Result::ok).take_while(|_| start.elapsed() < Duration::from_secs(4));
        found.into_iter().any(|line| line == ":")
    };
    assert!(has_comment("1"));
    assert!(!has_comment("0"));
}

#[test]
fn a_key_may_be_in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    let path = file.to_str().unwrap().to_owned();
    std::fs::write(&file, "secret\n").unwrap();
    let mut command = program();
    command.env("SWISS_KNIFE_SERVE_KEY", "other").args(["serve", "--port", "0", "--api-key-file", &path]).args(model_args());
    let server = Server::of(&mut command);
    for (key, status) in [("secret", 200), ("other", 401), ("", 401)] {
        let header = format!("Authorization: Bearer {key}\r\n");
        assert_eq!(server.ask("GET", "/v1/models", &header, &Value::Null).0, status, "{key}");
    }
    std::fs::write(&file, " \n").unwrap();
    assert_refused(&run_on_models("serve", &["--api-key-file", &path]), &[&path, "no key"]);
    assert_refused(&run_on_models("serve", &["--api-key-file", "/nowhere/key"]), &["/nowhere/key"]);
}

#[test]
fn many_clients_get_what_each_gets_alone() {
    let server = Server::start(&["--concurrent", "6", "--waiting", "64"]);
    let body = |client: usize| {
        let weights = [json!({"helpful": 1}), json!({"honest": 1, "harmless": 2}), json!({"helpful": 1, "honest": 1})];
        let content = format!("{}Client {client}", "The same beginning. ".repeat(8));
        json!({"messages": [{"role": "user", "content": content}], "seed": client, "max_tokens": 30,
            "swiss_knife": {"weights": weights[client % 3]}})
    };
    let alone: Vec<String> = (0..12).map(|client| text(&server.chat(&body(client)))).collect();
    let beside: Vec<String> = thread::scope(|scope| {
        let (server, body) = (&server, &body);
        let clients: Vec<_> = (0..12).map(|client| scope.spawn(move || text(&server.chat(&body(client))))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert_eq!(beside, alone);
}

#[test]
fn too_many_requests_are_told_to_come_back() {
    let server = Server::start(&["--concurrent", "1", "--waiting", "1", "--span-tokens", "2"]);
    let replies: Vec<Reply> = thread::scope(|scope| {
        let ask = |seed: usize| {
            let server = &server;
            scope.spawn(move || server.chat(&hello(&json!({"max_tokens": 300, "seed": seed}))))
        };
        let clients: Vec<_> = (0..8).map(ask).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let refused: Vec<&Reply> = replies.iter().filter(|reply| reply.0 == 429).collect();
    assert!(!refused.is_empty() && refused.len() < 8, "{} of 8 refused", refused.len());
    assert!(refused[0].1.contains("retry-after: 1") && refused[0].json()["error"]["type"] == "rate_limit_error");
    // A request that can never fit is refused with 400, not with 429.
    let small = Server::start(&["--memory", "0"]);
    assert_eq!(small.chat(&hello(&json!({}))).0, 400);
    // An answer that exceeds the time-out ends with the step it has reached.
    let hasty = Server::start(&["--timeout", "0", "--span-tokens", "4"]).chat(&hello(&json!({}))).json();
    assert_eq!((&hasty["choices"][0]["finish_reason"], &hasty["usage"]["swiss_knife"]["steps"]), (&json!("length"), &json!(1)));
}

/// More answers than are generated at once, each with more spans than the server buffers for a slow
/// reader.
#[test]
fn the_answers_of_a_request_do_not_wait_for_each_other() {
    let server = Server::start(&["--concurrent", "1", "--span-tokens", "2"]);
    let reply = server.chat(&hello(&json!({"n": 3, "max_tokens": 120})));
    assert_eq!((reply.0, reply.json()["choices"].as_array().unwrap().len()), (200, 3), "{}", reply.2);
}

#[test]
fn what_an_answer_may_need_is_counted_without_wrapping() {
    let server = Server::start(&["--max-candidates", "18446744073709551615"]);
    // Multiplied by the bytes of a token, this is a multiple of 2⁶⁴.
    let wide = json!({"swiss_knife": {"set": ["proposal.candidates=144115188075855872"]}, "max_tokens": 128});
    let reply = server.chat(&hello(&wide));
    assert_eq!(reply.0, 400, "{}", reply.2);
    assert!(!text(&server.chat(&hello(&json!({})))).is_empty());
}

#[test]
fn an_address_that_is_taken_is_named() {
    let server = Server::start(&[]);
    let port = server.address.rsplit(':').next().unwrap();
    let output = run_on_models("serve", &["--port", port]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains(&server.address) && error.contains("--port"), "{error}");
    assert_refused(&run_on_models("serve", &["--concurrent", "0"]), &[]);
}
