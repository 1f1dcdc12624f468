//! A server that answers like vLLM or SGLang, and misbehaves on request.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use sk_core::TokenId;
use sk_remote::Kind;

use crate::VOCABULARY;
use crate::model::{State, top, uniform};

/// The most tokens of a context and its continuation.
pub(crate) const MODEL_LENGTH: usize = 4096;

/// A request that the server received.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
    pub(crate) body: Value,
}

impl Seen {
    /// Whether the request reads spans, as opposed to drafting or reading ahead.
    pub(crate) fn reads(&self) -> bool {
        self.body.get("prompt_logprobs").is_some() || self.body["logprob_start_len"].is_array()
    }

    /// Whether the request drafts spans.
    pub(crate) fn drafts(&self) -> bool {
        self.path != "/tokenize" && !self.reads() && self.body.pointer("/stop_token_ids").is_some()
            || self.body.pointer("/sampling_params/0").is_some()
    }

    /// The names of the adapters of its rows.
    pub(crate) fn adapters(&self) -> Vec<String> {
        let name = |value: &Value| value.as_str().unwrap_or("").to_owned();
        match &self.body["lora_path"] {
            Value::Array(rows) => rows.iter().map(name).collect(),
            _ => vec![name(&self.body["model"])],
        }
    }
}

/// A fault in the numbers of a row.
#[derive(Debug, Clone)]
pub(crate) enum Mistake {
    /// The numbers of another adapter.
    Adapter(Option<&'static str>),
    /// The numbers of one position earlier.
    Stale,
}

type Alteration = Arc<dyn Fn(&mut Value) + Send + Sync>;
type Mistaken = Arc<dyn Fn(usize, Option<&str>) -> Option<Mistake> + Send + Sync>;

/// How the server handles a request.
#[derive(Clone)]
pub(crate) enum Act {
    /// Answer.
    Serve,
    /// Wait, then answer.
    Slow(Duration),
    /// Wait until this many requests are under way at the same time, then answer.
    Meet(usize),
    /// Answer with a status, a `Retry-After` if given, and a body.
    Status(u16, Option<&'static str>, &'static str),
    /// Redirect to an address.
    Redirect(String),
    /// Answer with a status and a body that the test supplies.
    Say(u16, String),
    /// Send nothing for a while, then close.
    Hang(Duration),
    /// Close at once.
    Close,
    /// Announce the whole body, send half of it, and close.
    Cut,
    /// Answer with the first text replaced by the second.
    Replace(&'static str, &'static str),
    /// Answer with a changed body.
    Alter(Alteration),
    /// Answer with faults in rows that are selected by index and adapter.
    Mistake(Mistaken),
    /// Close, and answer nothing until revived.
    Die,
}

type Behaviour = Box<dyn FnMut(&Seen, usize) -> Act + Send>;

/// The configuration of a server.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) kind: Kind,
    /// Adapters by name. The value names the adapter whose numbers are used.
    pub(crate) adapters: BTreeMap<String, Option<String>>,
    /// Whether the log-probabilities of drafted tokens include temperature and masks.
    pub(crate) tempered: bool,
    /// Whether `/tokenize` exists.
    pub(crate) tokenizes: bool,
    /// Whether answers are stored, and sent again for an identical request without parsing it.
    pub(crate) remembers: bool,
}

impl Setup {
    /// A server with these adapters; each has numbers of its own.
    pub(crate) fn new(kind: Kind, adapters: &[&str]) -> Self {
        let adapters = adapters.iter().map(|name| ((*name).to_owned(), Some((*name).to_owned()))).collect();
        Self { kind, adapters, tempered: false, tokenizes: true, remembers: false }
    }
}

struct Inner {
    setup: Mutex<Setup>,
    behaviour: Mutex<Behaviour>,
    seen: Mutex<Vec<Seen>>,
    answers: Mutex<HashMap<Vec<u8>, (u16, String)>>,
    connections: AtomicUsize,
    now: AtomicUsize,
    most: AtomicUsize,
    dead: AtomicBool,
}

/// A running server. Its threads run until the test process ends.
pub(crate) struct Fake {
    pub(crate) url: String,
    inner: Arc<Inner>,
}

impl Fake {
    /// Starts a server that behaves, on a free port.
    pub(crate) fn start(setup: Setup) -> Self {
        Self::start_on(TcpListener::bind("127.0.0.1:0").unwrap(), setup)
    }

    /// Starts a server that behaves.
    pub(crate) fn start_on(listener: TcpListener, setup: Setup) -> Self {
        let url = format!("http://{}", listener.local_addr().unwrap());
        let inner = Arc::new(Inner {
            setup: Mutex::new(setup),
            behaviour: Mutex::new(Box::new(|_, _| Act::Serve)),
            seen: Mutex::default(),
            answers: Mutex::default(),
            connections: AtomicUsize::new(0),
            now: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            dead: AtomicBool::new(false),
        });
        let shared = Arc::clone(&inner);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (inner, stream) = (Arc::clone(&shared), stream.unwrap());
                if inner.dead.load(Ordering::SeqCst) {
                    continue;
                }
                inner.connections.fetch_add(1, Ordering::SeqCst);
                stream.set_nodelay(true).unwrap();
                thread::spawn(move || serve(&inner, &stream));
            }
        });
        Self { url, inner }
    }

    /// Sets how the server handles each request, given the request and its number, from 0.
    pub(crate) fn behave(&self, behaviour: impl FnMut(&Seen, usize) -> Act + Send + 'static) {
        *self.inner.behaviour.lock().unwrap() = Box::new(behaviour);
        self.inner.seen.lock().unwrap().clear();
    }

    /// Changes the setup.
    pub(crate) fn set_up(&self, change: impl FnOnce(&mut Setup)) {
        change(&mut self.inner.setup.lock().unwrap());
    }

    /// The requests since the behaviour was set.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.inner.seen.lock().unwrap().clone()
    }

    /// The number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.inner.connections.load(Ordering::SeqCst)
    }

    /// The most requests under way at the same time.
    pub(crate) fn most_at_once(&self) -> usize {
        self.inner.most.load(Ordering::SeqCst)
    }

    /// Makes a dead server answer again.
    pub(crate) fn revive(&self) {
        self.inner.dead.store(false, Ordering::SeqCst);
    }
}

/// Serves a connection until either side closes it.
fn serve(inner: &Inner, stream: &TcpStream) {
    let mut reader = BufReader::new(stream);
    while let Some((path, authorization, bytes)) = read(&mut reader) {
        if let Some((status, text)) = inner.answers.lock().unwrap().get(&bytes).cloned() {
            if !send(stream, status, None, &text, text.len()) {
                return;
            }
            continue;
        }
        let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() };
        let seen = Seen { path, authorization, body };
        let number = {
            let mut all = inner.seen.lock().unwrap();
            all.push(seen.clone());
            all.len() - 1
        };
        inner.most.fetch_max(inner.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let act = (inner.behaviour.lock().unwrap())(&seen, number);
        let goes_on = !inner.dead.load(Ordering::SeqCst) && perform(inner, stream, &seen, bytes, act);
        if !goes_on {
            return;
        }
    }
}

/// Handles a request; returns whether the connection stays open. The request stops counting before
/// its answer is sent, because the client may send the next one at once.
fn perform(inner: &Inner, stream: &TcpStream, seen: &Seen, bytes: Vec<u8>, act: Act) -> bool {
    let done = || inner.now.fetch_sub(1, Ordering::SeqCst);
    let setup = inner.setup.lock().unwrap().clone();
    let whole = |change: &dyn Fn(&mut Value), mistaken: &Mistaken| {
        let (status, mut value) = answer(inner, &setup, seen, mistaken);
        change(&mut value);
        (status, value.to_string())
    };
    let (none, unaltered): (Mistaken, fn(&mut Value)) = (Arc::new(|_, _| None), |_| ());
    let (status, text) = match act {
        Act::Serve if setup.remembers => {
            let answer = whole(&unaltered, &none);
            inner.answers.lock().unwrap().insert(bytes, answer.clone());
            answer
        }
        Act::Serve => whole(&unaltered, &none),
        Act::Slow(pause) => {
            thread::sleep(pause);
            whole(&unaltered, &none)
        }
        Act::Meet(count) => {
            while inner.most.load(Ordering::SeqCst) < count {
                thread::sleep(Duration::from_millis(1));
            }
            whole(&unaltered, &none)
        }
        Act::Status(status, retry_after, body) => {
            done();
            return send(stream, status, retry_after, body, body.len());
        }
        Act::Redirect(target) => {
            done();
            let head = format!("HTTP/1.1 307 Whatever\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n");
            let mut stream = stream;
            return stream.write_all(head.as_bytes()).is_ok();
        }
        Act::Say(status, text) => (status, text),
        Act::Hang(pause) => {
            thread::sleep(pause);
            done();
            return false;
        }
        Act::Close => {
            done();
            return false;
        }
        Act::Cut => {
            let (status, text) = whole(&unaltered, &none);
            done();
            send(stream, status, None, &text[..text.len() / 2], text.len());
            return false;
        }
        Act::Replace(from, to) => {
            let (status, text) = whole(&unaltered, &none);
            assert!(text.contains(from), "{text}");
            (status, text.replacen(from, to, 1))
        }
        Act::Alter(change) => whole(&*change, &none),
        Act::Mistake(mistaken) => whole(&unaltered, &mistaken),
        Act::Die => {
            inner.dead.store(true, Ordering::SeqCst);
            done();
            return false;
        }
    };
    done();
    send(stream, status, None, &text, text.len())
}

/// Sends a head that announces `length` bytes, and `body`.
fn send(mut stream: &TcpStream, status: u16, retry_after: Option<&str>, body: &str, length: usize) -> bool {
    let retry_after = retry_after.map(|value| format!("retry-after: {value}\r\n")).unwrap_or_default();
    let head =
        format!("HTTP/1.1 {status} Whatever\r\ncontent-type: application/json\r\n{retry_after}content-length: {length}\r\n\r\n");
    // Some tests make the client close the connection first.
    stream.write_all((head + body).as_bytes()).is_ok()
}

/// Path, authorization and body of the next request; `None` if the connection is closed.
fn read(reader: &mut BufReader<&TcpStream>) -> Option<(String, Option<String>, Vec<u8>)> {
    let mut first = String::new();
    reader.read_line(&mut first).ok().filter(|&length| length > 0)?;
    let (mut length, mut authorization) = (0, None);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap(),
            "authorization" => authorization = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((first.split(' ').nth(1)?.to_owned(), authorization, body))
}

fn answer(inner: &Inner, setup: &Setup, seen: &Seen, mistaken: &Mistaken) -> (u16, Value) {
    let error = |status, message: &str| (status, json!({"error": {"message": message, "code": status}}));
    match (seen.path.as_str(), setup.kind) {
        ("/v1/models", Kind::Vllm) => (200, json!({"data": [{"id": "base", "max_model_len": MODEL_LENGTH}]})),
        ("/server_info", Kind::Sglang) => (200, json!({"max_req_input_len": MODEL_LENGTH, "context_length": null})),
        ("/tokenize", _) if setup.tokenizes => {
            let text = seen.body["prompt"].as_str().unwrap();
            (200, json!({"tokens": tokenize(text), "count": text.len()}))
        }
        ("/v1/load_lora_adapter", Kind::Vllm) | ("/load_lora_adapter", Kind::Sglang) => {
            let name = seen.body["lora_name"].as_str().unwrap().to_owned();
            let directory = seen.body["lora_path"].as_str().unwrap();
            let refused = directory.contains("missing");
            if setup.adapters.contains_key(&name) {
                let message = format!("The lora adapter '{name}' has already been loaded.");
                return match setup.kind {
                    Kind::Vllm => error(400, &message),
                    Kind::Sglang => (400, json!({"success": false, "error_message": message})),
                };
            }
            if !refused {
                inner.setup.lock().unwrap().adapters.insert(name.clone(), Some(name.clone()));
            }
            match (setup.kind, refused) {
                (Kind::Vllm, true) => error(404, &format!("No adapter found for {directory}")),
                (Kind::Vllm, false) => (200, json!(format!("Success: LoRA adapter '{name}' added successfully."))),
                (Kind::Sglang, true) => (400, json!({"success": false, "error_message": format!("{directory} does not exist")})),
                (Kind::Sglang, false) => (200, json!({"success": true, "loaded_adapters": {name: directory}})),
            }
        }
        ("/v1/completions", Kind::Vllm) => {
            let name = seen.body["model"].as_str().unwrap_or("base");
            if name != "base" && !setup.adapters.contains_key(name) {
                return error(404, &format!("The model `{name}` does not exist."));
            }
            let adapter = (name != "base").then_some(name);
            if seen.reads() {
                (200, vllm_read(setup, &seen.body, adapter, mistaken))
            } else {
                (200, vllm_draft(setup, &seen.body))
            }
        }
        ("/generate", Kind::Sglang) => {
            match seen.adapters().iter().find(|name| !name.is_empty() && !setup.adapters.contains_key(*name)) {
                Some(name) => error(400, &format!("Got LoRA adapter that has never been loaded: {name}")),
                None => (200, sglang(setup, seen, mistaken)),
            }
        }
        _ => error(404, "Not Found"),
    }
}

/// Each byte is a token.
pub(crate) fn tokenize(text: &str) -> Vec<TokenId> {
    text.bytes().map(|byte| TokenId::from(byte) % VOCABULARY).collect()
}

fn ids(value: &Value) -> Vec<TokenId> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as TokenId).collect()
}

/// The next-token log-probabilities after `from` tokens, after one more, and so on, with the row's
/// fault if it has one.
fn distributions(
    setup: &Setup,
    mistake: Option<&Mistake>,
    adapter: Option<&str>,
    tokens: &[TokenId],
    from: usize,
) -> Vec<Vec<f32>> {
    let own = adapter.and_then(|name| setup.adapters[name].as_deref());
    let weights = if let Some(Mistake::Adapter(other)) = mistake { *other } else { own };
    let late = usize::from(matches!(mistake, Some(Mistake::Stale)));
    let mut state = State::new(weights).after(&tokens[..from - late]);
    let mut all = Vec::with_capacity(tokens.len() - from);
    for next in &tokens[from - late..tokens.len() - late] {
        all.push(state.log_probs(1.0));
        state = state.after(&[*next]);
    }
    all
}

fn vllm_read(setup: &Setup, body: &Value, adapter: Option<&str>, mistaken: &Mistaken) -> Value {
    let row = |(index, prompt): (usize, &Value)| {
        let tokens = ids(prompt);
        let mistake = mistaken(index, adapter);
        let mut entries = vec![Value::Null];
        for (&target, log_probs) in tokens[1..].iter().zip(distributions(setup, mistake.as_ref(), adapter, &tokens, 1)) {
            let (token, most) = top(&log_probs);
            let own = log_probs[target as usize];
            let rank = 1 + log_probs.iter().filter(|&&other| other > own).count();
            let mut entry = json!({target.to_string(): {"logprob": own, "rank": rank, "decoded_token": "x"}});
            if target != token {
                entry[token.to_string()] = json!({"logprob": most, "rank": 1, "decoded_token": "y"});
            }
            entries.push(entry);
        }
        json!({
            "index": index, "text": "z", "logprobs": null, "finish_reason": "length", "stop_reason": null,
            "token_ids": [0], "prompt_logprobs": entries, "prompt_token_ids": tokens,
        })
    };
    let prompts = body["prompt"].as_array().unwrap();
    json!({"id": "cmpl-1", "object": "text_completion", "choices": prompts.iter().enumerate().map(row).collect::<Vec<_>>()})
}

/// Draws a row. Returns its tokens, their log-probabilities, and whether it was stopped.
///
/// If SGLang is told to ignore the model's own stop tokens, it ignores all of them. Its
/// log-probability of a token is computed after masking the tokens that may not come first, as that
/// of a tempered server is.
fn draw(setup: &Setup, prompt: &[TokenId], params: &Value, least: &str, most: &str, seed: u64) -> (Vec<TokenId>, Vec<f32>, bool) {
    let temperature = params["temperature"].as_f64().unwrap();
    let (most, least) = (params[most].as_u64().unwrap() as usize, params[least].as_u64().unwrap() as usize);
    let is_sglang = setup.kind == Kind::Sglang;
    let stop = if is_sglang && params["ignore_eos"] == true { Vec::new() } else { ids(&params["stop_token_ids"]) };
    let mut state = State::new(None).after(prompt);
    let (mut tokens, mut values): (Vec<TokenId>, Vec<f32>) = (Vec::new(), Vec::new());
    while tokens.len() < most {
        let altered = if temperature > 0.0 { temperature } else { 1.0 };
        let weights = state.log_probs(altered);
        let allowed = |token: TokenId| tokens.len() >= least || !stop.contains(&token);
        let masked = |token: TokenId| if allowed(token) { f64::from(weights[token as usize]).exp() } else { 0.0 };
        let token = if temperature > 0.0 {
            let mut left = uniform(seed, tokens.len()) * (0..VOCABULARY).map(masked).sum::<f64>();
            let found = (0..VOCABULARY).find(|&token| {
                left -= masked(token);
                left < 0.0
            });
            found.unwrap_or(VOCABULARY - 1)
        } else {
            top(&weights).0
        };
        let is_masked = (is_sglang || setup.tempered) && tokens.len() < least;
        let left = if is_masked { (0..VOCABULARY).map(masked).sum::<f64>().ln() as f32 } else { 0.0 };
        let seen = if setup.tempered { weights } else { state.log_probs(1.0) };
        values.push(seen[token as usize] - left);
        tokens.push(token);
        state = state.after(&[token]);
        if stop.contains(&token) {
            return (tokens, values, true);
        }
    }
    (tokens, values, false)
}

/// The `count` most probable next tokens. Servers do not sort them, so these are in reverse order.
fn most_probable(prompt: &[TokenId], count: u64) -> Vec<(TokenId, f32)> {
    let log_probs = State::new(None).after(prompt).log_probs(1.0);
    let mut all: Vec<(TokenId, f32)> = (0..).zip(log_probs).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all.truncate(count as usize);
    all.reverse();
    all
}

fn vllm_draft(setup: &Setup, body: &Value) -> Value {
    let (prompt, rows) = (ids(&body["prompt"]), body["n"].as_u64().unwrap());
    let row = |index: u64| {
        let seed = body["seed"].as_u64().unwrap() + index;
        let (tokens, values, stopped) = draw(setup, &prompt, body, "min_tokens", "max_tokens", seed);
        let named = |(token, value)| (format!("token_id:{token}"), json!(value));
        let tops: serde_json::Map<String, Value> =
            most_probable(&prompt, body["logprobs"].as_u64().unwrap()).into_iter().map(named).collect();
        let tops = if tops.is_empty() { json!([]) } else { json!([tops]) };
        json!({
            "index": index, "text": "z", "finish_reason": if stopped { "stop" } else { "length" },
            "logprobs": {"token_logprobs": values, "tokens": [], "top_logprobs": tops}, "token_ids": tokens, "prompt_logprobs": null,
        })
    };
    json!({"id": "cmpl-1", "object": "text_completion", "choices": (0..rows).map(row).collect::<Vec<_>>()})
}

fn sglang(setup: &Setup, seen: &Seen, mistaken: &Mistaken) -> Value {
    let body = &seen.body;
    let rows = body["input_ids"].as_array().unwrap();
    let row = |(index, input): (usize, &Value)| {
        let tokens = ids(input);
        let adapter = body["lora_path"][index].as_str();
        let mut meta = json!({"id": "a", "finish_reason": {"type": "length", "length": 0}, "prompt_tokens": tokens.len()});
        if seen.reads() {
            let start = body["logprob_start_len"][index].as_u64().unwrap() as usize;
            let mistake = mistaken(index, adapter);
            // SGLang echoes the last token of the vocabulary as token 0.
            let echo = |token: TokenId| if token < VOCABULARY - 1 { token } else { 0 };
            let mut own = vec![json!([null, echo(tokens[start]), null])];
            let mut tops = vec![Value::Null];
            let read = &tokens[start + 1..];
            for (&target, log_probs) in read.iter().zip(distributions(setup, mistake.as_ref(), adapter, &tokens, start + 1)) {
                let (token, most) = top(&log_probs);
                own.push(json!([log_probs[target as usize], echo(target), null]));
                tops.push(json!([[most, token, null]]));
            }
            meta["input_token_logprobs"] = Value::Array(own);
            meta["input_top_logprobs"] = Value::Array(tops);
        } else if seen.drafts() {
            let params = &body["sampling_params"][index];
            let seed = params["sampling_seed"].as_u64().unwrap();
            let (tokens, values, stopped) = draw(setup, &tokens, params, "min_new_tokens", "max_new_tokens", seed);
            meta["finish_reason"]["type"] = json!(if stopped { "stop" } else { "length" });
            let drawn: Vec<Value> = tokens.iter().zip(values).map(|(token, value)| json!([value, token, null])).collect();
            meta["output_token_logprobs"] = Value::Array(drawn);
            let tops = most_probable(&ids(input), body["top_logprobs_num"].as_u64().unwrap());
            let tops: Vec<Value> = tops.into_iter().map(|(token, value)| json!([value, token, null])).collect();
            meta["output_top_logprobs"] = json!([tops]);
        }
        json!({"text": "", "meta_info": meta})
    };
    Value::Array(rows.iter().enumerate().map(row).collect())
}

impl Fake {
    /// The kind of server that it imitates.
    pub(crate) fn kind(&self) -> Kind {
        self.inner.setup.lock().unwrap().kind
    }
}
