//! The cost of a step on models behind servers: the times of its parts, and the network traffic.

use std::fmt;
use std::time::Instant;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use sk_core::{Context, Seconds, Traffic};
use sk_report::grid::Grid;
use sk_serve::host::Adapters;

use super::BenchArgs;
use crate::plural::counted;
use crate::progress::{Loading, Work};
use crate::ruler::{Spread, TEXT, instructions, prompt};
use crate::{Error, models, output, terminal};

/// The report of all measurements.
#[derive(Debug, Serialize)]
pub(super) struct RemoteReport {
    /// Addresses of the servers.
    servers: String,
    repeat: usize,
    prompt_tokens: usize,
    candidates: usize,
    blades: usize,
    /// Number of steps of all repetitions.
    steps: usize,
    /// Tokens of a response per second.
    tokens_per_second: Spread,
    /// Seconds of each part of a step, as in [`PARTS`].
    #[serde(serialize_with = "output::in_order")]
    step_seconds: [(&'static str, Spread); 5],
    /// The network traffic of a step, as in [`COUNTS`].
    #[serde(serialize_with = "output::in_order")]
    step_traffic: [(&'static str, Spread); 5],
}

/// A part of a step: its name in JSON and in the table, and its seconds.
type Part = (&'static str, &'static str, fn(&Seconds) -> f64);

const PARTS: [Part; 5] = [
    ("draft", "draft", |s| s.draft),
    ("score", "score", |s| s.score),
    ("select", "select", |s| s.select),
    ("commit", "commit", |s| s.commit),
    ("step", "all", Seconds::total),
];

/// A count of a step: its name in JSON and in the table, its factor and unit there, and its value.
type Count = (&'static str, &'static str, f64, &'static str, fn(&Traffic) -> u64);

const COUNTS: [Count; 5] = [
    ("round_trips", "round trips", 1.0, "", |t| t.round_trips),
    ("requests", "requests", 1.0, "", |t| t.requests),
    ("retries", "repeated", 1.0, "", |t| t.retries),
    ("bytes_out", "sent", 1e-3, " kB", |t| t.bytes_out),
    ("bytes_in", "received", 1e-3, " kB", |t| t.bytes_in),
];

/// Runs the measurement.
pub(super) fn measure(args: &BenchArgs, mut loading: Loading) -> Result<RemoteReport, Error> {
    let local = [
        ("--sweep", !args.sweep.is_empty()),
        ("--generations", args.generations.is_some()),
        ("--against", !args.against.is_empty()),
    ];
    if let Some((option, _)) = local.into_iter().find(|(_, given)| *given) {
        return Err(Error::Input(format!("{option}: it does not apply to models on servers; leave it out")));
    }
    let mut config = args.scheme(false)?;
    let (host, adapters) = models::load(&args.models, &mut config, &mut loading)?;
    args.steering.steering().check_effect(&config)?;
    let (blades, adapters) = (adapters.len(), Adapters::from_iter(adapters));
    let prompt = prompt(&host.tokenizer().encode(TEXT)?, args.prompt_tokens, args.new_tokens, host.context_limit())?;
    let instructions = instructions(&config, host.tokenizer())?;
    let (mut rates, mut steps) = (Vec::new(), Vec::new());
    drop(loading);
    let mut work = Work::new("run", false);
    work.begin(1 + args.repeat as u64, 0);
    for turn in 0..=args.repeat {
        work.show(turn as u64, if turn == 0 { "warming up" } else { "" });
        let (engine, _) = host.engine(&config, &adapters, &[], &instructions, None)?;
        let mut scheme = config.build(&*engine)?;
        let (mut context, mut rng) = (Context::new(&prompt[..])?, ChaCha8Rng::seed_from_u64(args.seed));
        let (start, mut measured) = (Instant::now(), Vec::new());
        scheme.generate(&mut context, args.new_tokens, &mut rng, |step| {
            measured.push((step.seconds, step.traffic));
            true
        })?;
        // The first turn is a warm-up that opens connections.
        if turn > 0 {
            rates.push(context.response().len() as f64 / start.elapsed().as_secs_f64().max(f64::MIN_POSITIVE));
            steps.extend(measured);
        }
    }
    Ok(RemoteReport {
        servers: host.place(),
        repeat: args.repeat,
        prompt_tokens: prompt.len(),
        candidates: config.proposal.draft().map_or(1, |draft| draft.candidates),
        blades,
        steps: steps.len(),
        tokens_per_second: Spread::of(rates),
        step_seconds: PARTS.map(|(name, _, part)| (name, Spread::of(steps.iter().map(|(seconds, _)| part(seconds))))),
        step_traffic: COUNTS.map(|(name, .., count)| (name, Spread::of(steps.iter().map(|(_, traffic)| count(traffic) as f64)))),
    })
}

impl fmt::Display for RemoteReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Grid::new(["of a step", "median", "range"]).numbers(1..);
        let mut row = |name: &str, spread: Spread, scale: f64, unit: &str| {
            let [median, min, max] = [spread.median, spread.min, spread.max].map(|value| format!("{:.1}", value * scale));
            table.row([name.to_owned(), format!("{median}{unit}"), format!("{min} – {max}")]);
        };
        let Self { servers, repeat, prompt_tokens, candidates, blades, steps, tokens_per_second, .. } = self;
        for ((_, label, _), (_, spread)) in PARTS.iter().zip(self.step_seconds) {
            row(label, spread, 1e3, " ms");
        }
        for ((_, label, scale, unit, _), (_, spread)) in COUNTS.iter().zip(self.step_traffic) {
            row(label, spread, *scale, unit);
        }
        writeln!(f, "{servers}: N = {candidates}, K = {blades}, prompt of {prompt_tokens} tokens, {}", counted(*steps, "step"))?;
        writeln!(f, "{:.1} tokens/s, median of {}", tokens_per_second.median, counted(*repeat, "response"))?;
        write!(f, "{}", table.render(terminal::columns()))
    }
}
