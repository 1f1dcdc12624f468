//! Measures a server under load beside its own engine.
//!
//! ```sh
//! cargo run --release -p sk-serve --example load -- f32            # the model that ships
//! cargo run --release -p sk-serve --example load -- f32 BACKBONE/config.json DRAFTER/config.json
//! ```
//!
//! For 1, 4, 16 and 64 clients, it takes turns between the engine (a thread per client that steers, without HTTP) and the server
//! (streams over loopback), with the same requests, and prints tokens per second of each, how long the first span and every other
//! span take, and how much memory the process holds. In the last turn every fifth client hangs up after its first chunk.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sk_models::assets;
use sk_models::decoder::Stop;
use sk_models::device::DeviceName;
use sk_models::dialogue::{Framing, Session, SessionError, tokens_of};
use sk_models::engine::AdapterRack;
use sk_models::local::{ModelOptions, Models};
use sk_models::text::{Message, Role};
use sk_scheme::{NamedWeights, SchemeSpec, Steering};
use sk_serve::{Access, Limits, Parts, Service};

/// Clients at a time.
const CLIENTS: [usize; 4] = [1, 4, 16, 64];

/// How often each side has its turn; odd, for a median.
const TURNS: usize = 3;

/// How long a turn takes requests.
const TURN: Duration = Duration::from_secs(12);

/// Tokens of an answer.
const TOKENS: usize = 48;

const BLADES: [&str; 3] = ["helpful", "honest", "harmless"];

const QUESTIONS: [&str; 6] = [
    "How do I clean my bicycle?",
    "What is a good breakfast?",
    "Why do leaves fall in autumn?",
    "How can I apologise to a friend?",
    "What should I take along on a hike?",
    "How do I learn to swim?",
];

type Failure = Box<dyn Error + Send + Sync>;

/// A request: its question and seed.
#[derive(Clone, Copy)]
struct Asked(usize);

impl Asked {
    fn question(self) -> &'static str {
        QUESTIONS[self.0 % QUESTIONS.len()]
    }

    fn weights(self) -> [(&'static str, f64); 3] {
        std::array::from_fn(|k| (BLADES[k], if self.0 % 4 == 3 || self.0 % 3 == k { 1.0 } else { 0.25 }))
    }
}

/// What a client saw.
#[derive(Default)]
struct Seen {
    tokens: usize,
    /// Seconds to the first span of each request.
    first: Vec<f64>,
    /// Seconds between spans.
    between: Vec<f64>,
}

impl Seen {
    fn span(&mut self, since: &mut Instant, is_first: bool) {
        let list = if is_first { &mut self.first } else { &mut self.between };
        list.push(since.elapsed().as_secs_f64());
        *since = Instant::now();
    }

    fn add(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.first.extend(other.first);
        self.between.extend(other.between);
    }
}

/// Models, and the adapters of the blades.
struct Loaded {
    models: Models,
    rack: AdapterRack,
    shipped: bool,
}

impl Loaded {
    fn open(precision: &str, shapes: &[String]) -> Result<Self, Failure> {
        let precision = precision.parse()?;
        let rack = AdapterRack::default();
        if let [backbone, drafter] = shapes {
            let shapes = (Path::new(backbone), Some(Path::new(drafter)));
            let names = BLADES.map(str::to_owned);
            let (models, adapters) = Models::random(shapes, (DeviceName::Cpu, precision), 1, &[8], names, &mut ())?;
            adapters.into_iter().for_each(|(name, adapter)| rack.insert(name, adapter));
            return Ok(Self { models, rack, shipped: false });
        }
        let shipped = assets::embedded().ok_or("this build holds no model")?;
        let models = Models::open(&ModelOptions { precision, ..ModelOptions::default() }, &mut ())?;
        for name in BLADES {
            rack.insert(name, models.adapter(name, &shipped.blade(name).display().to_string(), &mut ())?);
        }
        Ok(Self { models, rack, shipped: true })
    }

    fn scheme(&self, asked: Asked) -> Result<SchemeSpec, Failure> {
        let mut spec = Steering::default().spec(self.shipped)?;
        BLADES.iter().for_each(|name| spec.seat(name));
        let weights: NamedWeights = asked.weights().into_iter().map(|(name, weight)| (name.to_owned(), weight)).collect();
        spec.weights = Some(weights);
        Ok(spec)
    }

    /// Answers without HTTP.
    fn answer(&self, asked: Asked) -> Result<Seen, Failure> {
        let models = &self.models;
        let mut since = Instant::now();
        let mut seen = Seen::default();
        let prompt = tokens_of(&framing(), &models.tokenizer, &[Message::new(Role::User, asked.question())], None)?;
        let engine = models.engine(&self.rack, &[]);
        let mut session = Session::new(engine.footing(), self.scheme(asked)?.build(&engine)?, [], asked.0 as u64)?;
        let _request = models.scheduler.enter(&Stop::new());
        let reply = session.reply(&prompt, framing().stops(), TOKENS, |step, _| -> Result<_, SessionError> {
            if let Some(step) = step {
                seen.span(&mut since, step.step == 0);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        seen.tokens = reply.tokens.len();
        Ok(seen)
    }
}

fn framing() -> Framing {
    Framing::Hh { stop: true }
}

/// Asks the server; without `patience`, hangs up after the first chunk.
fn ask(agent: &ureq::Agent, url: &str, asked: Asked, patience: bool) -> Result<Seen, Failure> {
    let weights: Value = asked.weights().into_iter().collect();
    let body = json!({"messages": [{"role": "user", "content": asked.question()}], "seed": asked.0, "max_tokens": TOKENS,
        "stream": true, "stream_options": {"include_usage": true}, "swiss_knife": {"weights": weights}});
    let mut seen = Seen::default();
    let mut since = Instant::now();
    let mut response = agent.post(url).send(body.to_string().as_str())?;
    for line in BufReader::new(response.body_mut().as_reader()).lines() {
        let line = line?;
        let Some(data) = line.strip_prefix("data: ").filter(|data| *data != "[DONE]") else { continue };
        let chunk: Value = serde_json::from_str(data)?;
        if let Some(error) = chunk.get("error") {
            return Err(error.to_string().into());
        }
        if chunk["choices"][0]["delta"]["content"].as_str().is_some_and(|text| !text.is_empty()) {
            let is_first = seen.first.is_empty();
            seen.span(&mut since, is_first);
        }
        if !patience {
            return Ok(seen);
        }
        seen.tokens += chunk["usage"]["completion_tokens"].as_u64().unwrap_or(0) as usize;
    }
    Ok(seen)
}

/// One turn of one side: clients ask until time is up. Returns what they saw and tokens per second.
fn turn(clients: usize, ask: impl Fn(Asked) -> Result<Seen, Failure> + Sync) -> Result<(Seen, f64), Failure> {
    let start = Instant::now();
    let client = |client: usize| -> Result<Seen, Failure> {
        let mut seen = Seen::default();
        let mut asked = client;
        while start.elapsed() < TURN {
            seen.add(ask(Asked(asked))?);
            asked += clients;
        }
        Ok(seen)
    };
    let all = thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|number| scope.spawn(move || client(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a client panicked".into()))).collect::<Vec<_>>()
    });
    let mut seen = Seen::default();
    for one in all {
        seen.add(one?);
    }
    let rate = seen.tokens as f64 / start.elapsed().as_secs_f64();
    Ok((seen, rate))
}

/// The value that a share of a list does not exceed, in milliseconds.
fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(((values.len() as f64 * share) as usize).min(values.len().saturating_sub(1))).map_or(f64::NAN, |value| value * 1e3)
}

fn latencies(mut seen: Seen) -> String {
    let both = |values: &mut Vec<f64>| format!("{:6.0} {:6.0}", quantile(values, 0.5), quantile(values, 0.95));
    format!("{} {}", both(&mut seen.first), both(&mut seen.between))
}

/// Megabytes that the process holds (Linux).
fn resident() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split(' ').nth(1)?.parse::<f64>().ok());
    pages.map_or(f64::NAN, |pages| pages * 4096.0 / 1e6)
}

/// Starts a server in this process.
fn serve(loaded: Loaded) -> Result<SocketAddr, Failure> {
    let most = CLIENTS[CLIENTS.len() - 1];
    let limits = Limits { concurrent: most, waiting: 2 * most, ..Limits::default() };
    let Loaded { models, rack, shipped } = loaded;
    let service = Service::new(Parts {
        host: models.into(),
        rack,
        adapters: BLADES.map(str::to_owned).to_vec(),
        adapter_folder: None,
        instructions: Vec::new(),
        steering: Steering::default(),
        shipped,
        framing: framing(),
        name: "load".to_owned(),
        limits,
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).max_blocking_threads(most + 1).enable_all().build()?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        runtime.block_on(sk_serve::serve(listener, Arc::new(service), Access::default(), std::future::pending()))
    });
    Ok(address)
}

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (precision, shapes) = args.split_first().ok_or("usage: load PRECISION [BACKBONE/config.json DRAFTER/config.json]")?;
    let engine = Loaded::open(precision, shapes)?;
    let url = format!("http://{}/v1/chat/completions", serve(Loaded::open(precision, shapes)?)?);
    let agent: ureq::Agent = ureq::Agent::config_builder().max_idle_connections_per_host(64).build().into();
    println!("clients  tokens/s engine  server  ratio | ms: first p50 p95, between p50 p95 (engine | server) | MB");
    for clients in CLIENTS {
        let (mut rates, mut ratios, mut seen) = ([Vec::new(), Vec::new()], Vec::new(), [Seen::default(), Seen::default()]);
        for _ in 0..TURNS {
            let (alone, rate_alone) = turn(clients, |asked| engine.answer(asked))?;
            let (served, rate_served) = turn(clients, |asked| ask(&agent, &url, asked, true))?;
            rates[0].push(rate_alone / 1e3);
            rates[1].push(rate_served / 1e3);
            ratios.push(rate_served / rate_alone / 1e3);
            seen[0].add(alone);
            seen[1].add(served);
        }
        let [alone, served] = rates.map(|mut rates| quantile(&mut rates, 0.5));
        let ratio = quantile(&mut ratios, 0.5);
        let [a, b] = seen.map(latencies);
        println!("{clients:7} {alone:16.1} {served:7.1} {ratio:6.3} | {a} | {b} | {:.0}", resident());
    }
    let clients = CLIENTS[2];
    let (seen, rate) = turn(clients, |asked| ask(&agent, &url, asked, asked.0 % 5 != 0))?;
    println!("{clients:7} {:>16} {rate:7.1}        | every fifth hangs up | {} | {:.0}", "", latencies(seen), resident());
    Ok(())
}
