use super::{LEVEL, Table, TableContext, few_prompts, mean_of};
use crate::report::{Cell, Contrast};
use crate::stats::Interval;
use crate::table::Kind;

/// The perplexity of a method's responses.
#[derive(Debug, Clone)]
pub(in crate::report) struct FluencyRow {
    pub(in crate::report) method: String,
    n: usize,
    perplexity: f64,
    pub(in crate::report) pairs: usize,
    /// The number of prompts of the pairs.
    prompts: usize,
    /// The change relative to the reference and its confidence interval from a bootstrap over
    /// prompts. `None` for the reference itself, and without a pair.
    pub(in crate::report) change: Option<(f64, Interval)>,
}

/// Computes one row per method; none if perplexity was not measured.
pub(super) fn rows(context: &TableContext<'_>) -> Vec<FluencyRow> {
    let measured = |cells: &[Cell]| cells.iter().filter_map(surprise).count();
    if context.sweep.methods.iter().all(|method| measured(&method.cells) == 0) {
        return Vec::new();
    }
    let row = |method: &crate::report::Method| {
        let contrast = Contrast::of(&method.cells, &context.reference.cells, surprise);
        let change = |nats: f64| nats.exp() - 1.0;
        let compared = method.name != context.reference.name && contrast.n() > 0;
        let interval = || contrast.bootstrap_by_prompt(context.resampling).percentile(LEVEL);
        let ends = |Interval { low, high }| Interval { low: change(low), high: change(high) };
        FluencyRow {
            method: method.name.clone(),
            n: measured(&method.cells),
            perplexity: mean_of(&method.cells, surprise).exp(),
            pairs: contrast.n(),
            prompts: contrast.clusters().len(),
            change: compared.then(|| (change(contrast.mean()), ends(interval()))),
        }
    };
    context.sweep.methods.iter().map(row).collect()
}

/// The table of each method's perplexity, also relative to the reference; `None` if it was not
/// measured.
pub(super) fn table(context: &TableContext<'_>, rows: &[FluencyRow]) -> Option<Table> {
    let title = format!("Fluency: perplexity, and its change against {}", context.reference.name);
    Table::of("fluency", title, rows)
        .column("method", Kind::Text, |row| row.method.as_str())
        .column("n", Kind::Count, |row| row.n)
        .column("perplexity", Kind::Number(2), |row| row.perplexity)
        .column("pairs", Kind::Count, |row| row.pairs)
        .column("change", Kind::Signed(3), |row| row.change.map(|(change, _)| change))
        .column("95%, prompts", Kind::Interval(3), |row| row.change.map(|(_, interval)| interval))
        .build()
        .note(
            "Perplexity: the geometric mean over responses of each one's, under a language model that neither drafts nor steers.",
        )
        .note("Change: of paired responses, +0.050 is five per cent more perplexity; interval by resampling prompts.")
        .notes(few_prompts(rows.iter().filter(|row| row.change.is_some()).map(|row| row.prompts)))
        .non_empty()
}

/// Returns the negative log-likelihood per token of a response in nats: −log fluency.
fn surprise(cell: &Cell) -> Option<f64> {
    cell.fluency.map(|fluency| -fluency.ln())
}
