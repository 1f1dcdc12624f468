//! Measures a server under load and the same engine without it, and prints the table of the book.
//!
//! ```sh
//! cargo run --release -p sk-serve --example load -- f32 --memory memory.csv     # the model that ships
//! cargo run --release -p sk-serve --example load -- f32 BACKBONE/config.json DRAFTER/config.json
//! ```
//!
//! For 1, 4, 16 and 64 clients, or the number given by `--clients`, it takes nine turns of each
//! side: the engine (a steering thread per client, without HTTP) and the server (streams over
//! loopback), with the same requests. Then the server runs for as long as its turns took, and every
//! fifth request hangs up after its first chunk. `--turns` sets the number of turns, and
//! `--seconds` how long a turn starts requests, 12 seconds by default. `--memory` names a file for
//! the memory of the process and of its keys and values, second by second.

use std::error::Error;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sk_models::assets;
use sk_models::decoder::{Decoder, Stop};
use sk_models::device::DeviceName;
use sk_models::dialogue::{Framing, Session, SessionError, SessionParts, encode_messages};
use sk_models::engine::{AdapterRack, InstructionRack};
use sk_models::local::{Extent, ModelOptions, Models};
use sk_models::text::{Message, Role};
use sk_scheme::{NamedWeights, SchemeSpec, Steering};
use sk_serve::{Access, Limits, Parts, Server, limit_arenas};

/// Numbers of concurrent clients, unless an option says otherwise.
const CLIENTS: [usize; 4] = [1, 4, 16, 64];

/// Turns of each side by default. The number is odd, so that the median is one of the turns.
const TURNS: NonZeroU32 = NonZeroU32::new(9).unwrap();

/// Seconds during which a turn starts requests, unless an option says otherwise.
const SECONDS: u64 = 12;

/// One request in this many hangs up.
const HANG_UPS: usize = 5;

/// Maximum number of tokens of an answer.
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

/// A request, by its number; it has a question and weights, and the number is its seed.
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

/// The measurements of a client.
#[derive(Default)]
struct Seen {
    tokens: usize,
    /// Seconds from each request to its first span.
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

/// The models, and the adapters of the blades.
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
            rack.insert(name, models.adapter(name, &shipped.blade(name).display().to_string(), None, &mut ())?);
        }
        Ok(Self { models, rack, shipped: true })
    }

    fn decoders(&self) -> [Arc<Decoder>; 2] {
        [Arc::clone(&self.models.backbone), Arc::clone(&self.models.drafter)]
    }

    fn scheme(&self, asked: Asked) -> Result<SchemeSpec, Failure> {
        let mut spec = Steering::default().spec(self.shipped)?;
        BLADES.iter().for_each(|name| spec.seat(name));
        let weights: NamedWeights = asked.weights().into_iter().map(|(name, weight)| (name.to_owned(), weight)).collect();
        spec.weights = Some(weights);
        Ok(spec)
    }

    /// Generates an answer without HTTP.
    fn answer(&self, asked: Asked) -> Result<Seen, Failure> {
        let models = &self.models;
        let mut since = Instant::now();
        let mut seen = Seen::default();
        let prompt = encode_messages(&framing(), &models.tokenizer, &[Message::new(Role::User, asked.question())], None)?;
        let parts = SessionParts {
            models: Some(models),
            extent: Extent::default(),
            tokenizer: &models.tokenizer,
            context_limit: models.context_limit(),
            instructions: InstructionRack::default(),
            left: None,
        };
        let scheme = self.scheme(asked)?.build(&models.engine(&self.rack, &[]))?;
        let session = Session::new(parts, scheme, [], asked.0 as u64)?;
        let _request = models.scheduler.join(&Stop::new());
        let (reply, _) = session.answer(&prompt, framing().stops(), TOKENS, |step, _| -> Result<_, SessionError> {
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

/// Requests an answer from the server. Without `patience`, hangs up after the first chunk.
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

/// Runs one turn of one side: each client sends requests until the time is up. Returns the
/// measurements and the tokens per second.
fn turn(clients: usize, time: Duration, ask: impl Fn(Asked) -> Result<Seen, Failure> + Sync) -> Result<(Seen, f64), Failure> {
    let start = Instant::now();
    let client = |client: usize| -> Result<Seen, Failure> {
        let mut seen = Seen::default();
        let mut asked = client;
        while start.elapsed() < time {
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

/// The quantile of a list of seconds at `share`, in milliseconds. Sorts the list.
fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(((values.len() as f64 * share) as usize).min(values.len().saturating_sub(1))).map_or(f64::NAN, |value| value * 1e3)
}

/// Median and 95th percentile of the time to the first span, and of the time between spans.
fn latencies(mut seen: Seen) -> [String; 2] {
    [&mut seen.first, &mut seen.between].map(|values| format!("{:.0}, {:.0}", quantile(values, 0.5), quantile(values, 0.95)))
}

/// The resident memory of the process, in MB (Linux).
fn resident() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split(' ').nth(1)?.parse::<f64>().ok());
    pages.map_or(f64::NAN, |pages| pages * 4096.0 / 1e6)
}

/// Starts a server in this process for at most `most` concurrent clients.
fn serve(loaded: Loaded, most: usize) -> Result<SocketAddr, Failure> {
    let limits = Limits { concurrent: most, waiting: 2 * most, ..Limits::default() };
    let Loaded { models, rack, shipped } = loaded;
    let server = Arc::new(Server::new(Access::default(), limits));
    let parts = Parts {
        host: models.into(),
        rack: rack.into(),
        adapter_folder: None,
        instructions: Vec::new(),
        seats: Vec::new(),
        steering: Steering::default(),
        shipped,
        framing: framing(),
        name: "load".to_owned(),
    };
    server.open(parts, BLADES.map(str::to_owned).to_vec());
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).max_blocking_threads(most + 1).enable_all().build()?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    thread::spawn(move || runtime.block_on(server.serve(listener, std::future::pending())));
    Ok(address)
}

/// Samples of memory, one per second.
struct Memory {
    start: Instant,
    models: Vec<Arc<Decoder>>,
    samples: Mutex<Vec<Sample>>,
}

/// Memory in MB at a moment. Keys and values are of both copies of the models.
struct Sample {
    seconds: f64,
    /// Resident memory of the process.
    resident: f64,
    /// Keys and values that the prefix trees hold.
    prefixes: f64,
    /// Keys and values of the requests under way.
    contexts: f64,
}

impl Memory {
    /// Starts sampling on a new thread.
    fn watch(models: Vec<Arc<Decoder>>) -> Arc<Self> {
        let memory = Arc::new(Self { start: Instant::now(), models, samples: Mutex::default() });
        let own = Arc::clone(&memory);
        thread::spawn(move || {
            loop {
                own.sample();
                thread::sleep(Duration::from_secs(1));
            }
        });
        memory
    }

    fn sample(&self) -> f64 {
        let megabytes = |bytes: fn(&Decoder) -> usize| self.models.iter().map(|model| bytes(model) as f64 / 1e6).sum();
        let resident = resident();
        self.lock().push(Sample {
            seconds: self.start.elapsed().as_secs_f64(),
            resident,
            prefixes: megabytes(Decoder::shared_bytes),
            contexts: megabytes(Decoder::held_bytes),
        });
        resident
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Sample>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The largest sample since a moment, and the present value.
    fn since(&self, moment: Instant) -> String {
        let now = self.sample();
        let from = (moment - self.start).as_secs_f64();
        let most = self.lock().iter().filter(|at| at.seconds >= from).map(|at| at.resident).fold(now, f64::max);
        format!("{most:.0}, {now:.0}")
    }

    fn write(&self, path: &str) -> io::Result<()> {
        let lines = self.lock().iter().map(Sample::line).collect::<String>();
        std::fs::write(path, format!("seconds,resident,prefixes,contexts\n{lines}"))
    }
}

impl Sample {
    fn line(&self) -> String {
        let Self { seconds, resident, prefixes, contexts } = self;
        format!("{seconds:.1},{resident:.1},{prefixes:.1},{contexts:.1}\n")
    }
}

/// The command-line options.
struct Options {
    precision: String,
    clients: Vec<usize>,
    /// Turns of each side.
    turns: NonZeroU32,
    /// How long a turn starts requests.
    time: Duration,
    /// The file for the samples of memory.
    memory: Option<String>,
    shapes: Vec<String>,
}

impl Options {
    fn read(mut args: impl Iterator<Item = String>) -> Result<Self, Failure> {
        const USAGE: &str = "usage: load PRECISION [--clients N] [--turns N] [--seconds N] [--memory FILE] \
                             [BACKBONE/config.json DRAFTER/config.json]";
        let precision = args.next().ok_or(USAGE)?;
        let time = Duration::from_secs(SECONDS);
        let mut options = Self { precision, clients: CLIENTS.to_vec(), turns: TURNS, time, memory: None, shapes: Vec::new() };
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--clients" => options.clients = vec![args.next().ok_or(USAGE)?.parse()?],
                "--turns" => options.turns = args.next().ok_or(USAGE)?.parse()?,
                "--seconds" => options.time = Duration::from_secs(args.next().ok_or(USAGE)?.parse()?),
                "--memory" => options.memory = Some(args.next().ok_or(USAGE)?),
                _ => options.shapes.push(arg),
            }
        }
        if options.shapes.is_empty() || options.shapes.len() == 2 { Ok(options) } else { Err(USAGE.into()) }
    }
}

fn main() -> Result<(), Failure> {
    limit_arenas();
    let Options { precision, clients, turns, time, memory: file, shapes } = Options::read(std::env::args().skip(1))?;
    let engine = Loaded::open(&precision, &shapes)?;
    let most = clients.iter().copied().max().unwrap_or(1);
    let served = Loaded::open(&precision, &shapes)?;
    let memory = Memory::watch([engine.decoders(), served.decoders()].concat());
    let url = format!("http://{}/v1/chat/completions", serve(served, most)?);
    let agent: ureq::Agent = ureq::Agent::config_builder().max_idle_connections_per_host(most).build().into();
    println!(
        "| clients | tokens/s, engine | server | ratio | to the first span | between spans | memory, MB: most, at the end |"
    );
    println!("|---:|---:|---:|---:|---|---|---|");
    for clients in clients {
        let (mut rates, mut ratios, mut seen) = ([Vec::new(), Vec::new()], Vec::new(), [Seen::default(), Seen::default()]);
        let start = Instant::now();
        for _ in 0..turns.get() {
            let (alone, rate_alone) = turn(clients, time, |asked| engine.answer(asked))?;
            let (served, rate_served) = turn(clients, time, |asked| ask(&agent, &url, asked, true))?;
            rates[0].push(rate_alone / 1e3);
            rates[1].push(rate_served / 1e3);
            ratios.push(rate_served / rate_alone / 1e3);
            seen[0].add(alone);
            seen[1].add(served);
        }
        let [alone, served] = rates.map(|mut rates| quantile(&mut rates, 0.5));
        let ratio = quantile(&mut ratios, 0.5);
        let [[first, between], [served_first, served_between]] = seen.map(latencies);
        let held = memory.since(start);
        println!(
            "| {clients} | {alone:.1} | {served:.1} | {ratio:.3} | {first}; {served_first} | {between}; {served_between} | {held} |"
        );
        let start = Instant::now();
        let (seen, rate) = turn(clients, time * turns.get(), |asked| ask(&agent, &url, asked, asked.0 % HANG_UPS != 0))?;
        let [first, between] = latencies(seen);
        let held = memory.since(start);
        println!("| {clients}, every fifth hangs up | | {rate:.1} | | {first} | {between} | {held} |");
        if let Some(file) = &file {
            memory.write(file)?;
        }
    }
    Ok(())
}
