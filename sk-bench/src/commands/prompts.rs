//! `swiss-knife prompts`: lists, samples and exports evaluation prompts.

// Doc comments of arguments are help texts, in which brackets mark optional parts.
#![allow(rustdoc::broken_intra_doc_links)]

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;
use sk_report::grid::Grid;

use crate::args::{choice, positive};
use crate::prompt_sets::{self, Allocation, Prompt, PromptFormat};
use crate::record_file::spare;
use crate::{Error, output, terminal};

/// Maximum number of values of a label that are listed with their counts. For a label with more,
/// only the number of values is shown.
const FEW: usize = 6;

const EXAMPLES: &str = "\
Examples:
  # The 120 prompts of the paper's frontier, from a folder with hh-rlhf/ and truthfulqa/
  swiss-knife prompts export paper-120 --data data -o paper-120.jsonl

  # What is in a file, by category
  swiss-knife prompts list TruthfulQA.csv --by category

  # 60 prompts, as many safe as unsafe ones
  swiss-knife prompts sample xstest_prompts.csv --count 60 --by label --seed 42 -o prompts.jsonl

Files are HH-RLHF (.jsonl, .jsonl.gz), TruthfulQA and XSTest (CSV), or lines of {\"prompt\": …}.";

/// What to do with prompts.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES, disable_help_subcommand = true)]
pub enum PromptsCommand {
    /// Count prompts and the values of their labels.
    List(ListArgs),
    /// Write all prompts as JSON lines.
    Export(PromptsExportArgs),
    /// Draw prompts, stratum by stratum, and write them as JSON lines.
    Sample(SampleArgs),
}

/// Where prompts come from.
#[derive(Debug, Args)]
struct SourceArgs {
    /// Files, or the paper's sets: paper-120, paper-60.
    #[arg(value_name = "FILE|SET", required = true)]
    sources: Vec<String>,
    /// Format of the files, if it cannot be told from them.
    #[arg(long, value_parser = choice(PromptFormat::ALL))]
    format: Option<PromptFormat>,
    /// Folder of the data sets that paper-120 and paper-60 are rebuilt from [default:
    /// $SWISS_KNIFE_DATA].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Options of `prompts list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Count the values of this label.
    #[arg(long, value_name = "LABEL")]
    by: Option<String>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Options of `prompts export`.
#[derive(Debug, Args)]
pub struct PromptsExportArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// File to write; standard output if not given, or `-`.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Options of `prompts sample`.
#[derive(Debug, Args)]
pub struct SampleArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Prompts to draw.
    #[arg(short = 'n', long, value_name = "PROMPTS", value_parser = positive)]
    count: usize,
    /// Label whose values are the strata; one stratum if not given.
    #[arg(long, value_name = "LABEL")]
    by: Option<String>,
    /// How many prompts each stratum gives.
    #[arg(long, value_name = "HOW", default_value = "balanced", value_parser = choice(Allocation::ALL), requires = "by")]
    allocation: Allocation,
    /// Seed of the draw.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// File to write; standard output if not given, or `-`.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Lists, exports or samples prompts.
pub(crate) fn run(command: &PromptsCommand) -> Result<(), Error> {
    match command {
        PromptsCommand::List(args) => list(args),
        PromptsCommand::Export(args) => {
            let prompts = args.source.load(args.output.as_deref())?;
            write(&prompts, args.output.as_deref())
        }
        PromptsCommand::Sample(args) => {
            let SampleArgs { source, count, by, allocation, seed, output } = args;
            let prompts = source.load(output.as_deref())?;
            write(&prompt_sets::sample(&prompts, *count, by.as_deref(), *allocation, *seed)?, output.as_deref())
        }
    }
}

impl SourceArgs {
    /// Loads the prompts, and checks that `output` is not one of their files.
    fn load(&self, output: Option<&Path>) -> Result<Vec<Prompt>, Error> {
        if let Some(output) = output {
            spare(self.sources.iter().flat_map(|source| prompt_sets::files(source, self.data.as_deref())), output)?;
        }
        prompt_sets::load_all(&self.sources, self.format, self.data.as_deref())
    }
}

fn write(prompts: &[Prompt], output: Option<&Path>) -> Result<(), Error> {
    let mut lines = Vec::new();
    prompt_sets::write(prompts, &mut lines).map_err(Error::Output)?;
    output::write_or_print(output.unwrap_or(Path::new("-")), lines)
}

/// The output of `list` for one file or set.
#[derive(Serialize)]
struct Listing<'a> {
    source: &'a str,
    prompts: usize,
    different: usize,
    labels: BTreeMap<String, BTreeMap<String, usize>>,
}

fn list(args: &ListArgs) -> Result<(), Error> {
    let mut listings = Vec::new();
    let SourceArgs { sources, format, data } = &args.source;
    for source in sources {
        let prompts = prompt_sets::load(source, *format, data.as_deref())?;
        let mut labels: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
        for (label, value) in prompts.iter().flat_map(|prompt| &prompt.labels) {
            if args.by.as_ref().is_none_or(|by| by == label) {
                *labels.entry(label.clone()).or_default().entry(value.clone()).or_default() += 1;
            }
        }
        if let Some(by) = args.by.as_ref().filter(|by| !labels.contains_key(*by)) {
            let known: BTreeSet<&str> = prompts.iter().flat_map(|prompt| prompt.labels.keys()).map(String::as_str).collect();
            let hint = crate::suggest::hint(by, known);
            return Err(Error::Input(format!("prompts of {source} have no label \"{by}\"; {hint}")));
        }
        let different = prompts.iter().map(|prompt| &prompt.prompt).collect::<HashSet<_>>().len();
        listings.push(Listing { source, prompts: prompts.len(), different, labels });
    }
    output::print(if args.json { output::pretty_json(&listings)? } else { table(&listings, args.by.is_some()) })
}

fn table(listings: &[Listing<'_>], in_full: bool) -> String {
    let mut grid = Grid::new(["source", "prompts", "different", "labels"]).numbers(1..3);
    for Listing { source, prompts, different, labels } in listings {
        let describe = |(label, values): (&String, &BTreeMap<String, usize>)| {
            if values.len() > FEW && !in_full {
                return format!("{label}: {} values", values.len());
            }
            let counts: Vec<String> = values.iter().map(|(value, count)| format!("{value} {count}")).collect();
            format!("{label}: {}", counts.join(", "))
        };
        let labels: Vec<String> = labels.iter().map(describe).collect();
        grid.row([(*source).to_owned(), prompts.to_string(), different.to_string(), labels.join("\n")]);
    }
    grid.render(terminal::columns())
}
