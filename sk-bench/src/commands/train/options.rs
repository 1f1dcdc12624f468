//! Options that several training commands share.

use std::path::PathBuf;

use clap::Args;
use sk_models::train::{
    data::{DataOptions, HELD_OUT, Source},
    run::RunOptions,
};

/// The data of a run.
#[derive(Debug, Args)]
pub struct DataArgs {
    /// A .jsonl or .jsonl.gz file, or FILE=WEIGHT for each row to count WEIGHT times; may be
    /// repeated
    #[arg(long = "data", value_name = "FILE[=WEIGHT]", required = true)]
    sources: Vec<Source>,
    /// Leave out rows that share a question with this .jsonl, .jsonl.gz or .csv file; may be
    /// repeated
    #[arg(long, value_name = "FILE")]
    exclude: Vec<PathBuf>,
    /// Share of the documents held out, or of the prompts of pairs
    #[arg(long, default_value_t = HELD_OUT)]
    held_out: f64,
}

impl From<DataArgs> for DataOptions {
    fn from(args: DataArgs) -> Self {
        let DataArgs { sources, exclude, held_out } = args;
        Self { sources, exclude, held_out }
    }
}

/// The optimiser steps of a run. The defaults are those of `train dpo`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Optimiser steps
    #[arg(long)]
    steps: u64,
    /// Pairs per forward pass
    #[arg(long, default_value_t = 16)]
    batch: usize,
    /// Forward passes per step, which sees --batch windows or pairs in each
    #[arg(long, default_value_t = 1)]
    accumulate: usize,
    /// Longest prompt and completion together, in tokens
    #[arg(long, default_value_t = 256)]
    length: usize,
    /// Highest learning rate
    #[arg(long, default_value_t = 5e-4)]
    rate: f64,
    /// Steps of warm-up
    #[arg(long, default_value_t = 20)]
    warmup: u64,
    /// Last rate as a fraction of the highest
    #[arg(long, default_value_t = 0.05)]
    floor: f64,
    /// Decoupled weight decay of matrices
    #[arg(long, default_value_t = 0.0)]
    weight_decay: f64,
    /// Largest global gradient norm; 0 for no limit
    #[arg(long, default_value_t = 1.0)]
    clip: f64,
    /// Seed of the trained matrices and the order of the data
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Steps between held-out measurements
    #[arg(long, default_value_t = 100)]
    evaluate_every: u64,
    /// Steps between checkpoints
    #[arg(long, default_value_t = 50)]
    save_every: u64,
}

impl From<RunArgs> for RunOptions {
    fn from(args: RunArgs) -> Self {
        Self {
            steps: args.steps,
            batch: args.batch,
            accumulate: args.accumulate,
            length: args.length,
            rate: args.rate,
            warmup: args.warmup,
            floor: args.floor,
            weight_decay: args.weight_decay,
            clip: args.clip,
            seed: args.seed,
            evaluate_every: args.evaluate_every,
            save_every: args.save_every,
        }
    }
}
