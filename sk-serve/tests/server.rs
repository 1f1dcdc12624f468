//! A server in this process: before it has models, with a key, with edits of an answer, and when a
//! request panics.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use serde_json::{Value, json};
use sk_models::decoder::Precision;
use sk_models::device::DeviceName;
use sk_models::dialogue::Framing;
use sk_models::engine::AdapterRack;
use sk_models::head::{Head, HeadKind};
use sk_models::local::Models;
use sk_models::text::Tokenizer;
use sk_scheme::{Parameter, SHIPPED, Steering};
use sk_serve::host::Adapter;
use sk_serve::{Access, HeaderValue, Limits, Parts, Server};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// Held by a test while its servers answer, since [`BREAKS`] is for the next answer of any of them.
static ANSWERING: Mutex<()> = Mutex::new(());

/// Makes the next answer panic at its first span.
static BREAKS: AtomicBool = AtomicBool::new(false);

/// The numbers of holds that began and that ended, and the signal that one ended.
static HOLDS: (Mutex<[usize; 2]>, Condvar) = (Mutex::new([0, 0]), Condvar::new());

fn holds() -> MutexGuard<'static, [usize; 2]> {
    HOLDS.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Holds answers after their first step while it lives, so that they are under way whatever the
/// speed of the machine and the size of socket buffers.
struct Hold;

impl Hold {
    fn new() -> Self {
        holds()[0] += 1;
        Self
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        holds()[1] += 1;
        HOLDS.1.notify_all();
    }
}

/// Installs [`Broken`].
static RECORDER: Once = Once::new();

/// A metrics recorder that records nothing. On the thread that generates an answer, it waits while
/// there is a [`Hold`], and panics when [`BREAKS`] is set. That thread takes a while to end, so that
/// a client sees what it still holds.
struct Broken;

impl Recorder for Broken {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        if key.name() == "swiss_knife_answers_under_way" {
            thread::sleep(Duration::from_millis(2));
        }
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        if key.name() == "swiss_knife_first_span_seconds" {
            let holds = holds();
            let [begun, _] = *holds;
            drop(HOLDS.1.wait_while(holds, |[_, ended]| *ended < begun).unwrap_or_else(PoisonError::into_inner));
            assert!(!BREAKS.swap(false, Ordering::Relaxed), "a fault that the test injects");
        }
        Histogram::noop()
    }
}

fn parts() -> Parts {
    steered(Steering::default())
}

/// The names of the adapters.
fn adapters() -> Vec<String> {
    ["helpful", "honest"].map(str::to_owned).to_vec()
}

fn steered(steering: Steering) -> Parts {
    with_heads(Vec::new(), steering)
}

fn with_heads(heads: Vec<(String, Head)>, steering: Steering) -> Parts {
    let folder = tempfile::tempdir().unwrap();
    let shape = folder.path().join("config.json");
    let config = json!({"model_type": "qwen2", "vocab_size": Tokenizer::bytes().vocab_size(), "hidden_size": 16,
        "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true});
    std::fs::write(&shape, config.to_string()).unwrap();
    let device = (DeviceName::Cpu, Precision::F32);
    let (mut models, loaded) = Models::random((&shape, Some(&shape)), device, 1, &[4], adapters(), &mut ()).unwrap();
    models.heads = heads;
    let rack = AdapterRack::default();
    loaded.into_iter().for_each(|(name, adapter)| rack.insert(name, adapter));
    Parts {
        host: models.into(),
        rack: rack.into(),
        adapter_folder: Some(std::env::temp_dir()),
        instructions: Vec::new(),
        seats: Vec::new(),
        steering,
        shipped: false,
        framing: Framing::Hh { stop: true },
        name: "lab/random".to_owned(),
    }
}

/// Starts a server without models. It serves until the runtime is dropped.
fn listening() -> (Arc<Server>, String, Runtime) {
    listening_with(Access::default(), Limits::default())
}

fn listening_with(access: Access, limits: Limits) -> (Arc<Server>, String, Runtime) {
    listening_until(std::future::pending(), access, limits)
}

fn listening_until(
    shutdown: impl Future<Output = ()> + Send + 'static,
    access: Access,
    limits: Limits,
) -> (Arc<Server>, String, Runtime) {
    // Servers keep the recorder that is installed first.
    RECORDER.call_once(|| metrics::set_global_recorder(Broken).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let server = Arc::new(Server::new(access, limits));
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    runtime.spawn(Arc::clone(&server).serve(listener, shutdown));
    (server, url, runtime)
}

fn answering() -> MutexGuard<'static, ()> {
    ANSWERING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a server with models, which has its turn to answer until the second value is dropped.
fn open(limits: Limits) -> (String, (Runtime, MutexGuard<'static, ()>)) {
    let turn = answering();
    let (server, url, runtime) = listening_with(Access::default(), limits);
    server.open(parts(), adapters());
    (url, (runtime, turn))
}

fn agent() -> ureq::Agent {
    // A proxy of the environment cannot reach the servers.
    ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build().into()
}

/// Posts a body to a path.
fn post(url: &str, path: &str, body: &Value) -> ureq::http::Response<ureq::Body> {
    agent().post(format!("{url}{path}")).send(body.to_string().as_str()).unwrap()
}

/// Posts a chat request. Returns the status and the body.
fn ask(url: &str, body: &Value) -> (u16, String) {
    let mut response = post(url, "/v1/chat/completions", body);
    (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
}

/// Begins a stream. Returns the address of the answer, which is held, and the stream, which ends when
/// it is dropped.
fn begin(url: &str, steering: &Value) -> (String, Hold, impl Iterator<Item = String> + use<>) {
    let hold = Hold::new();
    let asked =
        json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 200, "stream": true, "swiss_knife": steering});
    let mut response = post(url, "/v1/chat/completions", &asked);
    assert_eq!(response.status().as_u16(), 200, "{}", response.body_mut().read_to_string().unwrap());
    let mut lines = BufReader::new(response.into_body().into_reader()).lines().map_while(Result::ok);
    let first = lines.find_map(|line| line.strip_prefix("data: ").map(str::to_owned)).unwrap();
    let chunk: Value = serde_json::from_str(&first).unwrap();
    (format!("{url}/swiss-knife/generations/{}", chunk["id"].as_str().unwrap()), hold, lines)
}

/// Edits an answer. Returns the status and the body.
fn edit(path: &str, edit: &Value) -> (u16, Value) {
    let mut reply = agent().patch(path).send(edit.to_string().as_str()).unwrap();
    (reply.status().as_u16(), serde_json::from_str(&reply.body_mut().read_to_string().unwrap()).unwrap())
}

#[test]
fn requests_are_told_to_come_back_until_there_are_models() {
    let _answering = answering();
    let (server, url, _runtime) = listening();
    let get = |path: &str| agent().get(format!("{url}{path}")).call().unwrap();
    assert_eq!(get("/health").status(), 200);
    for path in ["/ready", "/v1/models", "/"] {
        let response = get(path);
        assert_eq!((response.status().as_u16(), response.headers()["retry-after"].as_bytes()), (503, &b"1"[..]), "{path}");
    }
    let asked = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4});
    let (status, body) = ask(&url, &asked);
    assert!(status == 503 && body.contains("server_error"), "{body}");
    let options = |path: &str| agent().options(format!("{url}{path}")).call().unwrap().status();
    assert_eq!([options("/health"), options("/ready")], [200, 503]);
    server.open(parts(), adapters());
    assert_eq!(get("/ready").status(), 200);
    assert_eq!([options("/health"), options("/ready"), options("/v1/models")], [200, 200, 405]);
    assert_eq!(ask(&url, &asked).0, 200);
}

#[test]
fn a_key_and_a_model_are_read_as_clients_send_them() {
    let access = Access { key: Some("secret".to_owned()), origins: vec![HeaderValue::from_static("*")], playground: false };
    let (server, url, _runtime) = listening_with(access, Limits::default());
    server.open(parts(), adapters());
    let get = |path: &str, key: &str| {
        agent().get(format!("{url}{path}")).header("authorization", key).header("origin", "http://a").call().unwrap()
    };
    for key in ["Bearer secret", "bearer secret"] {
        let models = get("/v1/models", key);
        assert_eq!(models.status(), 200, "{key}");
        assert_eq!(models.headers()["access-control-expose-headers"].as_bytes(), b"x-request-id,retry-after");
    }
    for key in ["Bearer other", "Bearer  secret", "secret", "Basic secret", "Bearer"] {
        assert_eq!(get("/v1/models", key).status(), 401, "{key}");
    }
    for path in ["/v1/models/lab/random", "/v1/models/lab%2Frandom", "/v1/models/lab/random:best-of-n"] {
        assert_eq!(get(path, "Bearer secret").status(), 200, "{path}");
    }
    assert_eq!(get("/v1/models/lab", "Bearer secret").status(), 404);
}

#[test]
fn a_client_that_still_sends_its_body_gets_the_error() {
    let access = Access { key: Some("secret".to_owned()), ..Access::default() };
    let (server, url, _runtime) = listening_with(access, Limits::default());
    server.open(parts(), adapters());
    let length = 900_000;
    for (path, status) in [("/v1/chat/completions", 401), ("/v1/responses", 404)] {
        let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
        write!(stream, "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n").unwrap();
        for _ in 0..length / 1000 {
            stream.write_all(&[b'a'; 1000]).unwrap();
            thread::sleep(Duration::from_micros(100));
        }
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        assert!(line.starts_with(&format!("HTTP/1.1 {status} ")), "{line}");
    }
}

#[test]
fn a_compressed_body_is_refused_by_name() {
    let (server, url, _runtime) = listening();
    server.open(parts(), adapters());
    for (encoding, is_named) in [("gzip", true), ("Identity", false)] {
        let post = agent().post(format!("{url}/v1/chat/completions")).header("content-encoding", encoding);
        let mut response = post.send(&[0x1f, 0x8b, 8, 0][..]).unwrap();
        let body = response.body_mut().read_to_string().unwrap();
        assert_eq!((response.status().as_u16(), body.contains("Content-Encoding")), (400, is_named), "{body}");
    }
}

#[test]
fn pages_of_other_origins_are_refused_also_where_a_browser_does_not_ask_first() {
    let _answering = answering();
    let origins = vec![HeaderValue::from_static("http://a")];
    let (server, url, _runtime) = listening_with(Access { origins, ..Access::default() }, Limits::default());
    server.open(parts(), adapters());
    let asked = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}).to_string();
    for (site, origin, status) in [
        ("cross-site", "http://a", 200),
        ("cross-site", "http://b", 403),
        ("same-site", "http://127.0.0.1:3000", 403),
        ("same-origin", "http://127.0.0.1:8000", 200),
        ("none", "", 200),
        // A browser says no more than the origin to an address without TLS that is not its own
        // machine's.
        ("", "http://a", 200),
        ("", "http://b", 403),
        ("", "null", 403),
        ("", url.as_str(), 200),
        ("", "", 200),
    ] {
        let mut post = agent().post(format!("{url}/v1/chat/completions")).header("content-type", "text/plain");
        for (name, value) in [("sec-fetch-site", site), ("origin", origin)] {
            post = if value.is_empty() { post } else { post.header(name, value) };
        }
        let reply = post.send(asked.as_str()).unwrap();
        assert_eq!(reply.status().as_u16(), status, "{site} {origin}");
    }
    let link = agent().get(format!("{url}/health")).header("sec-fetch-site", "cross-site").call().unwrap();
    assert_eq!(link.status(), 200);
}

#[test]
fn a_server_of_its_own_machine_answers_to_no_other_name() {
    let ask =
        |url: &str, host: &str| agent().get(format!("{url}/swiss-knife")).header("host", host).call().unwrap().status().as_u16();
    let (server, url, _runtime) = listening();
    server.open(parts(), adapters());
    for (host, status) in [
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("localhost:8000", 200),
        ("LOCALHOST", 200),
        ("evil.example", 403),
        ("evil.example:8000", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
    ] {
        assert_eq!(ask(&url, host), status, "{host}");
    }
    // The operator may give it a name, or a key.
    let origins = vec![HeaderValue::from_static("https://own.example")];
    for access in [Access { origins, ..Access::default() }, Access { key: Some("secret".to_owned()), ..Access::default() }] {
        let (server, url, _runtime) = listening_with(access, Limits::default());
        server.open(parts(), adapters());
        assert_eq!(ask(&url, "own.example:8000"), 200);
    }
}

#[test]
fn a_path_that_is_not_utf8_is_refused_in_openais_shape() {
    let (url, _up) = open(Limits::default());
    let agent = agent();
    let model = agent.get(format!("{url}/v1/models/%ff")).call();
    let generation = agent.get(format!("{url}/swiss-knife/generations/%ff")).call();
    let edit = agent.patch(format!("{url}/swiss-knife/generations/%ff")).send("{}");
    let unload = agent.delete(format!("{url}/swiss-knife/blades/%ff")).call();
    for reply in [model, generation, edit, unload] {
        let mut reply = reply.unwrap();
        let body: Value = serde_json::from_str(&reply.body_mut().read_to_string().unwrap()).unwrap();
        assert_eq!((reply.status().as_u16(), body["error"]["param"].as_str()), (400, Some("path")), "{body}");
    }
}

#[test]
fn a_scheme_with_fixed_blades_takes_no_others() {
    let (url, _up) = open(Limits::default());
    let asked = |blades: Value| {
        json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4,
            "swiss_knife": {"scheme": "greedy", "blades": blades}})
    };
    assert_eq!(ask(&url, &asked(json!({}))).0, 200);
    let (status, body) = ask(&url, &asked(json!({"calm": "instruction:Be calm."})));
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, body["error"]["param"].as_str()), (400, Some("swiss_knife.blades")), "{body}");
    let mut weighted = asked(json!({"calm": "instruction:Be calm."}));
    weighted["swiss_knife"]["weights"] = json!({"helpful": 1, "calm": 1});
    let (status, body) = ask(&url, &weighted);
    assert!(status == 400 && body.contains("swiss_knife.blades"), "{body}");
    let (path, _hold, _lines) = begin(&url, &json!({"scheme": "greedy", "explain": true}));
    for source in ["instruction:Be calm.", "adapter"] {
        let (status, body) = edit(&path, &json!({"blades": {"helpful": source}, "weights": {"helpful": 1}}));
        assert_eq!((status, body["error"]["param"].as_str()), (400, Some("blades")), "{body}");
        assert!(body["error"]["message"].as_str().unwrap().contains("fixed"), "{body}");
    }
}

#[test]
fn a_request_overrides_the_options_of_the_server() {
    let _answering = answering();
    let (server, url, _runtime) = listening();
    let numbers = [("candidates", 2.0), ("span_tokens", 4.0), ("top_p", 0.5)];
    let numbers = numbers.map(|(name, value)| (Parameter::named(name).unwrap(), value)).to_vec();
    server.open(steered(Steering { numbers, ..Steering::default() }), adapters());
    let longest = |set: Value| {
        let asked = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "seed": 1,
            "swiss_knife": {"explain": true, "set": set}});
        let body: Value = serde_json::from_str(&ask(&url, &asked).1).unwrap();
        let candidates = body["choices"][0]["swiss_knife"]["steps"][0]["candidates"].as_array().unwrap().clone();
        (candidates.len(), candidates.iter().map(|one| one["tokens"].as_array().unwrap().len()).max().unwrap())
    };
    assert_eq!(longest(json!([])), (2, 4));
    assert_eq!(longest(json!(["proposal.candidates=5", "granularity.span_tokens=2"])), (5, 2));
    // What a scheme of the request does not have is left out.
    let asked = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "model": "lab/random:greedy"});
    assert_eq!(ask(&url, &asked).0, 200);
    // So is what changes nothing.
    let asked = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "model": "lab/random:greedy",
        "temperature": 1, "top_p": 1});
    assert_eq!(ask(&url, &asked).0, 200);
    // A field that does not apply is named as the client wrote it.
    for (scheme, fields, param, told) in [
        ("greedy", json!({"temperature": 0.5}), "temperature", "`temperature` does not apply"),
        ("greedy", json!({"top_p": 0.5}), "top_p", "`top_p` does not apply"),
        ("swiss-knife", json!({"swiss_knife": {"set": ["selector.heat=1"]}}), "swiss_knife.set", "selector.heat=1"),
    ] {
        let (server, url, _runtime) = listening();
        server.open(parts(), adapters());
        let mut asked = fields;
        asked["messages"] = json!([{"role": "user", "content": "Hi"}]);
        asked["model"] = format!("lab/random:{scheme}").into();
        let (status, body) = ask(&url, &asked);
        let error = &serde_json::from_str::<Value>(&body).unwrap()["error"];
        assert_eq!((status, error["param"].as_str()), (400, Some(param)), "{body}");
        assert!(error["message"].as_str().unwrap().contains(told), "{body}");
    }
}

#[test]
fn options_of_the_server_that_a_scheme_does_not_have_are_left_out() {
    let _answering = answering();
    let (server, url, _runtime) = listening();
    let set = ["selector.temperature=0.5", "selector.kind=softmax", "proposal.candidates=2", "granularity.span_tokens=3"];
    let set = set.map(|field| field.parse().unwrap()).to_vec();
    let weights = vec!["helpful=1".parse().unwrap()];
    server.open(steered(Steering { set, weights, ..Steering::default() }), adapters());
    let asked = |scheme: &str, steering: Value| {
        json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "seed": 1, "model": format!("lab/random{scheme}"),
            "swiss_knife": steering})
    };
    let mut models = agent().get(format!("{url}/v1/models")).call().unwrap();
    let models: Value = serde_json::from_str(&models.body_mut().read_to_string().unwrap()).unwrap();
    // The gate of `satisficing` needs a blade called harmless.
    for scheme in SHIPPED.iter().map(|scheme| scheme.name).filter(|name| *name != "satisficing") {
        let model = format!("lab/random:{scheme}");
        let is_listed = models["data"].as_array().unwrap().iter().any(|listed| listed["id"] == model.as_str());
        let (status, body) = ask(&url, &asked(&format!(":{scheme}"), json!({})));
        // The server has no heads.
        if ["fudge", "args-reward-head"].contains(&scheme) {
            assert!(status == 400 && body.contains("needs a head") && !is_listed, "{scheme}: {body}");
        } else {
            assert!(status == 200 && is_listed, "{scheme}: {body}");
        }
    }
    // What it has is set.
    let (_, body) = ask(&url, &asked(":best-of-n", json!({"explain": true})));
    let step = &serde_json::from_str::<Value>(&body).unwrap()["choices"][0]["swiss_knife"]["steps"][0];
    assert_eq!(step["candidates"].as_array().unwrap().len(), 2, "{body}");
    // The default scheme does not lose the weights of the server silently.
    let (server, url, _runtime) = listening();
    server.open(steered(Steering { weights: vec!["kind=1".parse().unwrap()], ..Steering::default() }), adapters());
    let (status, body) = ask(&url, &asked("", json!({})));
    let error = &serde_json::from_str::<Value>(&body).unwrap()["error"];
    assert_eq!((status, error["param"].as_str()), (400, Some("swiss_knife.weights")), "{body}");
    assert_eq!(ask(&url, &asked("", json!({"weights": {"honest": 1}}))).0, 200);
    assert_eq!(ask(&url, &asked(":best-of-n", json!({}))).0, 200);
}

#[test]
fn the_scheme_of_a_request_is_one_that_ships() {
    let (url, _up) = open(Limits::default());
    for (model, scheme, told) in [
        ("lab/random", "best-of", "did you mean \\\"best-of-n\\\"?"),
        ("lab/random:args", "mod", "`scheme` is \\\"mod\\\" and `model` names \\\"args\\\""),
    ] {
        let asked = json!({"messages": [{"role": "user", "content": "Hi"}], "model": model, "swiss_knife": {"scheme": scheme}});
        let (status, body) = ask(&url, &asked);
        assert!(status == 400 && body.contains("swiss_knife.scheme") && body.contains(told), "{body}");
    }
}

#[test]
fn a_step_over_a_vocabulary_tells_its_most_likely_candidates() {
    let (url, _up) = open(Limits { candidates: 12, ..Limits::default() });
    let asked = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "seed": 1,
        "swiss_knife": {"scheme": "base", "explain": true}});
    let (status, body) = ask(&url, &asked);
    assert_eq!(status, 200, "{body}");
    let choice = &serde_json::from_str::<Value>(&body).unwrap()["choices"][0];
    let steps = choice["swiss_knife"]["steps"].as_array().unwrap();
    for step in steps {
        assert_eq!((step["candidates"].as_array().unwrap().len(), step["n"].as_u64()), (12, Some(256)), "{step}");
        assert!(step["chosen"].as_u64().unwrap() < 12, "{step}");
    }
}

#[test]
fn over_a_vocabulary_every_lane_reads_a_token_a_step() {
    let _answering = answering();
    let (server, url, _runtime) = listening_with(Access::default(), Limits { candidates: 300, ..Limits::default() });
    let head = Head { kind: HeadKind::Discriminator, attribute: "calm".to_owned(), weight: vec![0.5; 16], bias: 0.0 };
    server.open(with_heads(vec![("calm".to_owned(), head)], Steering::default()), adapters());
    // `mod` reads two adapters. `fudge` reads the backbone, and each candidate for the head.
    for (scheme, set, read) in [("mod", json!([]), 2), ("fudge", json!(["proposal.head_k=50"]), 1 + 50)] {
        let asked = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "seed": 1,
            "swiss_knife": {"scheme": scheme, "set": set}});
        let (status, body) = ask(&url, &asked);
        assert_eq!(status, 200, "{body}");
        let cost = &serde_json::from_str::<Value>(&body).unwrap()["usage"]["swiss_knife"];
        let steps = cost["steps"].as_u64().unwrap();
        assert_eq!(cost["scored_tokens"].as_u64().unwrap(), read * steps, "{scheme}: {cost}");
    }
}

#[test]
fn an_instruction_that_leaves_no_room_is_refused_before_a_stream_begins() {
    let (url, _up) = open(Limits::default());
    let long = format!("instruction:{}", "Be calm. ".repeat(100));
    let asked = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "stream": true,
        "swiss_knife": {"blades": {"calm": long}, "weights": {"calm": 1}}});
    let (status, body) = ask(&url, &asked);
    let error = &serde_json::from_str::<Value>(&body).unwrap()["error"];
    assert_eq!((status, error["code"].as_str()), (400, Some("context_length_exceeded")), "{body}");
    assert_eq!(error["param"], "swiss_knife.blades");
}

#[test]
fn a_blade_that_leaves_its_seat_frees_its_memory() {
    let (url, _up) = open(Limits { memory: 24 << 20, ..Limits::default() });
    let (path, _hold, _lines) = begin(&url, &json!({"set": ["proposal.candidates=64"], "explain": true}));
    for turn in 0..40 {
        for source in [Value::Null, "adapter".into()] {
            let (status, body) = edit(&path, &json!({"blades": {"helpful": source}}));
            assert_eq!(status, 200, "turn {turn}: {body}");
        }
    }
}

#[test]
fn a_name_of_an_answer_keeps_its_meaning() {
    let (url, _up) = open(Limits::default());
    let start = json!({"blades": {"calm": "instruction:Be calm."}, "set": ["proposal.candidates=64"], "explain": true});
    let (path, _hold, _lines) = begin(&url, &start);
    for (source, expected) in [("Be rude.", 400), ("Be calm.", 200)] {
        let (status, body) = edit(&path, &json!({"blades": {"calm": null}, "weights": {"helpful": 1}}));
        assert!(status == 200 || expected == 200, "{body}");
        let (status, body) = edit(&path, &json!({"blades": {"calm": format!("instruction:{source}")}}));
        assert_eq!(status, expected, "{body}");
        assert!(status == 200 || body["error"]["message"].as_str().unwrap().contains("another name"), "{body}");
    }
}

#[test]
fn an_edit_may_exchange_the_blades_of_a_full_answer() {
    let (url, _up) = open(Limits { blades: 2, ..Limits::default() });
    let (path, _hold, _lines) = begin(&url, &json!({"set": ["proposal.candidates=64"], "explain": true}));
    let asked = json!({"blades": {"helpful": null, "calm": "instruction:Be calm."}, "weights": {"calm": 1}});
    let (status, body) = edit(&path, &asked);
    assert_eq!(status, 200, "{body}");
}

#[test]
fn a_blade_that_a_gate_is_on_keeps_its_seat() {
    let (url, _up) = open(Limits::default());
    let gate = "selector.gates={helpful={threshold=-9}}";
    let (path, hold, lines) = begin(&url, &json!({"set": [gate], "explain": true}));
    for asked in [
        json!({"blades": {"helpful": null}}),
        json!({"blades": {"helpful": null, "calm": "instruction:Be calm."}, "weights": {"calm": 1}}),
    ] {
        let (status, body) = edit(&path, &asked);
        assert_eq!((status, body["error"]["param"].as_str()), (400, Some("blades")), "{body}");
        assert!(body["error"]["message"].as_str().unwrap().contains("a gate is on blade \"helpful\""), "{body}");
    }
    assert_eq!(edit(&path, &json!({"blades": {"honest": null}, "weights": {"helpful": 1}})).0, 200);
    drop(hold);
    let ended = lines.filter(|line| line.starts_with("data: ")).last().unwrap();
    assert_eq!(ended, "data: [DONE]");
}

#[test]
fn correlations_may_name_a_blade_that_has_left_its_seat() {
    let (url, _up) = open(Limits::default());
    let correlated = "normalizer.correlations=[[\"helpful\", \"honest\", -0.4]]";
    let (path, _hold, _lines) = begin(&url, &json!({"set": [correlated], "explain": true}));
    for asked in [
        json!({"blades": {"honest": null}}),
        json!({"weights": {"helpful": 1}}),
        json!({"blades": {"calm": "instruction:Be calm."}, "weights": {"calm": 1}}),
        json!({"blades": {"honest": "adapter"}}),
    ] {
        let (status, body) = edit(&path, &asked);
        assert_eq!(status, 200, "{asked}: {body}");
    }
}

#[test]
fn an_answer_goes_on_without_the_head_that_it_began_with() {
    let _answering = answering();
    let (server, url, _runtime) = listening_with(Access::default(), Limits { candidates: 200, ..Limits::default() });
    let head = Head { kind: HeadKind::Discriminator, attribute: "calm".to_owned(), weight: vec![0.5; 16], bias: 0.0 };
    server.open(with_heads(vec![("calm".to_owned(), head)], Steering::default()), adapters());
    let (path, hold, lines) = begin(&url, &json!({"scheme": "fudge", "explain": true}));
    let exchange = json!({"blades": {"calm": null, "helpful": "adapter"}, "weights": {"helpful": 1}});
    for asked in [exchange, json!({"weights": {"helpful": 1}})] {
        let (status, body) = edit(&path, &asked);
        assert_eq!((status, &body["weights"]), (200, &json!({"helpful": 1.0})), "{body}");
    }
    drop(hold);
    let chunks: Vec<String> = lines.filter(|line| line.starts_with("data: ")).collect();
    let [.., last, done] = &chunks[..] else { panic!("{chunks:?}") };
    assert!(last.contains("\"finish_reason\":\"") && done == "data: [DONE]", "{last} {done}");
}

#[test]
fn a_batch_is_answered_on_as_many_threads_as_memory_allows() {
    let (url, _up) = open(Limits { memory: 1 << 20, concurrent: 64, ..Limits::default() });
    let asked = json!({"prompt": vec!["Hi"; 16], "max_tokens": 32});
    let mut response = post(&url, "/v1/completions", &asked);
    let body = response.body_mut().read_to_string().unwrap();
    assert_eq!(response.status().as_u16(), 200, "{body}");
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["choices"].as_array().unwrap().len(), 16);
}

#[test]
fn a_client_that_has_its_whole_answer_may_ask_again() {
    let limits = Limits { concurrent: 1, waiting: 0, ..Limits::default() };
    let (url, _up) = open(limits);
    let agent = agent();
    for turn in 0..40 {
        let asked = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "n": 1 + turn % 3,
            "stream": turn % 2 == 0});
        let mut response = agent.post(format!("{url}/v1/chat/completions")).send(asked.to_string().as_str()).unwrap();
        let body = response.body_mut().read_to_string().unwrap();
        assert_eq!(response.status().as_u16(), 200, "turn {turn}: {body}");
    }
}

#[test]
fn a_request_that_outlasts_the_drain_ends_with_an_error() {
    let _answering = answering();
    let (shut_down, shutdown) = tokio::sync::oneshot::channel::<()>();
    let limits = Limits { concurrent: 1, drain: Duration::ZERO, ..Limits::default() };
    let shutdown = async move { shutdown.await.unwrap_or_default() };
    let (server, url, _runtime) = listening_until(shutdown, Access::default(), limits);
    server.open(parts(), adapters());
    let batch = |stream: bool| {
        json!({"prompt": vec!["Hi"; 128], "max_tokens": 200, "stream": stream,
            "swiss_knife": {"set": ["proposal.keep_end_of_text=false"]}})
        .to_string()
    };
    let mut whole = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    let body = batch(false);
    let head = format!("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
    whole.write_all((head + &body).as_bytes()).unwrap();
    let response = agent().post(format!("{url}/v1/completions")).send(batch(true).as_str()).unwrap();
    let mut lines = BufReader::new(response.into_body().into_reader()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("data: ")), "the stream has not begun");
    shut_down.send(()).unwrap();
    let data: Vec<String> = lines.filter(|line| line.starts_with("data: ")).collect();
    let [.., error, done] = &data[..] else { panic!("{data:?}") };
    assert!(error.contains("shutting down") && done == "data: [DONE]", "{error} {done}");
    let mut status = String::new();
    BufReader::new(whole).read_line(&mut status).unwrap();
    assert!(status.starts_with("HTTP/1.1 503"), "{status}");
}

#[test]
fn answers_may_take_any_time() {
    let (url, _up) = open(Limits { time: Duration::MAX, ..Limits::default() });
    let (status, body) = ask(&url, &json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}));
    assert_eq!(status, 200, "{body}");
}

#[test]
fn a_request_for_which_there_is_no_memory_waits_only_where_requests_may() {
    let (url, _up) = open(Limits { memory: 24 << 20, concurrent: 64, waiting: 0, ..Limits::default() });
    let steering = json!({"set": ["proposal.candidates=64"], "explain": true});
    let _hold = Hold::new();
    let mut streams = Vec::new();
    let refused = (0..20).any(|_| {
        let asked = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 200, "stream": true,
            "swiss_knife": steering});
        let response = post(&url, "/v1/chat/completions", &asked);
        let status = response.status().as_u16();
        streams.push(response);
        status == 429
    });
    assert!(refused, "{} answers run at once", streams.len());
}

#[test]
fn an_adapter_that_was_just_unloaded_is_named() {
    let (server, url, _runtime) = listening();
    // As between the removal of an adapter and that of its name.
    server.open(parts(), vec!["gone".to_owned()]);
    let asked = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4});
    let (status, body) = ask(&url, &asked);
    assert!(status == 400 && body.contains("gone"), "{status} {body}");
}

#[test]
fn the_error_of_an_edit_names_the_field_at_fault() {
    let (url, _up) = open(Limits { blades: 3, ..Limits::default() });
    let (path, _hold, _lines) = begin(&url, &json!({"set": ["proposal.candidates=64"], "explain": true}));
    assert_eq!(edit(&path, &json!({"blades": {"calm": "instruction:Be calm."}})).0, 200);
    for (asked, param) in [
        (json!([{"calm": 1}]), "body"),
        (json!({"weights": {"calm": "1"}}), "weights"),
        (json!({"weights": {"kind": 1}}), "weights"),
        (json!({"weights": {"calm": -1}}), "weights"),
        (json!({"blades": {"honest": null}, "weights": {"kind": 1}}), "weights"),
        (json!({"blades": {"kind": null}}), "blades"),
        (json!({"blades": {" ": "instruction:Be kind."}}), "blades"),
        (json!({"blades": {"calm": "instruction:Be rude."}}), "blades"),
        (json!({"blades": {"calm": "adapter"}}), "blades"),
        (json!({"blades": {"kind": "/etc"}}), "blades"),
        (json!({"blades": {"brief": "instruction:Be brief."}}), "blades"),
    ] {
        let (status, body) = edit(&path, &asked);
        assert_eq!((status, body["error"]["param"].as_str()), (400, Some(param)), "{asked}: {body}");
    }
}

#[test]
fn an_edit_that_seats_may_be_sent_again() {
    let (url, _up) = open(Limits { blades: 3, ..Limits::default() });
    let (path, _hold, _lines) = begin(&url, &json!({"set": ["proposal.candidates=64"], "explain": true}));
    let asked = json!({"blades": {"calm": "instruction:Be calm.", "helpful": "adapter"}, "weights": {"calm": 1, "helpful": 3}});
    for _ in 0..2 {
        let (status, body) = edit(&path, &asked);
        assert_eq!(status, 200, "{body}");
        assert_eq!(body["weights"], json!({"calm": 0.25, "helpful": 0.75, "honest": 0.0}));
    }
    // A name with another source is not taken again.
    for (name, source) in [("calm", "instruction:Be rude."), ("calm", "adapter"), ("helpful", "instruction:Be kind.")] {
        let (status, body) = edit(&path, &json!({"blades": {name: source}}));
        assert!(status == 400 && body["error"]["message"].as_str().unwrap().contains("use another name"), "{name}: {body}");
    }
}

#[test]
fn a_blade_does_not_take_the_lane_of_another() {
    let (url, _up) = open(Limits::default());
    let (path, _hold, _lines) = begin(&url, &json!({"scheme": "prompt-contrast", "explain": true}));
    let (status, body) = edit(&path, &json!({"blades": {"calm/against": "instruction:Be kind."}}));
    assert_eq!((status, body["error"]["param"].as_str()), (400, Some("blades")), "{body}");
    assert!(body["error"]["message"].as_str().unwrap().contains("\"calm/against\""), "{body}");
}

#[test]
fn a_panic_of_one_request_harms_no_other() {
    let (url, _up) = open(Limits::default());
    let hi = json!([{"role": "user", "content": "Hi"}]);
    let asked = |seed: usize, stream: bool| json!({"messages": hi, "max_tokens": 24, "seed": seed, "stream": stream, "n": 2});
    let text = |body: &str| serde_json::from_str::<Value>(body).unwrap()["choices"].clone();
    let alone: Vec<Value> = (0..4).map(|seed| text(&ask(&url, &asked(seed, false)).1)).collect();
    for _ in 0..3 {
        BREAKS.store(true, Ordering::Relaxed);
        let replies: Vec<(u16, String)> = thread::scope(|scope| {
            let (url, asked) = (&url, &asked);
            let clients: Vec<_> = (0..4).map(|seed| scope.spawn(move || ask(url, &asked(seed, false)))).collect();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        let failed: Vec<&(u16, String)> = replies.iter().filter(|(status, _)| *status != 200).collect();
        let [(500, body)] = failed[..] else { panic!("{replies:?}") };
        assert!(body.contains("server_error") && body.contains("report"), "{body}");
        for ((_, body), alone) in replies.iter().zip(&alone).filter(|((status, _), _)| *status == 200) {
            assert_eq!(text(body), *alone);
        }
    }
    // A stream that has begun ends with an error event.
    BREAKS.store(true, Ordering::Relaxed);
    let (status, body) = ask(&url, &asked(0, true));
    assert!(status == 200 && body.contains("\"error\"") && body.trim_end().ends_with("data: [DONE]"), "{body}");
    let again: Vec<Value> = (0..4).map(|seed| text(&ask(&url, &asked(seed, false)).1)).collect();
    assert_eq!(again, alone);
}

#[test]
fn a_prompt_of_a_batch_is_limited_by_its_own_length() {
    let (url, _up) = open(Limits::default());
    // The context has 256 tokens, of which the longer prompt leaves six.
    let answers = |prompts: &[Vec<u32>]| {
        let asked = json!({"prompt": prompts, "max_tokens": 40, "seed": 1,
            "swiss_knife": {"set": ["proposal.keep_end_of_text=false"]}});
        let mut response = post(&url, "/v1/completions", &asked);
        let body: Value = serde_json::from_str(&response.body_mut().read_to_string().unwrap()).unwrap();
        body["choices"].as_array().unwrap().iter().map(|choice| choice["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (short, long) = (vec![70; 8], vec![71; 250]);
    let alone = [answers(std::slice::from_ref(&short)), answers(std::slice::from_ref(&long))].concat();
    assert_eq!(answers(&[short, long]), alone);
}

#[test]
fn a_batch_shares_its_slots_with_other_requests() {
    let (url, _up) = open(Limits { concurrent: 2, ..Limits::default() });
    let (begun, has_begun) = std::sync::mpsc::channel();
    let batch = thread::spawn({
        let url = url.clone();
        move || {
            let asked = json!({"prompt": vec!["Hi"; 128], "max_tokens": 200, "stream": true,
                "swiss_knife": {"set": ["proposal.keep_end_of_text=false"]}});
            let response = post(&url, "/v1/completions", &asked);
            let lines = BufReader::new(response.into_body().into_reader()).lines().map_while(Result::ok);
            let ends = lines.inspect(|_| begun.send(()).unwrap()).filter(|line| line.contains("\"finish_reason\":\""));
            ends.count()
        }
    });
    has_begun.recv().unwrap();
    let (status, body) = ask(&url, &json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}));
    assert_eq!(status, 200, "{body}");
    assert!(!batch.is_finished(), "the batch ended first");
    assert_eq!(batch.join().unwrap(), 128);
}

#[test]
fn fields_of_other_servers_may_have_their_idle_values() {
    let (url, _up) = open(Limits::default());
    let mut asked = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2});
    let idle = [
        ("repetition_penalty", json!(1.0), json!(1.1)),
        ("top_k", json!(-1), json!(40)),
        ("min_p", json!(0), json!(0.1)),
        ("tool_choice", json!("none"), json!("required")),
        ("modalities", json!(["text"]), json!(["audio"])),
    ];
    for (field, idle, active) in idle {
        let mut other = asked.clone();
        other[field] = active;
        let (status, body) = ask(&url, &other);
        assert!(status == 400 && body.contains(field), "{field}: {status} {body}");
        asked[field] = idle;
    }
    let (status, body) = ask(&url, &asked);
    assert_eq!(status, 200, "{body}");
}

#[test]
fn too_much_is_refused_before_any_work_and_not_repeated() {
    let (url, _up) = open(Limits { body: 4 << 20, ..Limits::default() });
    let names = || (0..50_000).map(|k| format!("b{k}"));
    let blades: serde_json::Map<String, Value> = names().map(|name| (name, json!("instruction:Be calm."))).collect();
    let weights: serde_json::Map<String, Value> = names().map(|name| (name, json!(1))).collect();
    let long = "q".repeat(1 << 20);
    for (steering, param) in [
        (json!({"blades": blades}), "swiss_knife.blades"),
        (json!({"weights": weights}), "swiss_knife.weights"),
        (json!({"scheme": long}), "swiss_knife.scheme"),
    ] {
        let asked = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "swiss_knife": steering});
        let (status, text) = ask(&url, &asked);
        let body: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((status, body["error"]["param"].as_str()), (400, Some(param)), "{}", text.get(..300).unwrap_or(&text));
        assert!(text.len() < 5000, "{}", text.len());
    }
    let (status, text) = ask(&url, &json!({long: 1, "messages": [{"role": "user", "content": "Hi"}]}));
    assert!(status == 400 && text.len() < 10_000, "{status} {}", text.len());
}

#[test]
fn a_client_that_asks_before_it_sends_too_much_is_refused() {
    let (url, _up) = open(Limits { body: 1000, ..Limits::default() });
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    let head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 413"), "{line}");
}

#[test]
fn a_body_that_ends_early_has_the_status_of_a_disconnect() {
    let (url, _up) = open(Limits::default());
    for (length, body, status) in [
        ("Content-Length: 100", "{\"prompt\"", 499),
        ("Transfer-Encoding: chunked", "8\r\n{\"p", 499),
        ("Transfer-Encoding: chunked", "XX\r\n{\"prompt\"", 400),
    ] {
        let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
        let request = format!("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).unwrap();
        // The client goes on reading, and so sees the status that is counted.
        stream.shutdown(Shutdown::Write).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        assert!(line.starts_with(&format!("HTTP/1.1 {status}")), "{body}: {line}");
    }
}

#[test]
fn a_response_that_is_not_streamed_has_a_limited_number_of_log_probabilities() {
    let (url, _up) = open(Limits::default());
    // The answers have 16 × 8 × 200 = 25,600 tokens, and 21 log-probabilities for each are more than
    // 2¹⁹.
    let ask = |likely: usize, stream: bool| {
        let asked = json!({"prompt": vec![vec![70; 200]; 16], "n": 8, "max_tokens": 0, "echo": true, "logprobs": likely,
            "stream": stream});
        post(&url, "/v1/completions", &asked)
    };
    let mut refused = ask(20, false);
    let body: Value = serde_json::from_str(&refused.body_mut().read_to_string().unwrap()).unwrap();
    assert_eq!((refused.status().as_u16(), body["error"]["param"].as_str()), (400, Some("logprobs")), "{body}");
    assert!(body["error"]["message"].as_str().unwrap().contains("set `stream`"), "{body}");
    assert_eq!(ask(20, true).status(), 200);
    assert_eq!(ask(1, false).status(), 200);
}

#[test]
fn a_character_that_the_prompt_begins_belongs_to_the_answer() {
    let (url, _up) = open(Limits::default());
    // The tokens are bytes; the last two begin a character of three.
    let ask = |prompt: &[u8], max_tokens: usize, echo: bool| {
        let asked = json!({"prompt": prompt, "max_tokens": max_tokens, "echo": echo, "seed": 5});
        let mut response = post(&url, "/v1/completions", &asked);
        let body: Value = serde_json::from_str(&response.body_mut().read_to_string().unwrap()).unwrap();
        body["choices"][0]["text"].as_str().unwrap().to_owned()
    };
    assert_eq!(ask(&"A☃".as_bytes()[..3], 0, true), "A\u{fffd}");
    for length in 1..=4 {
        let prompt = &"A☃".as_bytes()[..length];
        let begun = if length < 4 { "A" } else { "A☃" };
        let answer = ask(prompt, 8, false);
        assert_eq!(ask(prompt, 8, true), format!("{begun}{answer}"), "{length}");
        // The bytes that are drawn do not complete the character.
        assert!(answer.starts_with('\u{fffd}') || !(2..4).contains(&length), "{length}: {answer}");
    }
}

#[test]
fn a_soup_needs_memory_for_its_merged_adapter() {
    let _answering = answering();
    for (memory, status) in [(4 << 20, 400), (16 << 20, 200)] {
        let (server, url, _runtime) = listening_with(Access::default(), Limits { memory, ..Limits::default() });
        let parts = parts();
        // Each has 2 × 256 × 1024 numbers, and 2 × (128 + 7 × 32) × 1024 in its packed copy. Together
        // they take 9.5 MiB.
        let adapter = Arc::new(parts.host.local().unwrap().random_adapter(0, 1, &[1024]));
        adapters().iter().for_each(|name| parts.rack.insert(name, Adapter::Local(Arc::clone(&adapter))));
        server.open(parts, adapters());
        let asked = |model: &str| json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "model": model});
        let (found, body) = ask(&url, &asked("lab/random:rewarded-soups"));
        assert!(found == status && (found == 200 || body.contains("MiB")), "{memory}: {found} {body}");
        assert_eq!(ask(&url, &asked("lab/random")).0, 200);
    }
}

#[test]
fn a_request_whose_time_is_over_takes_no_step() {
    let (url, _up) = open(Limits { time: Duration::ZERO, ..Limits::default() });
    // The first span of an answer would be a fault.
    BREAKS.store(true, Ordering::Relaxed);
    let messages = json!([{"role": "user", "content": "Hi"}]);
    for asked in [json!({"messages": messages}), json!({"messages": messages, "n": 2, "logprobs": true})] {
        let (status, body) = ask(&url, &asked);
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, body["error"]["code"].as_str()), (504, Some("timeout")), "{body}");
    }
    // The response to a text that was not scored would lack its log-probabilities.
    for tokens in [0, 1] {
        let late = |stream: bool| {
            let scored =
                json!({"prompt": ["Hello", "there"], "max_tokens": tokens, "echo": true, "logprobs": 1, "stream": stream});
            let mut response = post(&url, "/v1/completions", &scored);
            (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
        };
        let (status, body) = late(false);
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, body["error"]["code"].as_str()), (504, Some("timeout")), "{body}");
        let (_, stream) = late(true);
        let data = stream.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
        let chunks: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
        assert_eq!(chunks[chunks.len() - 1]["error"]["code"], "timeout", "{chunks:?}");
        assert!(chunks.iter().all(|chunk| chunk["choices"][0]["finish_reason"].is_null()), "{chunks:?}");
    }
    assert!(BREAKS.swap(false, Ordering::Relaxed), "an answer took a step");
}

#[test]
fn an_answer_that_begins_with_its_prompt_can_be_edited_from_its_first_chunk() {
    let (url, _up) = open(Limits::default());
    for _ in 0..20 {
        let _hold = Hold::new();
        let asked = json!({"prompt": "Hi", "max_tokens": 200, "stream": true, "echo": true});
        let response = post(&url, "/v1/completions", &asked);
        let mut lines = BufReader::new(response.into_body().into_reader()).lines().map_while(Result::ok);
        let first = lines.find_map(|line| line.strip_prefix("data: ").map(str::to_owned)).unwrap();
        let chunk: Value = serde_json::from_str(&first).unwrap();
        assert_eq!(chunk["choices"][0]["text"], "Hi");
        let path = format!("{url}/swiss-knife/generations/{}", chunk["id"].as_str().unwrap());
        assert_eq!(edit(&path, &json!({"weights": {"helpful": 1}})).0, 200);
    }
}
