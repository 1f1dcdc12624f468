use super::columns::{distinct, numbers, rows_of, texts};
use super::{PageContext, with_tables};
use crate::chart::{Axis, Bars};
use crate::page::{Figure, Section};
use crate::table::Table;

/// How far blades spread, and what influence follows.
pub(super) fn section(context: &PageContext<'_>) -> Section {
    let mut section = Section::new("mechanism", "Mechanism");
    if let Some(table) = context.report.table("spreads") {
        section = section
            .paragraph(
                "A blade whose raw scores spread further within a batch weighs more in their sum, whatever its weight: its share of influence is \
                 w·std(μ) over the sum of all (Theorem 3(i)). Normalisation makes the shares equal to the weights.",
            )
            .figure(spread(table));
    } else {
        section = section.missing(
            "No spreads: there are neither candidate steps nor traces of steps in which several candidates were scored.",
        );
    }
    if context.report.table("spreads").is_some() && context.report.table("scales").is_none() {
        section = section.missing(
            "No scale ratio of tournament and blade terms: traces of a sweep do not hold the two terms of the champion's logit.",
        );
    }
    with_tables(section, context, &["spreads", "scales"])
}

fn spread(table: &Table) -> Figure {
    // One blade by itself has all the influence, and its scores may be in another unit.
    let several = |arm: &String| rows_of(table, "arm", arm).rows.len() > 1;
    let all = distinct(table, "arm");
    let arms: Vec<String> = all.iter().filter(|arm| several(arm)).cloned().collect();
    let arms = if arms.is_empty() { all } else { arms };
    let of_arms = |arm: &String| distinct(&rows_of(table, "arm", arm), "blade");
    let blades: Vec<String> =
        distinct(table, "blade").into_iter().filter(|blade| arms.iter().any(|arm| of_arms(arm).contains(blade))).collect();
    let chart = |heading: &str, axis: Axis| {
        arms.iter().fold(Bars::new(&blades, axis), |chart, arm| {
            let own = rows_of(table, "arm", arm);
            let (names, values) = (texts(&own, "blade"), numbers(&own, heading));
            let at = |blade: &String| names.iter().position(|name| name == blade).map_or(f64::NAN, |place| values[place]);
            chart.series(arm, &blades.iter().map(at).collect::<Vec<_>>())
        })
    };
    Figure::panels("spread-and-influence", "Spread and influence of each blade")
        .panel(
            "Spread of raw scores",
            chart("median std(μ)", Axis::new("median std(μ), reward units")),
        )
        .panel("Influence share at equal weights", chart("share at equal weights %", Axis::new("share of the sum").percent()))
        .caption("Median standard deviation (n − 1) of a blade's raw scores within a batch, over the steps it was seated at, and the mean share of influence it implies, where there are several.")
        .see("spreads")
}
