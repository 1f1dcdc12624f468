//! `swiss-knife sweep`: runs a plan of schemes × weight vectors × prompts × seeds.

use std::collections::BTreeSet;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::PathBuf;

use clap::Args;
use sk_models::device::DeviceName;

use crate::args::{MAX_COUNT, at_most};
use crate::plural::counted;
use crate::progress::{Loading, Work};
use crate::record_file::RecordFileError;
use crate::sweep::{self, Completion, Digests, Grid, Loaded, Plan, Store, Worker};
use crate::{Error, interrupt, message};

const EXAMPLES: &str = "\
Examples:
  # List the cells, and mark those that are done
  swiss-knife sweep frontier.toml --dry-run

  # Run it; after Ctrl-C or a power cut, the same command resumes
  swiss-knife sweep frontier.toml

  # Two GPUs share a plan
  swiss-knife sweep frontier.toml --device cuda:0 &
  swiss-knife sweep frontier.toml --device cuda:1

A plan names schemes, weights and prompts:

  [schemes.swiss-knife]
  [schemes.no-cbn]
  [weights]
  kind = \"paper\"
  [prompts]
  sources = [\"prompts.jsonl\"]";

/// Options of `sweep`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SweepArgs {
    /// The plan, a TOML file. Paths in it are relative to it.
    plan: PathBuf,
    /// List the cells and whether they are done, without running them.
    #[arg(long)]
    dry_run: bool,
    /// Device in place of the plan's: auto, cpu, cuda[:N] or wgpu[:N].
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceName>,
    /// Cells to answer at once. Forward passes are batched; each cell has its own KV cache.
    #[arg(long, value_name = "CELLS", default_value_t = sweep::AT_ONCE, value_parser = at_most::<MAX_COUNT>)]
    at_once: usize,
    /// Do not show progress and the summary.
    #[arg(short, long)]
    quiet: bool,
}

/// Runs the command.
pub(crate) fn run(args: &SweepArgs) -> Result<(), Error> {
    let mut plan = Plan::read(&args.plan)?;
    plan.models.device = args.device.unwrap_or(plan.models.device);
    let digests = Digests::new(args.quiet);
    let grid = Grid::new(plan, &digests)?;
    // Create no file before all prompts are known to fit.
    let completion = Store::peek(&grid)?;
    if args.dry_run {
        list(&completion)?;
    }
    if !args.quiet {
        message::note(&counts(&completion));
    }
    if args.dry_run {
        return Ok(());
    }
    if completion.open().next().is_none() {
        return match Store::open(&grid) {
            // Finished work needs no writing.
            Err(Error::File(RecordFileError::Open { source, .. }))
                if matches!(source.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) =>
            {
                Ok(())
            }
            store => store?.tidy(),
        };
    }
    let mut loading = Loading::new(args.quiet);
    let loaded = Loaded::new(&grid, &digests, &mut loading)?;
    loading.show("reading the prompts");
    let worker = Worker::new(&grid, &loaded)?;
    drop(loading);
    // Before, nothing is written, and Ctrl-C ends the program at once.
    interrupt::listen();
    let mut store = Store::open(&grid)?;
    // The progress includes the cells of all processes.
    let mut work = Work::new("cell", args.quiet);
    sweep::run(&mut store, &worker, args.at_once, |completion, waiting| {
        let (done, total) = (completion.finished as u64, completion.grid.cells.len() as u64);
        work.follow(done, total, if waiting { "other processes have the rest" } else { "" });
    })?;
    drop(work);
    if !args.quiet {
        let (done, total) = (store.completion().finished, grid.cells.len());
        let output = grid.plan.output.display();
        if interrupt::requested() {
            message::note(&format!("interrupted; {done} of {total} cells are in {output}, run again to go on"));
        } else {
            let cells = if total == 1 { "1 cell is".to_owned() } else { format!("{total} cells are") };
            message::note(&format!("{cells} in {output}"));
        }
    }
    Ok(())
}

/// Describes the number of cells and how it comes about.
fn counts(completion: &Completion<'_>) -> String {
    let grid = completion.grid;
    let unweighted: BTreeSet<usize> = grid.cells.iter().filter(|cell| cell.weights.is_none()).map(|cell| cell.arm).collect();
    let mut text = counted(grid.arms.len(), "scheme");
    if !unweighted.is_empty() {
        text += &format!(" ({} without weights)", unweighted.len());
    }
    text += &format!(
        " × {} × {} × {}: {}, {} done",
        counted(grid.plan.weights.len(), "weight vector"),
        counted(grid.prompts.len(), "prompt"),
        counted(grid.plan.seeds.len(), "seed"),
        counted(grid.cells.len(), "cell"),
        completion.finished,
    );
    if completion.unplanned > 0 {
        text += &format!("; {} of other cells are kept", counted(completion.unplanned, "record"));
    }
    text
}

fn list(completion: &Completion<'_>) -> Result<(), Error> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    for (place, cell) in completion.grid.cells.iter().enumerate() {
        let state = if completion.is_done(place) { "done" } else { "open" };
        writeln!(out, "{state} {}", cell.id).map_err(Error::Output)?;
    }
    out.flush().map_err(Error::Output)
}
