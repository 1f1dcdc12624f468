use super::{Column, Kind, Table, Value};

/// The absolute value below which a number is written with an exponent.
const SMALL: f64 = 1e-4;

impl Table {
    /// Formats the table as CSV (RFC 4180): a header, then rows with numbers at full precision. An
    /// interval takes two columns. A percentage is written as a share, under a heading without its
    /// per cent sign.
    pub fn csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let header = self.columns.iter().flat_map(headings);
        let rows = self.rows.iter().map(|row| {
            let cells = self.columns.iter().zip(row);
            cells.flat_map(|(column, value)| record(column.kind, value)).collect::<Vec<_>>()
        });
        for line in std::iter::once(header.collect::<Vec<_>>()).chain(rows) {
            // Cannot fail: rows are as long as the header, and the writer is in memory.
            let _ = writer.write_record(line);
        }
        writer.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

/// Returns the CSV headings of a column; two for an interval.
pub(crate) fn headings(column: &Column) -> Vec<String> {
    match column.kind {
        Kind::Interval(_) => vec![format!("{} low", column.heading), format!("{} high", column.heading)],
        _ => vec![column.exact_heading()],
    }
}

/// Returns the CSV fields of a value; two for an interval.
pub(crate) fn record(kind: Kind, value: &Value) -> Vec<String> {
    match (kind, value) {
        (_, Value::Interval(interval)) => <[f64; 2]>::from(*interval).map(shortest).into(),
        (Kind::Interval(_), _) => vec![String::new(), String::new()],
        (_, Value::Empty) => vec![String::new()],
        (_, Value::Text(text)) => vec![text.clone()],
        (_, Value::Number(number)) => vec![shortest(*number)],
    }
}

/// Returns the shortest text that parses to the same number.
fn shortest(number: f64) -> String {
    if number != 0.0 && number.abs() < SMALL { format!("{number:e}") } else { number.to_string() }
}
