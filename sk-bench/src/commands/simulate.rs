//! `swiss-knife simulate`: illustrates the theorems with simulations, and checks them on every
//! datum shown.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::json;

use crate::args::{TableFormat, choice};
use crate::{Error, output, terminal};
use sk_report::simulate::{DEFECTS, Exhibit, STUDIES, exhibits, page};
use sk_report::table::Table;

const EXAMPLES: &str = "\
Examples:
  # Every study, as tables
  swiss-knife simulate

  # The figures, as one HTML file
  swiss-knife simulate --html simulations.html

  # One of them, with all digits
  swiss-knife simulate --study dispersion --format csv

  # Test the checks: prints the theorem and the datum, and exits with status 1
  swiss-knife simulate --break bound

Studies: contamination (Theorem 2), influence (Theorem 3 i, ii), dispersion (real, shuffled and
zero σ), frontier (Theorem 3 iii).";

/// Options of `simulate`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct SimulateArgs {
    /// Only this study; may be given several times.
    #[arg(long = "study", value_name = "NAME", value_parser = PossibleValuesParser::new(STUDIES))]
    studies: Vec<String>,
    /// Seeds every draw.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// How tables are printed.
    #[arg(long, value_name = "FORMAT", default_value = "plain")]
    format: TableFormat,
    /// Write figures and tables to this file instead, which needs nothing but a browser. `-` is
    /// standard output.
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    html: Option<PathBuf>,
    /// Introduce a known error, to test that the checks detect it.
    #[arg(long = "break", value_name = "WHAT", value_parser = choice(&DEFECTS))]
    broken: Option<&'static str>,
}

/// Runs the studies and prints their tables, or writes them as a page.
pub(crate) fn run(args: &SimulateArgs) -> Result<(), Error> {
    let wanted = |name: &str| args.studies.is_empty() || args.studies.iter().any(|study| study == name);
    if let Some(broken) = args.broken.filter(|broken| !wanted(broken)) {
        return Err(Error::Input(format!("--break changes the study {broken}, which --study does not select; select it too")));
    }
    let exhibits = exhibits(args.seed, wanted, args.broken)?;
    match &args.html {
        Some(path) => output::write_or_print(path, page(&exhibits, args.seed).html()?),
        None => output::print_lines(&print(&exhibits, args)),
    }
}

fn print(exhibits: &[Exhibit], args: &SimulateArgs) -> String {
    let tables: Vec<&Table> = exhibits.iter().flat_map(|exhibit| &exhibit.tables).collect();
    let joined = |of: fn(&Table) -> String| tables.iter().map(|table| of(table)).collect::<Vec<_>>().join("\n");
    match args.format {
        TableFormat::Plain => {
            let shown = tables.iter().filter(|table| !table.appendix);
            shown.map(|table| table.plain(terminal::columns())).collect::<Vec<_>>().join("\n")
        }
        TableFormat::Csv => joined(Table::csv),
        TableFormat::Latex => joined(Table::latex),
        TableFormat::Json => format!("{:#}\n", json!({ "seed": args.seed, "tables": tables })),
    }
}
