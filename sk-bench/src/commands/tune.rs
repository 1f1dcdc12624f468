//! `swiss-knife tune`: runs a plan for the Bayesian optimisation of a scheme's numbers.

mod summary;

use std::path::PathBuf;

use clap::Args;
use sk_models::device::DeviceName;

use crate::plural::counted;
use crate::progress::{Loading, Work};
use crate::sweep::Digests;
use crate::tune::{self, Ledger, Scorer, SweepTrials, TunePlan, TuneProgress};
use crate::{Error, interrupt, message, output};
use summary::TuneSummary;

const EXAMPLES: &str = "\
Examples:
  # Print the results so far
  swiss-knife tune harmless.toml --dry-run

  # Search; after Ctrl-C or a power cut, the same command resumes with the same trials
  swiss-knife tune harmless.toml

A plan names the prompts to tune on and the prompts of a later evaluation; the two sets must be
disjoint:

  [tune]
  trials = 40
  [prompts]
  sources = [\"tune.jsonl\"]
  [evaluation]
  sources = [\"paper-120\"]";

/// Options of `tune`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TuneArgs {
    /// The plan, a TOML file. Paths in it are relative to it.
    plan: PathBuf,
    /// Print the results so far, without searching.
    #[arg(long)]
    dry_run: bool,
    /// Device in place of the plan's: auto, cpu, cuda[:N] or wgpu[:N].
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceName>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Do not show progress.
    #[arg(short, long)]
    quiet: bool,
}

/// Runs the command.
pub(crate) fn run(args: &TuneArgs) -> Result<(), Error> {
    let mut plan = TunePlan::read(&args.plan)?;
    plan.models.device = args.device.unwrap_or(plan.models.device);
    let prompts = plan.prompts()?;
    let scorer = Scorer::of(&plan)?;
    let digests = Digests::new(args.quiet);
    let settings = plan.settings(&prompts, &scorer.identity(), &digests)?;
    // A dry run may read the ledger of a running search.
    let open = if args.dry_run { Ledger::look } else { Ledger::open };
    let loading = Loading::new(args.quiet);
    loading.show("checking the ledger");
    let mut ledger = open(&plan.output, plan.ledger_searches()?, &settings)?;
    drop(loading);
    if !args.dry_run {
        interrupt::listen();
        let mut work = Work::new("trial", args.quiet);
        let mut trials = SweepTrials::new(&plan, &prompts, &scorer, &digests, args.quiet);
        let evaluate = |search, trial, point: &[f64]| trials.evaluate(search, trial, point);
        tune::run(&mut ledger, plan.trials, evaluate, |progress| show(&mut work, &plan, &progress))?;
    }
    let summary = TuneSummary::new(&plan, &ledger);
    output::print(output::shown(&summary, args.json)?)?;
    if interrupt::requested() && !args.quiet {
        message::note(&format!("interrupted; what was finished is in {}, run again to go on", plan.output.display()));
    }
    Ok(())
}

/// Shows the progress of tuning, with a permanent line per trial.
fn show(work: &mut Work, plan: &TunePlan, progress: &TuneProgress<'_>) {
    let &TuneProgress { search, done, total, last } = progress;
    let search = &plan.searches[search];
    let (done, total) = (done as u64, total as u64);
    let Some(trial) = last else {
        work.follow(done, total, "");
        return work.line(&format!("{}: {}", search.name, counted(search.weights.len(), "weight vector")));
    };
    let point = plan.space.by_name(&trial.point);
    let point: Vec<String> = point.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let scores: Vec<String> = trial.scores.iter().map(|score| format!("{score:.4}")).collect();
    let scores = if trial.is_scored() { scores.join(" ") } else { "without a score".to_owned() };
    work.report(done, &format!("{} {scores} at {}", search.name, point.join(" ")));
}
