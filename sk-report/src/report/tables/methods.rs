use std::collections::HashSet;

use super::{At, LEVEL, Ledger, Table, TableContext, few_prompts, mean_of};
use crate::stats::{Bootstrap, Clusters, F1, Interval, mean_axes};
use crate::table::Kind;

/// The means of a method over all weight vectors.
#[derive(Debug, Clone)]
pub(in crate::report) struct MethodRow {
    pub(in crate::report) name: String,
    /// The number of cells with at least one objective.
    pub(in crate::report) n: usize,
    /// The number of their prompts.
    pub(in crate::report) prompts: usize,
    /// The mean of each objective, NaN if no cell has it.
    pub(in crate::report) axes: Vec<f64>,
    /// The confidence interval of each mean, from a bootstrap over prompts.
    pub(in crate::report) intervals: Vec<Interval>,
    /// F1 in the order of [`F1::ALL`].
    pub(in crate::report) f1: [f64; 3],
    /// The means of the rubrics that have a column.
    rubrics: Vec<f64>,
}

/// Computes one row per method, by descending F1.
pub(super) fn rows(context: &TableContext<'_>, ledger: &mut Ledger) -> Vec<MethodRow> {
    let objectives = &context.sweep.objectives;
    let (names, columns) = (objectives.names(), objectives.columns());
    let row = |method: &crate::report::Method| {
        let cells = context.sweep.axes(method);
        let mut axes = mean_axes(cells.concat());
        // Without cells, every objective is NaN.
        axes.resize(names.len(), f64::NAN);
        let interval = |axis: usize| {
            let scores = method.cells.iter().map(|cell| (cell.scores.objectives[axis], cell.prompt));
            let (scores, prompts): (Vec<f64>, Vec<u32>) = scores.filter(|(score, _)| !score.is_nan()).unzip();
            let clusters = Clusters::of(&scores, &prompts);
            Bootstrap::of_clustered_mean(&clusters, context.resampling.resamples, context.resampling.seed).percentile(LEVEL)
        };
        let judged = method.cells.iter().filter(|cell| cell.scores.objectives.iter().any(|score| !score.is_nan()));
        let row = MethodRow {
            name: method.name.clone(),
            n: cells.iter().map(Vec::len).sum(),
            prompts: judged.map(|cell| cell.prompt).collect::<HashSet<_>>().len(),
            intervals: (0..names.len()).map(interval).collect(),
            axes,
            f1: F1::ALL.map(|f1| f1.of(&cells, 0.0)),
            rubrics: columns.iter().map(|&rubric| mean_of(&method.cells, |cell| cell.scores.rubrics[rubric])).collect(),
        };
        for source in ["tab:full-methods", "tab:main"] {
            let at = At { source, subject: &method.name, part: "", reading: "" };
            ledger.note(&at, "n", row.n as f64);
            ledger.note(&at, "f1", row.f1[0]);
            names.iter().zip(&row.axes).for_each(|(name, value)| ledger.note(&at, name, *value));
        }
        let at = At { source: "sec:main", subject: &method.name, part: "", reading: "" };
        let labels = columns.iter().map(|&rubric| objectives.rubrics[rubric].label());
        labels.zip(&row.rubrics).for_each(|(label, mean)| ledger.note(&at, &label, *mean));
        ledger.note(&At { source: "tab:perconfig", ..at }, "mean", row.f1[1]);
        row
    };
    context.sweep.methods.iter().map(row).collect()
}

/// The table of means over all weight vectors, with F1 under its three definitions.
pub(super) fn table(context: &TableContext<'_>, rows: &[MethodRow]) -> Table {
    let objectives = &context.sweep.objectives;
    let names = objectives.names();
    let labels = objectives.columns().into_iter().map(|rubric| objectives.rubrics[rubric].label());
    Table::of("methods", "Methods over the whole sweep", rows)
        .column("method", Kind::Text, |row| row.name.as_str())
        .column("n", Kind::Count, |row| row.n)
        .columns(names.clone(), Kind::Number(3), |row, axis| row.axes[axis])
        .columns(F1::ALL.map(|f1| format!("F1 {}", f1.name())), Kind::Number(3), |row, f1| row.f1[f1])
        .columns(labels, Kind::Number(3), |row, rubric| row.rubrics[rubric])
        .columns(names.iter().map(|name| format!("{name} 95%, prompts")), Kind::Interval(3), |row, axis| row.intervals[axis])
        .build()
        .note(format!("{}.", objectives.definitions().join("; ")))
        .note("A blank rubric is left out of its mean, and an axis whose rubrics are all blank out of the mean of that axis and of the cell's F1.")
        .note("n counts cells with an axis. Intervals are of the means of the axes, by resampling whole prompts.")
        .notes(few_prompts(rows.iter().map(|row| row.prompts)))
}
