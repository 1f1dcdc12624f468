use super::{Table, TableContext};
use crate::report::{Cell, Example};
use crate::table::{Kind, Value};

/// Where the reference did best and worst, and the best other method beside it.
pub(super) fn table(context: &TableContext<'_>) -> Table {
    let weights = context.sweep.weights_heading();
    let mut columns =
        vec![("case", Kind::Text), ("prompt", Kind::Count), (weights.as_str(), Kind::Text), ("F1", Kind::Number(3))];
    columns.extend(context.sweep.objectives.names().into_iter().map(|name| (name, Kind::Number(3))));
    columns.extend([("rival's F1", Kind::Number(3)), ("ΔF1", Kind::Signed(3))]);
    let rival = context.baselines().first().copied();
    let title = match rival {
        Some(rival) => format!("Where {} did best and worst, beside {}", context.reference.name, rival.name),
        None => format!("Where {} did best and worst", context.reference.name),
    };
    let mut table = Table::new("examples", title, &columns);
    for example in Example::choose(context.reference, rival) {
        let Cell { configuration, prompt, ref scores, .. } = *example.cell;
        let mut row: Vec<Value> =
            vec![example.case.into(), (prompt as usize).into(), context.sweep.points[configuration].label().into()];
        row.push(Example::f1(example.cell).into());
        row.extend(scores.objectives.iter().copied().map(Value::from));
        row.push(example.rival.map(Example::f1).into());
        row.push(example.rival.map(|_| example.difference()).into());
        table.row(row);
    }
    table.note("F1 of a cell, 0 where an axis is. The rival is the other method with the highest F1; only prompts that both answered at the same weights count.")
}
