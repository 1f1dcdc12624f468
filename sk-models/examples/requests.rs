//! Measures many requests on one engine, with its scheduler and its prefix tree.
//!
//! ```sh
//! cargo run --release -p sk-models --example requests -- crowd f32      # 64 requests while a long context is read
//! cargo run --release -p sk-models --example requests -- dialogue f32   # the second turn of a dialogue
//! cargo run --release -p sk-models --example requests -- churn f32      # 10,000 requests, of which many are stopped
//! ```
//!
//! Weights are random. The shapes are those of a 31M backbone and an 8M drafter; `churn` uses a
//! tiny model for both. A step drafts seven spans of 24 tokens and reads them under the backbone
//! and three adapters.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use burn::tensor::Device;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sk_core::{Backbone, DraftRequest, Policy, Proposal, Response, TokenId};
use sk_models::Qwen2Config;
use sk_models::decoder::{Decoder, Precision, Scheduler, Stop};
use sk_models::engine::{AdapterRack, Drafter, DrafterConfig, EngineError, Racks, Sampling, Verifier};
use sk_models::lora::LoraAdapter;

type Failure = Box<dyn Error + Send + Sync>;

const BACKBONE: &str = r#"{"vocab_size": 8192, "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8,
    "num_attention_heads": 8, "num_key_value_heads": 2, "max_position_embeddings": 8192, "tie_word_embeddings": false}"#;
const DRAFTER: &str = r#"{"vocab_size": 8192, "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 6,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 8192, "tie_word_embeddings": false}"#;
const TINY: &str = r#"{"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 1024, "tie_word_embeddings": true}"#;

const BLADES: [&str; 3] = ["helpful", "honest", "harmless"];

/// N, the candidates of a step, and L, the tokens of a span.
const CANDIDATES: usize = 7;
const SPAN: usize = 24;

/// Both models, and the state that requests share.
struct Engine {
    backbone: Arc<Decoder>,
    drafter: Arc<Decoder>,
    rack: AdapterRack,
    scheduler: Scheduler,
    /// The memory limit of each prefix tree, in bytes.
    budget: usize,
}

impl Engine {
    fn new(shapes: [&str; 2], precision: Precision, budget: usize) -> Result<Self, Failure> {
        let device = Device::flex();
        let scheduler = Scheduler::new();
        let [large, small] = shapes.map(|shape| Qwen2Config::from_json("shape", shape));
        let large = large?;
        let open = |config, seed| -> Result<_, Failure> {
            let decoder = Decoder::random(config, seed, &device, precision)?;
            Ok(Arc::new(decoder.scheduled(&scheduler).sharing_prefixes(budget)))
        };
        let (backbone, drafter) = (open(&large, 1)?, open(&small?, 2)?);
        let rack = AdapterRack::default();
        for (seed, name) in (3..).zip(BLADES) {
            rack.insert(name, LoraAdapter::random(&large, 8, seed, &device));
        }
        Ok(Self { backbone, drafter, rack, scheduler, budget })
    }

    /// Answers `context` with `steps` steps on the calling thread, and appends the answer. Returns
    /// the time to the end of the first step.
    fn answer(&self, context: &mut Vec<TokenId>, steps: usize, seed: u64, stop: &Stop) -> Result<Duration, Failure> {
        let start = Instant::now();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let config = DrafterConfig {
            candidates: CANDIDATES,
            sampling: Sampling::new(1.0, 0.9, 0, 1.0)?,
            end_of_text: Vec::new(),
            keep_end_of_text: true,
        };
        let mut drafter = Drafter::new(Arc::clone(&self.drafter), config);
        let mut verifier = Verifier::new(Arc::clone(&self.backbone), Racks { adapters: self.rack.clone(), ..Racks::default() });
        let mut policies = vec![Policy::Backbone];
        policies.extend(BLADES.map(|name| Policy::Variant(name.into())));
        let _request = self.scheduler.join(stop);
        let mut first = None;
        for _ in 0..steps {
            let request = DraftRequest { context, granularity: &Response, limit: SPAN };
            let candidates = drafter.propose(request, &mut rng)?;
            verifier.read(context, &candidates, &policies)?;
            let chosen = rng.random_range(0..candidates.len());
            drafter.commit(chosen)?;
            verifier.commit(chosen)?;
            context.extend(&candidates[chosen].tokens);
            first.get_or_insert_with(|| start.elapsed());
        }
        Ok(first.unwrap_or_default())
    }

    fn forget(&self) {
        self.backbone.forget_prefixes();
        self.drafter.forget_prefixes();
    }

    fn shared(&self) -> usize {
        self.backbone.shared_bytes().max(self.drafter.shared_bytes())
    }

    fn text(&self, seed: u64, tokens: usize) -> Vec<TokenId> {
        let vocabulary = self.backbone.config().vocab_size as TokenId;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        (0..tokens).map(|_| rng.random_range(0..vocabulary)).collect()
    }
}

/// The quantile of a list at `share`. Sorts the list.
fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[((values.len() as f64 * share) as usize).min(values.len() - 1)]
}

/// Measures the time to the first span of 64 requests that arrive at once, with and without a
/// concurrent request with a context of 4,096 tokens.
fn crowd(precision: Precision) -> Result<(), Failure> {
    const CLIENTS: u64 = 64;
    const ROUNDS: u64 = 3;
    const LONG: usize = 4096;
    let engine = Engine::new([BACKBONE, DRAFTER], precision, 1 << 28)?;
    let round = |round: u64, with_long: bool| -> Result<(Vec<f64>, f64), Failure> {
        engine.forget();
        thread::scope(|scope| {
            let engine = &engine;
            let ask = |seed: u64, tokens: usize| {
                scope.spawn(move || engine.answer(&mut engine.text(seed, tokens), 1, seed, &Stop::new()))
            };
            let long = with_long.then(|| ask(round << 32, LONG));
            // Lets the long request start.
            thread::sleep(Duration::from_millis(50));
            let clients: Vec<_> = (1..=CLIENTS).map(|client| ask(round << 32 | client, 64)).collect();
            let seconds = |thread: thread::ScopedJoinHandle<'_, Result<Duration, Failure>>| -> Result<f64, Failure> {
                Ok(thread.join().map_err(|_| "a request panicked")??.as_secs_f64())
            };
            let all = clients.into_iter().map(seconds).collect::<Result<_, _>>()?;
            Ok((all, long.map(seconds).transpose()?.unwrap_or(f64::NAN)))
        })
    };
    println!("seconds to the first span of {CLIENTS} requests: p50 p95, without | with {LONG} tokens read meanwhile; those took");
    let mut ratios = Vec::new();
    for number in 1..=ROUNDS {
        let [(mut without, _), (mut with, long)] = [round(number, false)?, round(number, true)?];
        let [a, b] = [&mut without, &mut with].map(|list| [0.5, 0.95].map(|share| quantile(list, share)));
        println!("{:.2} {:.2} | {:.2} {:.2} | {long:.2}", a[0], a[1], b[0], b[1]);
        ratios.push(b[1] / a[1]);
    }
    println!("p95 with over without: median {:.2}", quantile(&mut ratios, 0.5));
    Ok(())
}

/// Measures the time to the first span of a question of 64 tokens after a dialogue of 2,048 tokens,
/// of which the last 240 are an answer. Compares it with the time of the question alone.
fn dialogue(precision: Precision) -> Result<(), Failure> {
    const DIALOGUE: usize = 2048;
    const STEPS: usize = 10;
    const ROUNDS: u64 = 9;
    let engine = Engine::new([BACKBONE, DRAFTER], precision, 1 << 28)?;
    let (mut ratios, mut seconds) = (Vec::new(), [Vec::new(), Vec::new(), Vec::new()]);
    for round in 0..ROUNDS {
        let question = engine.text(round << 32, 64);
        engine.forget();
        let alone = engine.answer(&mut question.clone(), 1, round, &Stop::new())?.as_secs_f64();
        engine.forget();
        let mut context = engine.text(round << 32 | 1, DIALOGUE - STEPS * SPAN);
        let first = engine.answer(&mut context, STEPS, round, &Stop::new())?.as_secs_f64();
        context.extend(&question);
        let second = engine.answer(&mut context, 1, round, &Stop::new())?.as_secs_f64();
        ratios.push(second / alone);
        seconds.iter_mut().zip([alone, first, second]).for_each(|(list, value)| list.push(value));
    }
    let [alone, first, second] = seconds.map(|mut list| 1e3 * quantile(&mut list, 0.5));
    let (low, high) = (quantile(&mut ratios, 0.0), quantile(&mut ratios, 1.0));
    println!("ms to the first span: a question alone {alone:.0}, the first turn {first:.0}, the second turn {second:.0}");
    println!("second turn over alone: {:.2} ({low:.2} – {high:.2})", quantile(&mut ratios, 0.5));
    Ok(())
}

/// Runs 10,000 requests of random lengths from sixteen clients and stops a quarter of them. The
/// prefix tree has room for some of their contexts.
fn churn(precision: Precision) -> Result<(), Failure> {
    const CLIENTS: usize = 16;
    const REQUESTS: usize = 10_000;
    let engine = Engine::new([TINY, TINY], precision, 4 << 20)?;
    let (next, stopped) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let watch = |done: usize| {
        println!("{done:6} requests, {:.1} MB resident, {:.2} MB shared", resident(), engine.shared() as f64 / 1e6);
    };
    let client = || -> Result<(), Failure> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= REQUESTS {
                return Ok(());
            }
            if number.is_multiple_of(1000) {
                watch(number);
            }
            let mut rng = ChaCha8Rng::seed_from_u64(number as u64);
            // Some contexts share a beginning.
            let mut context = engine.text(rng.random_range(0..8), 64 * rng.random_range(0..4));
            context.extend(engine.text(1000 + number as u64, rng.random_range(1..300)));
            let stop = Stop::new();
            let answer = thread::scope(|scope| {
                if number.is_multiple_of(4) {
                    let (stop, delay) = (stop.clone(), Duration::from_micros(rng.random_range(0..40_000)));
                    scope.spawn(move || {
                        thread::sleep(delay);
                        stop.stop();
                    });
                }
                engine.answer(&mut context, rng.random_range(1..4), number as u64, &stop)
            });
            match answer {
                Err(error) if matches!(error.downcast_ref(), Some(EngineError::Stopped(_))) => {
                    stopped.fetch_add(1, Ordering::Relaxed);
                }
                answer => drop(answer?),
            }
            assert!(engine.shared() <= engine.budget, "{} bytes are shared", engine.shared());
        }
    };
    let clients = || {
        thread::scope(|scope| {
            let threads: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a client panicked")?)
        })
    };
    clients()?;
    watch(REQUESTS);
    engine.forget();
    println!("{} were stopped; with the tree empty, {:.1} MB resident", stopped.into_inner(), resident());
    Ok(())
}

/// The resident memory of the process, in MB (Linux).
fn resident() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split(' ').nth(1)?.parse::<f64>().ok());
    pages.map_or(f64::NAN, |pages| pages * 4096.0 / 1e6)
}

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [scenario, precision] = &args[..] else { return Err("usage: requests crowd|dialogue|churn PRECISION".into()) };
    let precision = precision.parse()?;
    match scenario.as_str() {
        "crowd" => crowd(precision),
        "dialogue" => dialogue(precision),
        "churn" => churn(precision),
        _ => Err(format!("no scenario {scenario}; crowd, dialogue or churn").into()),
    }
}
