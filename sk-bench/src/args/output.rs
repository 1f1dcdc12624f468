use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ValueEnum};

use super::choice;
use crate::explain::Detail;
use crate::framing::DialogueFraming;

/// How long a response may be, how the dialogue is framed, and what decides the draws.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Generation")]
pub struct GenerationArgs {
    /// Maximum number of tokens of a response.
    #[arg(long, value_name = "TOKENS", default_value_t = 256, value_parser = positive)]
    pub max_new_tokens: usize,
    /// Seed of every draw.
    ///
    /// The same seed, device and settings give the same bytes.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// How the dialogue becomes a text for the model.
    #[arg(long, value_name = "FRAMING", default_value = "hh", value_parser = choice(DialogueFraming::ALL))]
    pub framing: DialogueFraming,
    /// A system message that stands above the dialogue.
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
}

/// What is shown and kept of a generation.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Show each step on standard error.
    ///
    /// For each candidate: its probability, its score under each blade in standard deviations from
    /// the mean of the step, and its text; with `full` a table of every score and dispersion,
    /// composites and ratings.
    #[arg(long, value_name = "DETAIL", num_args = 0..=1, require_equals = true, default_missing_value = "brief",
        value_parser = choice(Detail::ALL))]
    pub explain: Option<Detail>,
    /// Write a trace: one JSON object per step, in lines.
    ///
    /// The file appears, whole, when the generation ends. For a scheme over a vocabulary it keeps
    /// the 16 most likely candidates of each step.
    #[arg(long, value_name = "FILE", value_parser = written())]
    pub trace: Option<PathBuf>,
    /// τ of stability certificates: the total variation by which the choice may move.
    ///
    /// If the scores change by no more than the certified radius, the distribution of the choice
    /// changes by at most τ. With this option, --explain prints certificates, or why a scheme has
    /// none. Traces always have certificates, with τ = 0.1 unless it is given.
    #[arg(long, value_name = "TAU", value_parser = tolerance)]
    pub tolerance: Option<f64>,
    /// Do not show progress and the summary.
    #[arg(short, long)]
    pub quiet: bool,
}

/// How tables are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    /// Text for a terminal.
    Plain,
    /// Comma-separated values, all digits.
    Csv,
    /// LaTeX with booktabs and graphicx.
    Latex,
    /// JSON, all digits.
    Json,
}

/// Returns a parser of the path of a file or folder to write. Refuses `-`, which users may take for
/// standard output.
pub(crate) fn written() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(not_standard_output)
}

/// Returns a path to write, unless it is `-`.
pub(crate) fn not_standard_output(path: PathBuf) -> Result<PathBuf, &'static str> {
    if path.as_os_str() == "-" { Err("`-` is not standard output here; give a name, such as ./-") } else { Ok(path) }
}

/// Maximum of a count whose items each take memory or a thread: candidates, blades, cells.
pub(crate) const MAX_COUNT: usize = 1024;

/// Parses a whole number from 1 to `MOST`.
pub(crate) fn at_most<const MOST: usize>(text: &str) -> Result<usize, String> {
    match positive(text)? {
        number if number > MOST => Err(format!("it must be at most {MOST}")),
        number => Ok(number),
    }
}

/// Parses τ, an acceptable total variation.
pub(crate) fn tolerance(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|number| (0.0..1.0).contains(number)).ok_or_else(|| "it must be a number in [0, 1)".to_owned())
}

/// Parses a whole number of at least 1.
pub(crate) fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("it must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(_) => Err("it must be a whole number of at least 1".to_owned()),
    }
}
