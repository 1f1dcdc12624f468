use super::{LEVEL, Table, TableContext, mean_of};
use crate::report::{Cell, Contrast};
use crate::table::Kind;

/// The perplexity of each method's responses, and against that of the reference; nothing where it
/// was not measured.
pub(super) fn table(context: &TableContext<'_>) -> Option<Table> {
    let measured = |cells: &[Cell]| cells.iter().filter_map(surprise).count();
    if context.sweep.methods.iter().all(|method| measured(&method.cells) == 0) {
        return None;
    }
    let columns = [
        ("method", Kind::Text),
        ("n", Kind::Count),
        ("perplexity", Kind::Number(2)),
        ("pairs", Kind::Count),
        ("change", Kind::Signed(3)),
        ("low", Kind::Signed(3)),
        ("high", Kind::Signed(3)),
    ];
    let title = format!("Fluency: perplexity, and its change against {}", context.reference.name);
    let mut table = Table::new("fluency", &title, &columns);
    for method in &context.sweep.methods {
        let contrast = Contrast::of(&method.cells, &context.reference.cells, surprise);
        let change = |nats: f64| nats.exp() - 1.0;
        let compared = method.name != context.reference.name && contrast.n() > 0;
        let interval = compared.then(|| contrast.bootstrap_by_prompt(context.resampling).percentile(LEVEL));
        table.row(vec![
            method.name.as_str().into(),
            measured(&method.cells).into(),
            mean_of(&method.cells, surprise).exp().into(),
            contrast.n().into(),
            compared.then(|| change(contrast.mean())).into(),
            interval.map(|interval| change(interval.low)).into(),
            interval.map(|interval| change(interval.high)).into(),
        ]);
    }
    Some(
        table
            .note("Perplexity: the geometric mean over responses of each one's, under a language model that neither drafts nor steers.")
            .note("Change: of paired responses, +0.050 is five per cent more perplexity; interval by resampling prompts."),
    )
}

/// The nats per token of a response: −log fluency.
fn surprise(cell: &Cell) -> Option<f64> {
    cell.fluency.map(|fluency| -fluency.ln())
}
