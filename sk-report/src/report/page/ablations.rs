use super::columns::{distinct, intervals, numbers, rows_of, texts};
use super::{PageContext, with_tables};
use crate::chart::{Axis, Estimate, Intervals};
use crate::page::{Figure, Section};
use crate::table::Table;

/// Arms against each other, with intervals and p-values.
pub(super) fn section(context: &PageContext<'_>) -> Section {
    let mut section = Section::new("ablations", "Ablations");
    match context.report.table("normalization") {
        Some(table) => section = section.figure(normalization(table)).table(table.clone()),
        None => {
            section = section.missing(format!(
                "No arm without normalisation: the results have no method {}_no_cbn or no-cbn.",
                context.report.reference
            ));
        }
    }
    for ablation in &context.results.ablations {
        let tables = context.report.tables.iter().filter(|table| table.title.starts_with(&format!("{}: ", ablation.name)));
        for table in tables {
            if table.column("first − second").is_some() {
                section = section.figure(arms(&ablation.name, table));
            }
            section = section.table(table.clone());
        }
    }
    if context.results.ablations.is_empty() {
        section = section.missing("No ablations at fixed weights: the folder of results has no judged_ablations.csv.");
    }
    with_tables(section, context, &["conventions"])
}

fn normalization(table: &Table) -> Figure {
    let rows: Vec<String> = texts(table, "").iter().map(|measure| measure.replace("f1", "F1")).collect();
    let chart = Intervals::new(&rows, Axis::new("with − without normalisation (score, 0 to 1)"))
        .series("by cell, percentile", &estimates(table, "95% percentile"))
        .series("by cell, BCa", &estimates(table, "95% BCa"))
        .series("by prompt, percentile", &estimates(table, "95%, prompts"));
    Figure::new("with-normalization", "What normalisation changes", chart)
        .caption(format!(
            "Mean paired difference over {} cells with 95% bootstrap intervals. By cell takes the cells of a prompt for independent, by prompt does not.",
            texts(table, "pairs").first().map_or("0", String::as_str)
        ))
        .see("normalization")
}

fn arms(name: &str, table: &Table) -> Figure {
    let figure = Figure::panels(table.id.clone(), format!("{name}: arms against each other"));
    let n: Vec<f64> = numbers(table, "pairs");
    let range = |ends: &[f64]| (ends.iter().copied().fold(f64::INFINITY, f64::min), ends.iter().copied().fold(0.0, f64::max));
    let (least, most) = range(&n);
    let n = if least < most { format!("{least} to {most}") } else { most.to_string() };
    distinct(table, "first − second")
        .into_iter()
        .fold(figure, |figure, pair| {
            let own = rows_of(table, "first − second", &pair);
            let p = numbers(&own, "p, Holm");
            let rows: Vec<String> =
                texts(&own, "measure").into_iter().zip(p).map(|(measure, p)| format!("{measure} ({})", significance(p))).collect();
            let chart = Intervals::new(&rows, Axis::new("difference in score")).series(&pair, &estimates(&own, "95% percentile"));
            figure.panel(pair, chart)
        })
        .caption(format!(
            "Mean paired difference, scores from 0 to 1, with 95% percentile bootstrap intervals, {n} pairs; p of the signed-rank test after Holm's \
             correction over the pairs of arms."
        ))
        .see(table.id.clone())
}

/// A p-value in two decimals.
fn significance(p: f64) -> String {
    if p < 0.005 { "p < 0.01".to_owned() } else { format!("p = {p:.2}") }
}

fn estimates(table: &Table, heading: &str) -> Vec<Estimate> {
    let pairs = numbers(table, "Δ").into_iter().zip(intervals(table, heading));
    pairs.map(|(value, interval)| Estimate { value, interval }).collect()
}

#[cfg(test)]
mod tests {
    use super::significance;

    #[test]
    fn no_p_value_is_zero() {
        assert_eq!([0.6149, 0.0051, 0.0049, 0.0].map(significance), ["p = 0.61", "p = 0.01", "p < 0.01", "p < 0.01"]);
    }
}
