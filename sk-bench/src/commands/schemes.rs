//! `swiss-knife schemes`: the methods that ship, slot by slot.

use std::io::Write;

use clap::Args;
use comfy_table::{ContentArrangement, Table};

use crate::Error;
use crate::explain::RULED;
use crate::scheme::{SHIPPED, Shipped, Summary};
use crate::suggest;

const EXAMPLES: &str = "\
Examples:
  # The table of methods
  swiss-knife schemes

  # The file behind one of them, to start your own from
  swiss-knife schemes mod > mine.toml

  # Run one
  swiss-knife generate \"Why is the sky blue?\" --scheme args -w helpful=0.7,harmless=0.3

K is the number of adapters. Cost is in forward passes and their rows; no pass reads the context again.";

/// Options of `schemes`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct SchemesArgs {
    /// Print the file of this scheme.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Print JSON instead of a table.
    #[arg(long, conflicts_with = "name")]
    json: bool,
}

#[derive(serde::Serialize)]
struct Row {
    name: &'static str,
    #[serde(flatten)]
    summary: Summary,
}

/// Prints the table, or a file, on standard output.
///
/// # Errors
/// When no scheme has the name, or standard output cannot be written.
pub fn run(args: &SchemesArgs) -> Result<(), Error> {
    let mut out = anstream::stdout().lock();
    if let Some(name) = &args.name {
        let names: Vec<&str> = SHIPPED.iter().map(|scheme| scheme.name).collect();
        let found = Shipped::named(name)
            .ok_or_else(|| Error::Usage(format!("unknown scheme \"{name}\"; {}", suggest::hint(name, &names))))?;
        return out.write_all(found.text.as_bytes()).map_err(Error::Output);
    }
    let mut rows = Vec::with_capacity(SHIPPED.len());
    for scheme in SHIPPED {
        rows.push(Row { name: scheme.name, summary: scheme.config()?.summary() });
    }
    let written = if args.json {
        let json = serde_json::to_string_pretty(&rows).expect("strings always serialise");
        writeln!(out, "{json}")
    } else {
        writeln!(out, "{}", table(&rows))
    };
    written.map_err(Error::Output)
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(RULED).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["scheme", "method", "Π", "ρ", "𝓑", "𝓝", "𝓐", "𝓢", "forward passes"]);
    for Row { name, summary } in rows {
        let Summary { method, proposal, granularity, blades, normalizer, aggregator, selector, passes, source } = summary;
        let method = if source.is_empty() { method.clone() } else { format!("{method} ({source})") };
        table.add_row([name, &*method, proposal, granularity, blades, normalizer, aggregator, selector, &passes.to_string()]);
    }
    table.trim_fmt()
}
