use std::path::PathBuf;

use clap::Args;
use sk_models::train::judge::{JudgeOptions, train_judge};

use super::attribute;
use super::options::DataArgs;
use crate::args::written;
use crate::{Error, output};

/// Settings of `train judge`.
#[derive(Debug, Args)]
#[command(mut_arg("held_out", |arg| arg.default_value("0.2")))]
pub struct JudgeModelArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Measure on the pairs of this file too, and do not fit to them; may be repeated
    #[arg(long = "test", value_name = "FILE")]
    tests: Vec<PathBuf>,
    /// Directory for the judge
    #[arg(long, short, value_name = "DIR", value_parser = written())]
    output: PathBuf,
    /// What it judges; the name of the output directory if not given
    #[arg(long, value_name = "NAME")]
    attribute: Option<String>,
    /// Words and pairs of words share 2^BITS weights
    #[arg(long, value_name = "BITS", default_value_t = 15)]
    bits: u32,
    /// Penalty on the squared weights
    #[arg(long, default_value_t = 1e-3, allow_negative_numbers = true)]
    l2: f64,
    /// Maximum number of iterations of the optimiser
    #[arg(long, default_value_t = 300)]
    iterations: usize,
}

/// Fits a judge and prints its accuracy.
pub(super) fn run(args: JudgeModelArgs) -> Result<(), Error> {
    let options = JudgeOptions {
        attribute: attribute(args.attribute, &args.output)?,
        data: args.data.into(),
        tests: args.tests,
        output: args.output,
        bits: args.bits,
        l2: args.l2,
        iterations: args.iterations,
    };
    // This usually takes seconds, so no progress is shown.
    output::print(train_judge(&options)?)
}
