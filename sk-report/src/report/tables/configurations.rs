use super::{At, Ledger, PointRow, Table, TableContext};
use crate::report::WeightVector;
use crate::stats::{extent, mean};
use crate::table::Kind;

/// The rows below those of the weight vectors.
pub(in crate::report) const SUMMARY: [&str; 2] = ["mean", "range"];

/// The table of the F1 of mean axes: one row per weight vector, one column per method.
pub(super) fn table(context: &TableContext<'_>, rows: &[PointRow], ledger: &mut Ledger) -> Table {
    let sweep = context.sweep;
    let labels: Vec<String> = sweep.points.iter().map(|point| sweep.label(point)).collect();
    let mut columns = Vec::new();
    for method in &sweep.methods {
        let own: Vec<&PointRow> = rows.iter().filter(|row| row.method == method.name && row.is_whole()).collect();
        let scores: Vec<f64> = own.iter().map(|row| row.f1).collect();
        let [least, most] = extent(scores.iter().copied());
        let range = if own.is_empty() { f64::NAN } else { most - least };
        let at = |point: &WeightVector| own.iter().find(|row| row.point == *point).map_or(f64::NAN, |row| row.f1);
        let place = |part| At { source: "tab:perconfig", subject: &method.name, part, reading: "" };
        let mut column: Vec<f64> = sweep.points.iter().map(at).collect();
        for (label, f1) in labels.iter().zip(&column).filter(|(_, f1)| !f1.is_nan()) {
            ledger.note(&place(label), "f1", *f1);
        }
        ledger.note(&place(""), "range", range);
        column.extend([mean(&scores), range]);
        columns.push(column);
    }
    let headings: Vec<&str> = labels.iter().map(String::as_str).chain(SUMMARY).collect();
    let lines: Vec<(usize, &str)> = headings.into_iter().enumerate().collect();
    let names = sweep.methods.iter().map(|method| method.name.as_str());
    Table::of("configurations", "F1 of mean axes at every weight vector", &lines)
        .column(context.weights_heading(), Kind::Text, |(_, label)| *label)
        .columns(names, Kind::Number(3), |(line, _), method| columns[method][*line])
        .build()
}
