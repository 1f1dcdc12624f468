use super::{Context, Table};
use crate::report::{Cell, Example};
use crate::table::{Kind, Value};

/// Where the reference did best and worst, and the best other method beside it.
pub(super) fn table(context: &Context<'_>) -> Table {
    let columns = [
        ("case", Kind::Text),
        ("prompt", Kind::Count),
        ("help/honest/harmless", Kind::Text),
        ("F1", Kind::Number(3)),
        ("quality", Kind::Number(3)),
        ("safety", Kind::Number(3)),
        ("honesty", Kind::Number(3)),
        ("rival's F1", Kind::Number(3)),
        ("ΔF1", Kind::Signed(3)),
    ];
    let rival = context.baselines().first().copied();
    let title = match rival {
        Some(rival) => format!("Where {} did best and worst, beside {}", context.reference.name, rival.name),
        None => format!("Where {} did best and worst", context.reference.name),
    };
    let mut table = Table::new("examples", title, &columns);
    for example in Example::choose(context.reference, rival) {
        let Cell { configuration, prompt, rubrics, .. } = *example.cell;
        let axes = rubrics.axes().unwrap_or([f64::NAN; 3]);
        let mut row: Vec<Value> =
            vec![example.case.into(), (prompt as usize).into(), context.sweep.points[configuration].label().into()];
        row.push(Example::f1(example.cell).into());
        row.extend(axes.map(Value::from));
        row.push(example.rival.map(Example::f1).into());
        row.push(example.rival.map(|_| example.difference()).into());
        table.row(row);
    }
    table.note("F1 of a cell, 0 where an axis is. The rival is the other method with the highest F1; only prompts that both answered at the same weights count.")
}
