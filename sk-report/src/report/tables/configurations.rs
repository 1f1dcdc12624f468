use super::{At, Ledger, PointRow, Table, TableContext};
use crate::stats::{extent, mean};
use crate::table::{Kind, Value};

/// A method's F1 by weight vector, with the labels of the weight vectors.
type ScoresByPoint = Vec<(String, f64)>;

/// The table of the F1 of mean axes: one row per weight vector, one column per method.
pub(super) fn table(context: &TableContext<'_>, rows: &[PointRow], ledger: &mut Ledger) -> Table {
    let sweep = context.sweep;
    let weights = sweep.weights_heading();
    let mut columns = vec![(weights.as_str(), Kind::Text)];
    columns.extend(sweep.methods.iter().map(|method| (method.name.as_str(), Kind::Number(3))));
    let mut table = Table::new("configurations", "F1 of mean axes at every weight vector", &columns);
    let scores: Vec<ScoresByPoint> = sweep
        .methods
        .iter()
        .map(|method| {
            let own = rows.iter().filter(|row| row.method == method.name && row.is_whole());
            own.map(|row| (row.point.label(), row.f1)).collect()
        })
        .collect();
    for point in &sweep.points {
        let label = point.label();
        let at = |scores: &ScoresByPoint| scores.iter().find(|(known, _)| *known == label).map(|&(_, f1)| f1);
        let mut row = vec![Value::from(label.as_str())];
        row.extend(scores.iter().map(|scores| Value::from(at(scores))));
        table.row(row);
        for (method, scores) in sweep.methods.iter().zip(&scores) {
            let place = At { source: "tab:perconfig", subject: &method.name, part: &label, reading: "" };
            at(scores).into_iter().for_each(|f1| ledger.note(&place, "f1", f1));
        }
    }
    let all = |scores: &ScoresByPoint| scores.iter().map(|&(_, f1)| f1).collect::<Vec<_>>();
    let range = |scores: &ScoresByPoint| {
        let [least, most] = extent(all(scores));
        if scores.is_empty() { f64::NAN } else { most - least }
    };
    let summary = |name: &str, of: &dyn Fn(&ScoresByPoint) -> f64| {
        std::iter::once(Value::from(name)).chain(scores.iter().map(|scores| Value::from(of(scores)))).collect::<Vec<_>>()
    };
    table.row(summary("mean", &|scores| mean(&all(scores))));
    table.row(summary("range", &range));
    for (method, scores) in sweep.methods.iter().zip(&scores) {
        ledger.note(&At { source: "tab:perconfig", subject: &method.name, part: "", reading: "" }, "range", range(scores));
    }
    table
}
