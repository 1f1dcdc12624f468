//! Checks servers and steers some steps with them.
//!
//! ```sh
//! cargo run -p sk-remote --example check -- vllm+http://localhost:8000#base helpful honest=lora-honest
//! ```
//!
//! The first argument is the servers, each further one a blade with the name of its adapter on the
//! servers; a name with a slash is a directory that every server loads. The prompt is tokenized by
//! the first server.

mod tokens;

use std::error::Error;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sk_core::{DraftModel, DraftRequest, Drafting, FixedLength, Policy, Readings, Sampling, TokenId};
use sk_remote::{AdapterSource, Probe, RemoteEngine, RemoteOptions, Role, Tolerance};

use tokens::tokens_of;

/// A prompt for the model that ships.
const PROMPT: &str =
    "\n\nHuman: What should I do before I lend my bicycle to a friend?\n\nAssistant: First, check the brakes and";
/// N.
const CANDIDATES: usize = 7;
/// Steps that are steered.
const STEPS: usize = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let role: Role = arguments.next().ok_or("name the servers: vllm+http://HOST:PORT or sglang+http://HOST:PORT")?.parse()?;
    let blade = |argument: String| match argument.split_once('=') {
        Some((blade, adapter)) => (blade.to_owned(), adapter.to_owned()),
        None => (argument.clone(), argument),
    };
    let tokens = tokens_of(PROMPT, &role)?;
    let mut options = RemoteOptions::new(role, Arc::from([]), Vec::new());
    let (directories, names): (Vec<_>, Vec<_>) = arguments.map(blade).partition(|(_, adapter)| adapter.contains('/'));
    options.adapters = names.into_iter().collect();
    options.tolerance = Tolerance::F32;
    let engine = RemoteEngine::new(options)?;
    for (blade, directory) in directories {
        let source = AdapterSource { name: blade.clone(), directory, modules: Vec::new() };
        engine.load_adapter(&blade, &source)?;
        println!("loaded {blade}");
    }
    let variants = engine.adapters().names().into_iter().map(Policy::Variant);
    let policies: Vec<Policy> = std::iter::once(Policy::Backbone).chain(variants).collect();

    let start = Instant::now();
    let report = engine.check(&Probe { tokens: &tokens, text: Some(PROMPT) })?;
    println!("checked in {:.2} s with {} requests", start.elapsed().as_secs_f64(), engine.traffic().requests);
    for server in &report.servers {
        println!("{server:?}");
    }
    for (adapter, distance) in &report.adapters {
        println!("adapter {adapter} is {distance:.3} nats per token from the base model");
    }
    steer(&engine, tokens, &policies)
}

/// Steers by the mean implicit reward of all adapters, and shows what each step takes.
fn steer(engine: &RemoteEngine, mut context: Vec<TokenId>, policies: &[Policy]) -> Result<(), Box<dyn Error>> {
    let drafting = Drafting::Sampled {
        model: DraftModel::Backbone,
        candidates: NonZeroUsize::new(CANDIDATES).ok_or("no candidates")?,
        sampling: Sampling::nucleus(),
        keep_end_of_text: true,
        span_tokens: None,
    };
    let mut generation = engine.generation(&drafting)?;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let rule = FixedLength(NonZeroUsize::new(8).ok_or("no tokens")?);
    let mut farthest = 0.0_f32;
    for step in 0..STEPS {
        let (start, before) = (Instant::now(), generation.backbone.traffic());
        let request = DraftRequest { context: &context, granularity: &rule, limit: 8 };
        let candidates = generation.proposal.propose(request, &mut rng).map_err(|error| error as Box<dyn Error>)?;
        let drafted = start.elapsed();
        let readings = generation.backbone.read(&context, &candidates, policies).map_err(|error| error as Box<dyn Error>)?;
        let read = start.elapsed() - drafted;
        let rows = readings.get(&Policy::Backbone).ok_or("no reading of the backbone")?;
        for (candidate, reading) in candidates.iter().zip(rows) {
            let apart = candidate.log_probs.iter().zip(&reading.log_probs).map(|(a, b)| (a - b).abs());
            farthest = apart.fold(farthest, f32::max);
        }
        let rewards: Vec<f32> = (0..candidates.len()).map(|row| reward(&readings, policies, row)).collect();
        let best = (0..rewards.len()).max_by(|&a, &b| rewards[a].total_cmp(&rewards[b])).unwrap_or(0);
        let traffic = generation.backbone.traffic().since(before);
        println!(
            "step {step}: drafted in {:.0} ms, read in {:.0} ms; {} requests in {} round trips, {} bytes out, {} in; reward {:+.3}",
            drafted.as_secs_f64() * 1e3,
            read.as_secs_f64() * 1e3,
            traffic.requests,
            traffic.round_trips,
            traffic.bytes_out,
            traffic.bytes_in,
            rewards[best],
        );
        context.extend(&candidates[best].tokens);
        generation.backbone.commit(best).map_err(|error| error as Box<dyn Error>)?;
        generation.proposal.commit(best).map_err(|error| error as Box<dyn Error>)?;
    }
    println!("log-probabilities of drafted tokens and of the same tokens read differ by {farthest:e} nats at most");
    Ok(())
}

/// Σ_k 1/L Σ_t [log π_k(y_t) − log π_B(y_t)] / K.
fn reward(readings: &Readings, policies: &[Policy], row: usize) -> f32 {
    let mean = |policy: &Policy| {
        let values =
            readings.get(policy).and_then(|rows| rows.get(row)).map(|reading| &reading.log_probs[..]).unwrap_or_default();
        values.iter().sum::<f32>() / values.len().max(1) as f32
    };
    let (base, adapters) = (mean(&Policy::Backbone), &policies[1..]);
    adapters.iter().map(|policy| mean(policy) - base).sum::<f32>() / adapters.len().max(1) as f32
}
