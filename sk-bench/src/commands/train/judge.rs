use std::path::PathBuf;

use clap::Args;
use sk_models::train::{
    data::{DataOptions, Source},
    judge::{JudgeOptions, train_judge},
};

use super::attribute;
use crate::args::written;
use crate::{Error, output};

/// Settings of `train judge`.
#[derive(Debug, Args)]
pub struct JudgeModelArgs {
    /// A .jsonl or .jsonl.gz file of pairs, or FILE=WEIGHT for each to count WEIGHT times; may be
    /// repeated
    #[arg(long = "data", value_name = "FILE[=WEIGHT]", required = true)]
    data: Vec<Source>,
    /// Measure on the pairs of this file too, and do not fit to them; may be repeated
    #[arg(long = "test", value_name = "FILE")]
    tests: Vec<PathBuf>,
    /// Leave out rows that share a question with this .jsonl, .jsonl.gz or .csv file; may be
    /// repeated
    #[arg(long, value_name = "FILE")]
    exclude: Vec<PathBuf>,
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
    /// Share of the prompts held out
    #[arg(long, default_value_t = 0.2)]
    held_out: f64,
}

/// Fits a judge and prints its accuracy.
pub(super) fn run(args: JudgeModelArgs) -> Result<(), Error> {
    let options = JudgeOptions {
        attribute: attribute(args.attribute, &args.output)?,
        data: DataOptions { sources: args.data, exclude: args.exclude, held_out: args.held_out },
        tests: args.tests,
        output: args.output,
        bits: args.bits,
        l2: args.l2,
        iterations: args.iterations,
    };
    // This usually takes seconds, so no progress is shown.
    output::print(train_judge(&options)?)
}
