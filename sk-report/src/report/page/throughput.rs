use super::columns::{numbers, texts};
use super::{PageContext, with_tables};
use crate::chart::{Axis, Bars};
use crate::page::{Figure, Section};
use crate::table::Table;

/// What responses took.
pub(super) fn section(context: &PageContext<'_>) -> Section {
    let section = Section::new("throughput", "Throughput");
    let Some(table) = context.report.table("throughput") else {
        return section.missing("No times: judged results have none. The records of the sweep do.");
    };
    with_tables(section.figure(speed(table)).figure(parts(table)), context, &["throughput", "settings"])
}

fn speed(table: &Table) -> Figure {
    let schemes = texts(table, "scheme");
    let chart = Bars::new(&schemes, Axis::new("tokens of responses per second of wall time"))
        .series("tokens/s", &numbers(table, "tokens/s"));
    let n: Vec<String> = schemes.iter().zip(texts(table, "responses")).map(|(scheme, n)| format!("{scheme} {n}")).collect();
    Figure::new("tokens-per-second", "Tokens per second", chart)
        .caption(format!("Tokens over wall time, one response at a time; n responses = {}.", n.join(", ")))
        .see("throughput")
}

fn parts(table: &Table) -> Figure {
    let empty = Bars::new(&texts(table, "scheme"), Axis::new("share of the time in steps").percent().range([0.0, 1.0])).stacked();
    let chart = ["draft", "score", "select", "commit"]
        .into_iter()
        .fold(empty, |chart, part| chart.series(part, &numbers(table, &format!("{part} %"))));
    Figure::new("time-by-part", "Where the time goes", chart)
        .caption("Draft: Π_prop. Score: π_B and the blades. Select: 𝓝, 𝓐 and 𝓢. Commit: keeping the winner.")
        .see("throughput")
}
