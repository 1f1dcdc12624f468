use super::verdict::p_value;
use super::{PageContext, with_tables};
use crate::chart::{Axis, Intervals, Style};
use crate::page::{Figure, Section};
use crate::report::distinct;
use crate::report::tables::{AblationRows, ArmRow, NormalizationRow};
use crate::stats::Interval;

/// The section on ablations: pairwise differences of arms with confidence intervals and p-values.
pub(super) fn section(context: &PageContext<'_>) -> Section {
    let rows = &context.report.rows;
    let mut section = Section::new("ablations", "Ablations");
    match context.report.table("normalization") {
        Some(table) => section = section.figure(normalization(&rows.normalization)).table(table.clone()),
        None => {
            section = section.missing(format!(
                "No arm without normalisation: the results have no method {}_no_cbn or no-cbn.",
                context.report.reference
            ));
        }
    }
    for (ablation, AblationRows { id, rows }) in context.results.ablations.iter().zip(&rows.ablations) {
        // An ablation of one arm has no pair.
        if !rows.is_empty() {
            section = section.figure(arms(&ablation.name, id, rows));
        }
        section = with_tables(section, context, &[&format!("{id}-means"), id]);
    }
    if context.results.ablations.is_empty() {
        section = section.missing("No ablations at fixed weights: the folder of results has no judged_ablations.csv.");
    }
    with_tables(section, context, &["conventions"])
}

fn normalization(rows: &[NormalizationRow]) -> Figure {
    let names = rows.iter().map(|row| row.measure.replace("f1", "F1"));
    let of = |read: fn(&NormalizationRow) -> Interval| rows.iter().map(|row| (row.difference, read(row))).collect::<Vec<_>>();
    let chart = Intervals::new(names, Axis::new("with − without normalisation (score, 0 to 1)"))
        .series("by prompt, percentile", Style::Tone(0), &of(|row| row.by_prompt))
        .series("by cell, percentile", Style::Tone(1), &of(|row| row.percentile))
        .series("by cell, BCa", Style::Tone(2), &of(|row| row.bca));
    Figure::new("with-normalization", "What normalisation changes", chart)
        .caption(format!(
            "Mean paired difference over {} cells with 95% bootstrap intervals. By cell takes the cells of a prompt for independent, by prompt does not.",
            rows.first().map_or(0, |row| row.contrast.n())
        ))
        .see("normalization")
}

fn arms(name: &str, id: &str, rows: &[ArmRow]) -> Figure {
    let n = rows.iter().map(|row| row.contrast.n());
    let n = match (n.clone().min(), n.max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (_, most) => most.unwrap_or(0).to_string(),
    };
    let panels = distinct(rows.iter().map(|row| row.arms.as_str())).into_iter().map(|pair| {
        let own: Vec<&ArmRow> = rows.iter().filter(|row| row.arms == pair).collect();
        let names = own.iter().map(|row| match row.holm.is_nan() {
            true => row.measure.clone(),
            false => format!("{} ({})", row.measure, p_value(row.holm)),
        });
        let estimates: Vec<(f64, Interval)> = own.iter().map(|row| (row.contrast.mean(), row.percentile)).collect();
        (pair, Intervals::new(names, Axis::new("difference in score")).series(pair, Style::Tone(0), &estimates))
    });
    Figure::panels(id, format!("{name}: arms against each other"), panels)
        .caption(format!(
            "Mean paired difference, scores from 0 to 1, with 95% percentile bootstrap intervals, {n} pairs; p of the signed-rank test after Holm's \
             correction over the pairs of arms."
        ))
        .see(id)
}
