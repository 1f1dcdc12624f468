use super::{At, LEVEL, Ledger, Table, TableContext, few_prompts};
use crate::report::{Cell, Contrast, Method, WeightVector};
use crate::stats::{Bootstrap, Interval, ZeroRule, harmonic_mean, holm, mean_axes};
use crate::table::Kind;

/// The means of a method at a weight vector.
#[derive(Debug, Clone)]
pub(in crate::report) struct PointRow {
    pub(in crate::report) method: String,
    pub(in crate::report) point: WeightVector,
    /// The number of judged cells.
    n: usize,
    /// The mean of each objective, NaN if no cell has it, and its confidence interval from a
    /// bootstrap over prompts.
    pub(in crate::report) axes: Vec<f64>,
    pub(in crate::report) intervals: Vec<Interval>,
    /// F1 of these means, and its confidence interval.
    pub(in crate::report) f1: f64,
    pub(in crate::report) f1_interval: Interval,
    /// The p-value of the signed-rank test against the reference at the same weight vector, paired
    /// by cell and corrected for the number of such tests; NaN if there was no test.
    pub(in crate::report) p: f64,
}

impl PointRow {
    /// Returns whether every objective was judged, so that the point belongs to the frontier.
    pub(in crate::report) fn is_whole(&self) -> bool {
        self.axes.iter().all(|axis| !axis.is_nan())
    }
}

/// Computes one row per method and weight vector with a judged cell.
pub(super) fn rows(context: &TableContext<'_>, ledger: &mut Ledger) -> Vec<PointRow> {
    let sweep = context.sweep;
    let names = sweep.objectives.names();
    let mut rows: Vec<PointRow> = Vec::new();
    for method in &sweep.methods {
        for ((place, n, axes), cells) in sweep.achieved(method).into_iter().zip(sweep.axes(method)) {
            let point = &sweep.points[place];
            let f1 = harmonic_mean(&axes, 0.0);
            let label = sweep.label(point);
            let at = At { source: "tab:per-config-full", subject: &method.name, part: &label, reading: "" };
            ledger.note(&at, "n", n as f64);
            ledger.note(&at, "f1", f1);
            names.iter().zip(&axes).for_each(|(name, value)| ledger.note(&at, name, *value));
            let (intervals, f1_interval) = intervals(context, &cells);
            let p = against_reference(context, method, place);
            rows.push(PointRow { method: method.name.clone(), point: point.clone(), n, axes, intervals, f1, f1_interval, p });
        }
    }
    let corrected = holm(&rows.iter().map(|row| row.p).collect::<Vec<_>>());
    rows.iter_mut().zip(corrected).for_each(|(row, p)| row.p = p);
    rows
}

/// Bootstraps the mean objectives and their F1 at a weight vector. `cells` are the scores of its
/// judged cells, at most one per prompt.
fn intervals(context: &TableContext<'_>, cells: &[&[f64]]) -> (Vec<Interval>, Interval) {
    let axes = context.sweep.objectives.objectives.len();
    let statistic = |drawn: &[usize], values: &mut [f64]| {
        let means = mean_axes(drawn.iter().map(|&cell| cells[cell]));
        values[..axes].copy_from_slice(&means);
        values[axes] = harmonic_mean(&means, 0.0);
    };
    let resampling = context.resampling;
    let bootstraps = Bootstrap::several(cells.len(), axes + 1, resampling.resamples, resampling.seed, statistic);
    let mut intervals: Vec<Interval> = bootstraps.iter().map(|bootstrap| bootstrap.percentile(LEVEL)).collect();
    let f1 = intervals.pop().unwrap_or(Interval::NONE);
    (intervals, f1)
}

fn against_reference(context: &TableContext<'_>, method: &Method, place: usize) -> f64 {
    if method.name == context.reference.name {
        return f64::NAN;
    }
    let f1 = |cell: &Cell| if cell.configuration == place { cell.f1(0.0) } else { None };
    Contrast::of(&context.reference.cells, &method.cells, f1).snapped().wilcoxon(ZeroRule::Wilcox).p
}

/// The table of mean axes and their F1, by method and weight vector.
pub(super) fn table(context: &TableContext<'_>, rows: &[PointRow]) -> Table {
    let names = context.sweep.objectives.names();
    let mut table = Table::of("axes", "Achieved axes at every weight vector", rows)
        .column("method", Kind::Text, |row| row.method.as_str())
        .column(context.weights_heading(), Kind::Text, |row| context.sweep.label(&row.point))
        .column("n", Kind::Count, |row| row.n)
        .columns(names.clone(), Kind::Number(3), |row, axis| row.axes[axis])
        .column("F1", Kind::Number(3), |row| row.f1)
        .columns(names.iter().map(|name| format!("{name} 95%, prompts")), Kind::Interval(3), |row, axis| row.intervals[axis])
        .column("F1 95%, prompts", Kind::Interval(3), |row| row.f1_interval)
        .column("p, Holm", Kind::PValue, |row| row.p)
        .build();
    table.appendix = true;
    let note = format!(
        "Intervals by resampling prompts. p: F1 of cells against {} at the same weight vector, signed-rank test with Holm's correction over all \
         rows.",
        context.reference.name
    );
    table.note(note).notes(few_prompts(rows.iter().map(|row| row.n)))
}
