//! Columns of a table as series of a chart.

use crate::table::{Table, Value};

/// The words of a column; empty where there is no such column.
pub(super) fn texts(table: &Table, heading: &str) -> Vec<String> {
    column(table, heading, |value| match value {
        Value::Text(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    })
}

/// The numbers of a column, NaN where there is none.
pub(super) fn numbers(table: &Table, heading: &str) -> Vec<f64> {
    column(table, heading, |value| if let Value::Number(number) = value { *number } else { f64::NAN })
}

/// The intervals of a column, NaN where there is none.
pub(super) fn intervals(table: &Table, heading: &str) -> Vec<[f64; 2]> {
    column(table, heading, |value| if let Value::Interval(ends) = value { *ends } else { [f64::NAN; 2] })
}

/// The table with those rows alone that have `text` under `heading`.
pub(super) fn rows_of(table: &Table, heading: &str, text: &str) -> Table {
    let place = table.column(heading);
    let rows = table.rows.iter().filter(|row| place.is_some_and(|place| row[place] == Value::from(text))).cloned().collect();
    Table { rows, ..table.clone() }
}

/// What occurs in a column, each once, in order.
pub(super) fn distinct(table: &Table, heading: &str) -> Vec<String> {
    let mut seen = Vec::new();
    for text in texts(table, heading) {
        if !seen.contains(&text) {
            seen.push(text);
        }
    }
    seen
}

fn column<T>(table: &Table, heading: &str, read: impl Fn(&Value) -> T) -> Vec<T> {
    table.column(heading).map_or_else(Vec::new, |place| table.rows.iter().map(|row| read(&row[place])).collect())
}
