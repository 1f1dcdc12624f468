//! `swiss-knife bench`: what a model costs, frozen and steered.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::time::Instant;

use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use sk_core::TokenId;
use sk_models::engine::{Frozen, Sampling};
use sk_models::lora::LoraAdapter;

use crate::args::{ModelArgs, SteeringArgs, positive};
use crate::models::Models;
use crate::progress::Loading;
use crate::scheme::{Rule, SchemeConfig};
use crate::session::Session;
use crate::stats::median;
use crate::trace::Seconds;
use crate::{Error, memory};

const EXAMPLES: &str = "\
Examples:
  # The model that ships with the program
  swiss-knife bench

  # Any checkpoint, seven repetitions, as JSON
  swiss-knife bench --backbone backbone --drafter drafter --blade helpful=blades/helpful --repeat 7 --json

Spans have a fixed length and nothing ends a response early, so that every repetition makes the same number of tokens.
Frozen and steered runs take turns, each on caches of its own; figures are medians with the range.";

/// Tokens of a span unless said otherwise.
const SPAN: NonZeroUsize = NonZeroUsize::new(24).unwrap();

/// What the prompt is made of.
const TEXT: &str = "The morning train was late again, so we stood on the platform and talked about the garden, the weather, and what \
     to cook for the friends who would visit on Sunday. ";

/// Options of `bench`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct BenchArgs {
    /// Repetitions.
    #[arg(long, value_name = "TIMES", default_value_t = 5, value_parser = positive, help_heading = "Measurement")]
    repeat: usize,
    /// Tokens of the prompt.
    #[arg(long, value_name = "TOKENS", default_value_t = 64, value_parser = positive, help_heading = "Measurement")]
    prompt_tokens: usize,
    /// Tokens generated in each run.
    #[arg(long, value_name = "TOKENS", default_value_t = 96, value_parser = positive, help_heading = "Measurement")]
    new_tokens: usize,
    /// Seed of the draws.
    #[arg(long, default_value_t = 42, help_heading = "Measurement")]
    seed: u64,
    /// Print JSON instead of a table.
    #[arg(long, help_heading = "Measurement")]
    json: bool,
    #[command(flatten)]
    models: ModelArgs,
    #[command(flatten)]
    steering: SteeringArgs,
}

/// All that is measured.
#[derive(Debug, Serialize)]
struct Report {
    device: String,
    repeat: usize,
    prompt_tokens: usize,
    new_tokens: usize,
    candidates: usize,
    blades: usize,
    /// One-minute load average of the machine when the measurement began, which should be near zero.
    load_average: Option<f64>,
    /// Seconds to load backbone, drafter and blades.
    load_seconds: f64,
    /// Prompt tokens read per second by the backbone.
    prefill: Spread,
    /// Tokens per second of the backbone alone, greedy, prefill left out.
    frozen: Spread,
    /// Tokens per second steered, reading the prompt included.
    steered: Spread,
    /// Seconds of a steered run by part: medians.
    steered_seconds: Seconds,
    /// Largest resident size of the process, in bytes.
    peak_memory: Option<u64>,
}

/// A median and its range.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    /// Of at least one value.
    fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().collect();
        let (min, max) = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), &v| (min.min(v), max.max(v)));
        Self { median: median(&values), min, max }
    }
}

/// One turn of frozen and steered.
struct Run {
    prefill: f64,
    frozen: f64,
    steered: f64,
    seconds: Seconds,
}

/// Runs the command.
///
/// # Errors
/// When a model cannot be loaded, the run does not fit its context, or a step fails.
pub fn run(args: &BenchArgs) -> Result<(), Error> {
    let mut config = args.steering.scheme(&args.models)?;
    if args.steering.scheme.is_none() {
        config.granularity.rule = Rule::FixedLength;
        config.granularity.span_tokens = args.steering.span_tokens.and_then(NonZeroUsize::new).or(Some(SPAN));
    }
    let load_average = memory::load_average();
    let start = Instant::now();
    let mut loading = Loading::new(false);
    let (mut models, adapters) = Models::load(&args.models, &mut config, &mut loading)?;
    let load_seconds = start.elapsed().as_secs_f64();
    models.end_of_text.clear();

    let prompt: Vec<TokenId> = models.tokenizer.encode(TEXT)?.into_iter().cycle().take(args.prompt_tokens).collect();
    let needed = prompt.len() + args.new_tokens;
    if needed > models.context_limit() {
        return Err(Error::PromptTooLong { tokens: needed, limit: models.context_limit() });
    }
    let mut runs = Vec::with_capacity(args.repeat);
    for i in 0..args.repeat {
        loading.show(format!("run {} of {}", i + 1, args.repeat));
        runs.push(measure(args, &models, &config, &adapters, &prompt)?);
    }
    drop(loading);
    let part = |f: fn(&Seconds) -> f64| Spread::of(runs.iter().map(|run| f(&run.seconds))).median;
    let report = Report {
        device: models.device().to_string(),
        repeat: args.repeat,
        prompt_tokens: args.prompt_tokens,
        new_tokens: args.new_tokens,
        candidates: config.proposal.candidates,
        blades: adapters.len(),
        load_average,
        load_seconds,
        prefill: Spread::of(runs.iter().map(|run| run.prefill)),
        frozen: Spread::of(runs.iter().map(|run| run.frozen)),
        steered: Spread::of(runs.iter().map(|run| run.steered)),
        steered_seconds: Seconds {
            draft: part(|s| s.draft),
            score: part(|s| s.score),
            select: part(|s| s.select),
            commit: part(|s| s.commit),
        },
        peak_memory: memory::peak(),
    };
    let text = if args.json {
        serde_json::to_string_pretty(&report).map_err(|error| Error::Output(error.into()))?
    } else {
        table(&report)
    };
    writeln!(io::stdout().lock(), "{text}").map_err(Error::Output)
}

fn measure(
    args: &BenchArgs,
    models: &Models,
    config: &SchemeConfig,
    adapters: &[(String, LoraAdapter)],
    prompt: &[TokenId],
) -> Result<Run, Error> {
    let mut frozen = Frozen::new(models.backbone.clone());
    let mut context = prompt.to_vec();
    let start = Instant::now();
    // Asking for logits, and not only for the cache, waits for the device.
    frozen.next_logits(&context)?;
    let prefill = rate(prompt.len(), start);
    let mut rng = ChaCha8Rng::seed_from_u64(args.seed);
    let start = Instant::now();
    frozen.decode(&mut context, &Sampling::greedy(), args.new_tokens, &[], &mut rng, |_| true)?;
    let frozen = rate(args.new_tokens, start);

    let mut session = Session::new(models, config, &models.heads, adapters.to_vec(), args.seed)?;
    let reply = session.reply(prompt, None, args.new_tokens, |_, _| Ok(()))?;
    Ok(Run { prefill, frozen, steered: reply.rate(), seconds: reply.seconds })
}

fn rate(tokens: usize, start: Instant) -> f64 {
    tokens as f64 / start.elapsed().as_secs_f64().max(f64::MIN_POSITIVE)
}

fn table(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).force_no_tty();
    let rate = |spread: Spread| (format!("{:.1} tokens/s", spread.median), format!("{:.1} – {:.1}", spread.min, spread.max));
    let mut row = |what: &str, (value, range): (String, String)| {
        table.add_row([what.to_owned(), value, range]);
    };
    row("load", (format!("{:.2} s", report.load_seconds), String::new()));
    row(&format!("read a prompt of {} tokens", report.prompt_tokens), rate(report.prefill));
    row("frozen, greedy", rate(report.frozen));
    row(&format!("steered, N = {}, K = {}", report.candidates, report.blades), rate(report.steered));
    let seconds = report.steered_seconds;
    for (part, value) in
        [("draft", seconds.draft), ("score", seconds.score), ("select", seconds.select), ("commit", seconds.commit)]
    {
        let share = format!("{:.1} % of {} tokens", 100.0 * value / seconds.total(), report.new_tokens);
        row(&format!("  {part}"), (format!("{value:.4} s"), share));
    }
    if let Some(bytes) = report.peak_memory {
        row("peak memory", (format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)), String::new()));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let load = report.load_average.map_or_else(String::new, |load| format!(", load average {load:.2}"));
    format!("{}, medians of {} repetitions{load}\n{}", report.device, report.repeat, table.trim_fmt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_by_hand() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
    }
}
