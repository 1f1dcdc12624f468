//! The time and bytes of reading a step from a server that has the answer at hand.

use std::error::Error;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sk_core::{Candidate, Candidates, DraftModel, Drafting, Policy, Sampling, SpanEnd, TokenId};
use sk_remote::{Kind, RemoteEngine, RemoteOptions, Role};

use crate::VOCABULARY;
use crate::fake::{Fake, Setup};

/// Tokens of the context and of a span.
const CONTEXT: u32 = 1000;
const SPAN: u32 = 24;
/// Steps that are timed.
const STEPS: usize = 20;

/// Prints what our side of a step costs.
pub(crate) fn measure() -> Result<(), Box<dyn Error>> {
    println!("\nour side of a reading, context {CONTEXT}, spans of {SPAN}, {} build", build());
    println!(
        "{:>8}{:>5}{:>5}{:>10}{:>14}{:>12}{:>12}{:>12}",
        "server", "N", "K", "requests", "least µs", "median µs", "kB out", "kB in"
    );
    for kind in [Kind::Sglang, Kind::Vllm] {
        for (candidates, adapters) in [(7, 3), (32, 8)] {
            row(kind, candidates, adapters)?;
        }
    }
    Ok(())
}

fn build() -> &'static str {
    if cfg!(debug_assertions) { "debug" } else { "release" }
}

fn row(kind: Kind, rows: u32, adapters: usize) -> Result<(), Box<dyn Error>> {
    let names: Vec<String> = (0..adapters).map(|place| format!("blade-{place}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let server = Fake::start(Setup { remembers: true, ..Setup::new(kind, &names) });
    let role: Role = format!("{}+{}", kind.name(), server.url).parse()?;
    let engine = RemoteEngine::new(RemoteOptions::new(role, Arc::from([]), Vec::new()))?;
    names.iter().for_each(|name| engine.adapters().insert(*name, *name));
    let drafting = Drafting::Sampled {
        model: DraftModel::Backbone,
        candidates: NonZeroUsize::MIN,
        sampling: Sampling::nucleus(),
        keep_end_of_text: true,
        span_tokens: None,
    };
    let mut generation = engine.generation(&drafting)?;
    let variant = |name: &&str| Policy::Variant(Arc::from(*name));
    let policies: Vec<Policy> = std::iter::once(Policy::Backbone).chain(names.iter().map(variant)).collect();
    let context: Vec<TokenId> = (0..CONTEXT).map(|place| place * 7 % VOCABULARY).collect();
    let candidate = |row: u32| Candidate {
        tokens: (0..SPAN).map(|place| (row + place * 5) % VOCABULARY).collect(),
        log_probs: vec![-1.0; SPAN as usize],
        end: SpanEnd::Complete,
    };
    let candidates = Candidates::new((0..rows).map(candidate).collect())?;
    let mut times: Vec<Duration> = Vec::with_capacity(STEPS);
    let mut before = generation.backbone.traffic();
    // The first two make the server learn the answers: SGLang is asked to read ahead at first.
    for step in 0..STEPS + 2 {
        before = generation.backbone.traffic();
        let start = Instant::now();
        generation.backbone.read(&context, &candidates, &policies).map_err(|error| error as Box<dyn Error>)?;
        if step >= 2 {
            times.push(start.elapsed());
        }
    }
    times.sort_unstable();
    let traffic = generation.backbone.traffic().since(before);
    println!(
        "{:>8}{rows:>5}{adapters:>5}{:>10}{:>14}{:>12}{:>12.1}{:>12.1}",
        kind.name(),
        traffic.requests,
        times[0].as_micros(),
        times[times.len() / 2].as_micros(),
        traffic.bytes_out as f64 / 1e3,
        traffic.bytes_in as f64 / 1e3,
    );
    Ok(())
}
