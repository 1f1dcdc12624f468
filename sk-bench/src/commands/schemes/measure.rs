//! `swiss-knife schemes --measure`: the cost of each scheme on this machine, measured in turns.

use std::fmt;
use std::process::{Command, Stdio};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::args::{Sources, SteeringArgs, positive};
use crate::plural::counted;
use crate::pool::PlannedArm;
use crate::progress::Loading;
use crate::ruler::{Spread, Steered, TEXT, frozen, prompt};
use crate::scheme::Shipped;
use crate::{Error, memory, message, models, output, terminal};
use sk_report::grid::Grid;

/// Options of a measurement.
#[derive(Debug, Args)]
#[command(next_help_heading = "Measurement")]
pub(super) struct MeasureArgs {
    /// Measure each scheme, or the one named, on this machine: tokens per second and peak memory.
    ///
    /// Schemes take turns, so that a slow hour is slow for all, and a first turn is not counted.
    /// Peak memory is that of a process that runs nothing else. Spans end where the scheme's file
    /// says, and nothing ends a response early.
    #[arg(long)]
    pub(super) measure: bool,
    /// Turns that count.
    #[arg(long, value_name = "TIMES", default_value_t = 3, requires = "measure", value_parser = positive)]
    repeat: usize,
    /// Tokens of the prompt.
    #[arg(long, value_name = "TOKENS", default_value_t = 64, requires = "measure", value_parser = positive)]
    prompt_tokens: usize,
    /// Tokens generated in each turn.
    #[arg(long, value_name = "TOKENS", default_value_t = 96, requires = "measure", value_parser = positive)]
    new_tokens: usize,
    /// Seed of the draws.
    #[arg(long, default_value_t = 42, requires = "measure")]
    seed: u64,
    #[command(flatten)]
    pub(super) models: Sources,
}

/// The report of all measurements.
#[derive(Debug, Serialize, Deserialize)]
struct SchemeCosts {
    device: String,
    repeat: usize,
    prompt_tokens: usize,
    new_tokens: usize,
    /// One-minute load average of the machine at the start.
    load_average: Option<f64>,
    /// Tokens per second of the backbone alone, greedy, without the prefill.
    frozen: Spread,
    schemes: Vec<SchemeCost>,
}

/// The cost of one scheme.
#[derive(Debug, Serialize, Deserialize)]
struct SchemeCost {
    scheme: String,
    /// Forward passes and their rows.
    passes: String,
    /// Tokens of the response per second, including the prefill.
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens_per_second: Option<Spread>,
    /// Peak resident size of a process that runs only this scheme, in bytes.
    peak_memory: Option<u64>,
    /// The reason why it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<String>,
}

/// Measures `schemes` and prints the report.
pub(super) fn run(args: &MeasureArgs, schemes: &[&Shipped], json: bool) -> Result<(), Error> {
    let load_average = memory::load_average();
    let (mut rows, mut able) = (Vec::new(), Vec::new());
    for scheme in schemes {
        let steering = SteeringArgs { scheme: Some(scheme.name.into()), ..SteeringArgs::default() };
        let config = steering.scheme(&args.models)?;
        let skipped = models::resolve(&args.models, &config).err().map(|error| message::joined(&error.to_string()));
        rows.push(SchemeCost {
            scheme: scheme.name.to_owned(),
            passes: config.passes().to_string(),
            tokens_per_second: None,
            peak_memory: None,
            skipped: skipped.clone(),
        });
        if skipped.is_none() {
            able.push(PlannedArm { name: scheme.name.to_owned(), config });
        }
    }
    let Some((first, others)) = able.split_first_mut() else {
        let reason = rows.into_iter().find_map(|row| row.skipped).unwrap_or_default();
        return Err(Error::Input(reason));
    };
    let mut loading = Loading::new(false);
    let (mut models, adapters) = models::load_here(&args.models, &mut first.config, others, &mut loading)?;
    models.end_of_text.clear();
    let prompt = prompt(&models.tokenizer.encode(TEXT)?, args.prompt_tokens, args.new_tokens, models.context_limit())?;
    let (mut alone, mut rates) = (Vec::new(), vec![Vec::new(); able.len()]);
    for turn in 0..=args.repeat {
        loading.show(&format!("turn {turn} of {}", args.repeat));
        let counts = turn > 0;
        let decode = frozen(&models, &prompt, args.new_tokens, args.seed)?.decode;
        alone.extend(counts.then_some(args.new_tokens as f64 / decode.max(f64::MIN_POSITIVE)));
        for (scheme, rates) in able.iter().zip(&mut rates) {
            let timed = Steered::new(&models, &scheme.config, &adapters, args.seed)?.generate(&prompt, args.new_tokens)?;
            rates.extend(counts.then_some(timed.tokens() as f64 / timed.elapsed.max(f64::MIN_POSITIVE)));
        }
    }
    for (scheme, rates) in able.iter().zip(&rates) {
        let Some(row) = rows.iter_mut().find(|row| row.scheme == scheme.name) else { continue };
        row.tokens_per_second = Some(Spread::of(rates.iter().copied()));
        loading.show(&format!("memory of {}", scheme.name));
        row.peak_memory = if schemes.len() == 1 { memory::peak() } else { peak_alone(&scheme.name) };
    }
    drop(loading);
    let report = SchemeCosts {
        device: models.device().to_string(),
        repeat: args.repeat,
        prompt_tokens: args.prompt_tokens,
        new_tokens: args.new_tokens,
        load_average,
        frozen: Spread::of(alone),
        schemes: rows,
    };
    output::print(output::shown(&report, json)?)
}

/// Returns the peak memory of a new process that measures only `scheme`. Returns `None` if the
/// system does not report it, or the process fails.
fn peak_alone(scheme: &str) -> Option<u64> {
    let mut command = Command::new(std::env::current_exe().ok()?);
    command.args(std::env::args_os().skip(1)).args(["--repeat", "1", "--json", scheme]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let report: SchemeCosts = serde_json::from_slice(&output.stdout).ok()?;
    report.schemes.first()?.peak_memory
}

impl fmt::Display for SchemeCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headings = ["scheme", "tokens/s", "range", "of frozen", "peak memory", "forward passes"];
        let mut grid = Grid::new(headings).numbers(1..5);
        for row in &self.schemes {
            let mebibytes = |bytes: u64| format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20));
            let memory = row.peak_memory.map(mebibytes).unwrap_or_default();
            let [rate, range, share] = match row.tokens_per_second {
                Some(Spread { median, min, max }) => {
                    [format!("{median:.1}"), format!("{min:.1} – {max:.1}"), format!("{:.2}", median / self.frozen.median)]
                }
                None => ["not measured".to_owned(), String::new(), String::new()],
            };
            grid.row([row.scheme.clone(), rate, range, share, memory, row.passes.clone()]);
        }
        let load = self.load_average.map_or_else(String::new, |load| format!(", load average {load:.2}"));
        let Self { device, repeat, prompt_tokens, new_tokens, frozen, .. } = self;
        let turns = counted(*repeat, "turn");
        writeln!(f, "{device}, medians of {turns}{load}; prompt of {prompt_tokens} tokens, {new_tokens} new tokens")?;
        writeln!(f, "frozen, greedy: {:.1} tokens/s ({:.1} – {:.1})", frozen.median, frozen.min, frozen.max)?;
        write!(f, "{}", grid.render(terminal::columns()))?;
        for row in &self.schemes {
            if let Some(reason) = &row.skipped {
                write!(f, "\n{}: {reason}", row.scheme)?;
            }
        }
        Ok(())
    }
}
