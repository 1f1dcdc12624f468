//! `swiss-knife report`: tables of judged results, and an HTML page with them.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::args::{TableFormat, at_most, written};
use crate::progress::Loading;
use crate::record_file::spare;
use crate::{Error, output, terminal};
use sk_report::record::traces_of;
use sk_report::report::{RawResults, Report, Resampling};
use sk_report::settings::beside;

const EXAMPLES: &str = "\
Examples:
  # Every table, on the terminal
  swiss-knife report results

  # One of them, as LaTeX
  swiss-knife report results --table methods --format latex

  # All of them as CSV and LaTeX, with report.txt and report.json
  swiss-knife report results --out tables

  # One HTML page, with responses and times of the sweep
  swiss-knife report results --records frontier.jsonl --html report.html

DIR holds judged_frontier.csv, with one row per method, weight vector and prompt, and may hold
judged_ablations.csv and candidate_steps.jsonl; each may be gzipped. For the paper's own results,
the tables \"reproduction\" and \"differences\" compare the published figures with the cells.";

/// The default reference methods. The first one that occurs in the results is used.
const REFERENCES: [&str; 2] = ["swiss", "swiss-knife"];

/// Maximum number of resamples. An interval with this many takes 80 MB, and more would not change
/// any printed digit.
const MOST_RESAMPLES: usize = 10_000_000;

/// Options of `report`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct ReportArgs {
    /// The folder of judged results, as `judge table` writes it, or of the paper's raw results.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The method that the others are compared with [default: swiss or swiss-knife, the first that
    /// the results have].
    #[arg(long, value_name = "METHOD")]
    reference: Option<String>,
    /// Resamples of every bootstrap interval.
    #[arg(long, value_name = "COUNT", default_value_t = Resampling::default().resamples, value_parser = at_most::<MOST_RESAMPLES>)]
    resamples: usize,
    /// Seed of the resamples.
    #[arg(long, default_value_t = Resampling::default().seed)]
    seed: u64,
    /// Print only this table; may be repeated.
    #[arg(long = "table", value_name = "NAME")]
    tables: Vec<String>,
    /// How to print.
    #[arg(long, value_name = "FORMAT", default_value = "plain")]
    format: TableFormat,
    /// Write the tables to this folder instead, as CSV and LaTeX, with report.txt and report.json.
    ///
    /// With --table, only those are written.
    #[arg(long, value_name = "DIR", conflicts_with = "format", value_parser = written())]
    out: Option<PathBuf>,
    /// Write one HTML file instead: every table, figures drawn from them, and examples. `-` is
    /// standard output.
    ///
    /// The page loads nothing from anywhere. With --out, both are written.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tables", "format"])]
    html: Option<PathBuf>,
    /// The title of the page.
    #[arg(long, value_name = "TEXT", requires = "html", default_value = "Swiss-Knife: report on judged results")]
    title: String,
    /// The records of the sweep that was judged. With the traces beside them they add responses,
    /// throughput, champion entropy and the influence of blades.
    #[arg(long, value_name = "FILE")]
    records: Option<PathBuf>,
}

/// Reads the results, computes the tables, and prints or writes them.
pub(crate) fn run(args: &ReportArgs) -> Result<(), Error> {
    if let Some(html) = &args.html {
        let of_sweep = |records: &PathBuf| [records.clone(), traces_of(records), beside(records)];
        let plain = RawResults::files(&args.folder).chain(args.records.iter().flat_map(of_sweep));
        spare(plain.flat_map(|path| [path.with_added_extension("gz"), path]), html)?;
    }
    let loading = Loading::new(false);
    loading.show("reading the results");
    let mut results = RawResults::read(&args.folder)?;
    if let Some(records) = &args.records {
        results = results.with_records(records)?;
    }
    let resampling = Resampling { resamples: args.resamples, seed: args.seed };
    let methods: Vec<&str> = results.sweep.methods.iter().map(|method| method.name.as_str()).collect();
    let usual = || REFERENCES.into_iter().find(|name| methods.contains(name));
    let reference = args.reference.as_deref().or_else(usual).ok_or_else(|| {
        let methods = methods.join(", ");
        Error::Input(format!("name the method that the others are compared with, by --reference; the results have {methods}"))
    })?;
    loading.show("computing the tables");
    let mut report = Report::of(&results, reference, resampling)?;
    drop(loading);
    if !args.tables.is_empty() {
        choose(&mut report, &args.tables)?;
    }
    if args.html.is_none() && args.out.is_none() {
        return print(&report, args.format);
    }
    let mut files = Vec::new();
    if let Some(path) = &args.html {
        let page = report.page(&args.title, &results)?.html()?;
        if path.as_os_str() == "-" {
            output::write_or_print(path, page)?;
        } else {
            files.push((path.clone(), page.into_bytes()));
        }
    }
    if let Some(folder) = &args.out {
        fs::create_dir_all(folder).map_err(Error::writing(folder))?;
        files.extend(table_files(&report, folder)?);
    }
    output::write_together(&files)
}

/// Keeps only the named tables, including those of the appendix.
fn choose(report: &mut Report, names: &[String]) -> Result<(), Error> {
    let known: Vec<&str> = report.tables.iter().map(|table| table.id.as_str()).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Error::Input(format!("no table \"{name}\" in this report; {}", crate::suggest::hint(name, &known))));
    }
    report.tables.retain(|table| names.contains(&table.id));
    report.tables.iter_mut().for_each(|table| table.appendix = false);
    Ok(())
}

fn print(report: &Report, format: TableFormat) -> Result<(), Error> {
    let joined = |of: fn(&sk_report::report::Table) -> String| report.tables.iter().map(of).collect::<Vec<_>>().join("\n");
    let text = match format {
        TableFormat::Plain => report.plain(terminal::columns()),
        TableFormat::Csv => joined(sk_report::report::Table::csv),
        TableFormat::Latex => joined(sk_report::report::Table::latex),
        TableFormat::Json => output::pretty_json(report)? + "\n",
    };
    output::print_lines(&text)
}

/// Returns the files of the tables, with their contents.
fn table_files(report: &Report, folder: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>, Error> {
    let json = output::pretty_json(report)? + "\n";
    let mut files = vec![("report.txt".to_owned(), report.plain(terminal::PLAIN)), ("report.json".to_owned(), json)];
    for table in &report.tables {
        files.extend([(format!("{}.csv", table.id), table.csv()), (format!("{}.tex", table.id), table.latex())]);
    }
    Ok(files.into_iter().map(|(name, text)| (folder.join(name), text.into_bytes())).collect())
}
