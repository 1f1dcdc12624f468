use std::path::PathBuf;

use clap::Args;

use super::{MAX_COUNT, at_most};

/// The options that name a checkpoint or something that belongs to one.
const CHECKPOINTS: [&str; 5] = ["backbone", "drafter", "tokenizer", "blades", "heads"];

/// Models of random weights, in place of checkpoints.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Random weights")]
pub struct RandomArgs {
    /// Shape of a backbone to fill with random weights: a config.json.
    ///
    /// Speed does not depend on the values of the weights, so any shape can be measured without a
    /// checkpoint.
    #[arg(long, value_name = "FILE", conflicts_with_all = CHECKPOINTS)]
    pub backbone_config: Option<PathBuf>,
    /// Shape of a drafter to fill with random weights; without it, a random backbone drafts for
    /// itself.
    #[arg(long, value_name = "FILE", requires = "backbone_config", conflicts_with_all = CHECKPOINTS)]
    pub drafter_config: Option<PathBuf>,
    /// K, random adapters on all linear layers of a random backbone.
    #[arg(long, value_name = "K", default_value_t = 3, requires = "backbone_config", conflicts_with_all = CHECKPOINTS, value_parser = at_most::<MAX_COUNT>)]
    pub random_blades: usize,
    /// Seed of random weights, also of the blades that `--sweep k` adds to a checkpoint.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub random_seed: u64,
    /// Ranks of random adapters, also of those that `--sweep k` adds; adapters take them in turn.
    #[arg(long, value_name = "R,…", default_value = "16", value_delimiter = ',', value_parser = at_most::<65536>)]
    pub rank: Vec<usize>,
}
