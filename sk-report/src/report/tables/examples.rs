use super::{Table, TableContext};
use crate::report::Example;
use crate::table::Kind;

/// The table of the reference's best and worst responses, beside those of the best other method.
pub(super) fn table(context: &TableContext<'_>) -> Table {
    let rival = context.rivals().next();
    let title = match rival {
        Some(rival) => format!("Where {} did best and worst, beside {}", context.reference.name, rival.name),
        None => format!("Where {} did best and worst", context.reference.name),
    };
    let sweep = context.sweep;
    Table::of("examples", title, &Example::choose(context.reference, rival))
        .column("case", Kind::Text, |example| example.case)
        .column("prompt", Kind::Count, |example| example.cell.prompt as usize)
        .column(context.weights_heading(), Kind::Text, |example| sweep.label(&sweep.points[example.cell.configuration]))
        .column("F1", Kind::Number(3), |example| example.cell.f1(0.0))
        .columns(sweep.objectives.names(), Kind::Number(3), |example, axis| example.cell.scores.objectives[axis])
        .column("rival's F1", Kind::Number(3), |example| example.rival.and_then(|rival| rival.f1(0.0)))
        .column("ΔF1", Kind::Signed(3), |example| example.rival.map(|_| example.difference()))
        .build()
        .note("F1 of a cell, 0 where an axis is. The rival is the other method with the highest F1; only prompts that both answered at the same weights count.")
}
