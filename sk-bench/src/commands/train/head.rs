use std::path::PathBuf;

use clap::Args;
use sk_models::{
    device::DeviceName,
    head::HeadKind,
    train::head::{HeadOptions, train_head},
};

use super::options::DataArgs;
use super::{attribute, progress};
use crate::args::written;
use crate::{Error, output};

/// Settings of `train discriminator` and `train reward-head`.
#[derive(Debug, Args)]
pub struct HeadArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Directory of the model whose hidden states are read, or embedded:backbone; no hub id
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Directory for the head
    #[arg(long, short, value_name = "DIR", value_parser = written())]
    output: PathBuf,
    /// What the head judges; the name of the output directory if not given
    #[arg(long, value_name = "NAME")]
    attribute: Option<String>,
    /// Device: auto, cpu, cuda[:N] or wgpu[:N], of those that the program was built with
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: DeviceName,
    /// Longest prompt and completion together, in tokens
    #[arg(long, default_value_t = 256)]
    length: usize,
    /// Completions per forward pass
    #[arg(long, default_value_t = 16)]
    batch: usize,
    /// Maximum number of pairs to train on; all unless given
    #[arg(long)]
    pairs: Option<usize>,
    /// Maximum memory for hidden states, in GB; pairs beyond it are left out
    #[arg(long, value_name = "GB", default_value_t = 4.0)]
    memory: f64,
    /// Penalty on the squared weights of standardised hidden states; for a reward head, of their
    /// differences between the sides, divided by their root mean squares
    #[arg(long, default_value_t = 1e-4, allow_negative_numbers = true)]
    l2: f64,
    /// Maximum number of iterations of the optimiser
    #[arg(long, default_value_t = 200)]
    iterations: usize,
    /// Seed of the pairs drawn where not all are used
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Trains a head of the given kind.
pub(super) fn run(args: HeadArgs, kind: HeadKind) -> Result<(), Error> {
    let device = args.device.open()?;
    let options = HeadOptions {
        kind,
        attribute: attribute(args.attribute, &args.output)?,
        model: args.model,
        data: args.data.into(),
        output: args.output,
        length: args.length,
        batch: args.batch,
        pairs: args.pairs,
        // The cast saturates: a negative number becomes 0, which is refused, and a huge one means
        // no limit.
        memory: (args.memory * 1e9) as u64,
        l2: args.l2,
        iterations: args.iterations,
        seed: args.seed,
    };
    let mut progress = progress::Bar::new("completion", 0);
    let report = train_head(&options, &device, &mut |event| progress.head(event))?;
    drop(progress);
    output::print(report)
}
