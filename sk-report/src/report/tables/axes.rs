use super::{At, Ledger, Table, TableContext};
use crate::stats::harmonic_mean;
use crate::table::{Kind, Value};

/// Mean axes and their F1, for every method at every weight vector.
pub(super) fn table(context: &TableContext<'_>, ledger: &mut Ledger) -> Table {
    let weights = context.sweep.weights_heading();
    let mut columns = vec![("method", Kind::Text), (weights.as_str(), Kind::Text), ("n", Kind::Count)];
    let names = context.sweep.objectives.names();
    columns.extend(names.iter().map(|name| (*name, Kind::Number(3))));
    columns.push(("F1", Kind::Number(3)));
    let mut table = Table::new("axes", "Achieved axes at every weight vector", &columns);
    table.appendix = true;
    for method in &context.sweep.methods {
        for (point, n, axes) in context.sweep.achieved(method) {
            let label = point.label();
            let f1 = harmonic_mean(&axes, 0.0);
            let at = At { source: "tab:per-config-full", subject: &method.name, part: &label, reading: "" };
            ledger.note(&at, "n", n as f64);
            ledger.note(&at, "f1", f1);
            names.iter().zip(&axes).for_each(|(name, value)| ledger.note(&at, name, *value));
            let mut row: Vec<Value> = vec![method.name.as_str().into(), label.as_str().into(), n.into()];
            row.extend(axes.into_iter().chain([f1]).map(Value::from));
            table.row(row);
        }
    }
    table
}
