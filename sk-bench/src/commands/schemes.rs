//! `swiss-knife schemes`: shows the bundled schemes, slot by slot, and measures their cost.

mod measure;

use clap::Args;
use sk_report::grid::Grid;

use crate::args::Sources;
use crate::scheme::{SHIPPED, Shipped, Summary, json_schema};
use crate::{Error, message, output, suggest, terminal};
use measure::MeasureArgs;

const EXAMPLES: &str = "\
Examples:
  # The table of methods
  swiss-knife schemes

  # The file behind one of them, to start your own from
  swiss-knife schemes mod > mine.toml

  # All of one, with what its file leaves out
  swiss-knife schemes mod --json

  # What an editor completes and checks scheme files with
  swiss-knife schemes --schema > scheme.schema.json

  # Run one
  swiss-knife generate \"Why is the sky blue?\" --scheme args -w helpful=0.7,harmless=0.3

  # What each costs here, in turns
  swiss-knife schemes --measure

K is the number of adapters. Cost is in forward passes and their rows; no pass reads the context
again.";

/// Options of `schemes`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct SchemesArgs {
    /// Print the file of this scheme, or measure it alone.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Print JSON instead of a table; of one scheme, the whole of it at the published operating
    /// point.
    #[arg(long)]
    json: bool,
    /// Print the JSON Schema of scheme files.
    #[arg(long, conflicts_with_all = ["name", "json", "measure"])]
    schema: bool,
    #[command(flatten)]
    measure: MeasureArgs,
}

#[derive(serde::Serialize)]
struct SchemeRow {
    name: &'static str,
    #[serde(flatten)]
    summary: Summary,
}

/// Prints the table, a file, a whole scheme, the schema, or a measurement on standard output.
pub(crate) fn run(args: &SchemesArgs) -> Result<(), Error> {
    let named = args.name.as_deref().map(shipped).transpose()?;
    if args.measure.measure {
        let schemes: Vec<&Shipped> = named.map_or_else(|| SHIPPED.iter().collect(), |scheme| vec![scheme]);
        return measure::run(&args.measure, &schemes, args.json);
    }
    if args.measure.models != Sources::default() {
        return Err(Error::Input(
            "options for models, --device and --precision need --measure; add it, or leave them out".to_owned(),
        ));
    }
    if args.schema {
        return output::print(output::pretty_json(&json_schema())?);
    }
    match named {
        Some(scheme) if args.json => return output::print(output::pretty_json(&scheme.spec()?)?),
        Some(scheme) => return output::print_lines(scheme.text),
        None => {}
    }
    let row = |scheme: &Shipped| Ok(SchemeRow { name: scheme.name, summary: scheme.spec()?.summary() });
    let rows: Vec<SchemeRow> = SHIPPED.iter().map(row).collect::<Result<_, Error>>()?;
    if args.json {
        return output::print(output::pretty_json(&rows)?);
    }
    output::print(table(&rows))?;
    message::note("N is that of the published operating point, `hhh`; `--preset` and the model may set another");
    Ok(())
}

fn shipped(name: &str) -> Result<&'static Shipped, Error> {
    Shipped::named(name).ok_or_else(|| {
        let hint = suggest::hint(name, SHIPPED.iter().map(|scheme| scheme.name));
        Error::Input(format!("unknown scheme \"{name}\"; {hint}"))
    })
}

fn table(rows: &[SchemeRow]) -> String {
    let mut grid = Grid::new(["scheme", "method", "Π", "ρ", "𝓑", "𝓝", "𝓐", "𝓢", "forward passes"]);
    for SchemeRow { name, summary } in rows {
        let Summary { method, proposal, granularity, blades, normalizer, aggregator, selector, passes, source } = summary;
        let method = if source.is_empty() { method.clone() } else { format!("{method} ({source})") };
        grid.row([name, &*method, proposal, granularity, blades, normalizer, aggregator, selector, &passes.to_string()]);
    }
    grid.render(terminal::columns())
}
