use super::{At, Ledger, Table, TableContext, mean_of};
use crate::stats::{F1, mean_axes};
use crate::table::{Kind, Value};

/// What each method achieves over all weight vectors, with F1 under its three definitions.
pub(super) fn table(context: &TableContext<'_>, ledger: &mut Ledger) -> Table {
    let objectives = &context.sweep.objectives;
    let names = objectives.names();
    let mut columns = vec![("method", Kind::Text), ("n", Kind::Count)];
    columns.extend(names.iter().map(|name| (*name, Kind::Number(3))));
    let headings = F1::ALL.map(|f1| format!("F1 {}", f1.name()));
    columns.extend(headings.iter().map(|heading| (heading.as_str(), Kind::Number(3))));
    let rubrics = objectives.columns();
    let labels: Vec<String> = rubrics.iter().map(|&rubric| objectives.rubrics[rubric].label()).collect();
    columns.extend(labels.iter().map(|label| (label.as_str(), Kind::Number(3))));
    let mut table = Table::new("methods", "Methods over the whole sweep", &columns);
    for method in &context.sweep.methods {
        let cells = context.sweep.axes(method);
        let mut axes = mean_axes(&cells.concat());
        // Of no cell there is no objective either.
        axes.resize(names.len(), f64::NAN);
        let f1 = F1::ALL.map(|f1| f1.of(&cells, 0.0));
        let means: Vec<f64> = rubrics.iter().map(|&rubric| mean_of(&method.cells, |cell| cell.scores.rubrics[rubric])).collect();
        let n = cells.iter().map(Vec::len).sum::<usize>();
        let mut row: Vec<Value> = vec![method.name.as_str().into(), n.into()];
        row.extend(axes.iter().copied().chain(f1).chain(means.iter().copied()).map(Value::from));
        table.row(row);

        for (source, reading) in [("tab:full-methods", ""), ("tab:main", "")] {
            let at = At { source, subject: &method.name, part: "", reading };
            ledger.note(&at, "n", n as f64);
            ledger.note(&at, "f1", f1[0]);
            names.iter().zip(&axes).for_each(|(name, value)| ledger.note(&at, name, *value));
        }
        let at = At { source: "sec:main", subject: &method.name, part: "", reading: "" };
        labels.iter().zip(means).for_each(|(label, mean)| ledger.note(&at, label, mean));
        ledger.note(&At { source: "tab:perconfig", ..at }, "mean", f1[1]);
    }
    table
        .note(format!("{}.", objectives.definitions().join("; ")))
        .note("A blank rubric is left out of its mean, and an axis whose rubrics are all blank out of the mean of that axis and of the cell's F1.")
        .note("n counts cells with an axis.")
}
