use super::{Column, Kind, Table, Value};

/// Below this, zeros after the point give way to an exponent.
const SMALL: f64 = 1e-4;

impl Table {
    /// The table as CSV (RFC 4180): a header, then rows with numbers to their last digit. An
    /// interval takes two columns, a share stays a share.
    pub fn csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let header = self.columns.iter().flat_map(headings);
        let rows = self.rows.iter().map(|row| {
            let cells = self.columns.iter().zip(row);
            cells.flat_map(|(column, value)| record(column.kind, value)).collect::<Vec<_>>()
        });
        for line in std::iter::once(header.collect::<Vec<_>>()).chain(rows) {
            // Rows are as long as the header and memory does not fail.
            let _ = writer.write_record(line);
        }
        writer.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

/// The headings of a column in CSV: two of an interval.
pub(crate) fn headings(column: &Column) -> Vec<String> {
    match column.kind {
        Kind::Interval(_) => vec![format!("{} low", column.heading), format!("{} high", column.heading)],
        _ => vec![column.heading.clone()],
    }
}

/// The fields of a value in CSV: two of an interval.
pub(crate) fn record(kind: Kind, value: &Value) -> Vec<String> {
    match (kind, value) {
        (_, Value::Interval(ends)) => ends.map(shortest).into(),
        (Kind::Interval(_), _) => vec![String::new(), String::new()],
        (_, Value::Empty) => vec![String::new()],
        (_, Value::Text(text)) => vec![text.clone()],
        (_, Value::Number(number)) => vec![shortest(*number)],
    }
}

/// The shortest text that reads back as the same number.
fn shortest(number: f64) -> String {
    if number != 0.0 && number.abs() < SMALL { format!("{number:e}") } else { number.to_string() }
}
