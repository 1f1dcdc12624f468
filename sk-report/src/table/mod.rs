//! Tables whose values stay numbers until they are rendered, here as text, CSV or LaTeX, and as
//! HTML by [`Page`](crate::page::Page).

mod columns;
mod csv;
mod latex;
mod plain;
mod print;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

pub use self::columns::Columns;
pub(crate) use self::csv::{headings, record};
pub(crate) use self::print::print;
use crate::stats::Interval;

/// Rows of values under headings, independent of the output format.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    /// The short name of the table and of its files.
    pub id: String,
    /// A one-line title.
    pub title: String,
    /// The columns.
    pub columns: Vec<Column>,
    /// One value per column in each row.
    pub rows: Vec<Vec<Value>>,
    /// Notes on how to read the table: definitions, units, conventions.
    pub notes: Vec<String>,
    /// Whether the table is too long to be read. It is then written to files only.
    pub appendix: bool,
}

/// A column: its heading and the kind of its values.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// The heading.
    pub heading: String,
    /// The kind of its values.
    pub kind: Kind,
}

impl Column {
    /// Returns the heading for formats with full precision, in which a percentage is a share.
    fn exact_heading(&self) -> String {
        match self.kind {
            Kind::Percent => self.heading.replace(" (%)", "").replace(" %", ""),
            _ => self.heading.clone(),
        }
    }
}

impl Serialize for Column {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut column = serializer.serialize_struct("Column", 2)?;
        column.serialize_field("heading", &self.exact_heading())?;
        column.serialize_field("kind", &self.kind)?;
        column.end()
    }
}

/// The kind of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Text.
    Text,
    /// Integers.
    Count,
    /// Numbers with this many decimals.
    Number(usize),
    /// Numbers with this many decimals and always a sign.
    Signed(usize),
    /// Shares, printed as per cent with one decimal. CSV and JSON hold the shares, under the
    /// heading without its per cent sign.
    Percent,
    /// Confidence intervals with this many decimals.
    Interval(usize),
    /// p-values.
    PValue,
}

/// The value of a table cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// No value: not applicable or not available.
    Empty,
    /// Text.
    Text(String),
    /// A finite number.
    Number(f64),
    /// A confidence interval.
    Interval(Interval),
}

impl Table {
    /// Adds a note.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Adds notes.
    #[must_use]
    pub(crate) fn notes(mut self, notes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.notes.extend(notes.into_iter().map(Into::into));
        self
    }

    /// Returns the table if it has a row.
    pub fn non_empty(self) -> Option<Self> {
        (!self.rows.is_empty()).then_some(self)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        if value.is_finite() { Self::Number(value) } else { Self::Empty }
    }
}

impl From<usize> for Value {
    fn from(count: usize) -> Self {
        Self::Number(count as f64)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Interval> for Value {
    fn from(interval: Interval) -> Self {
        if interval.is_none() { Self::Empty } else { Self::Interval(interval) }
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Empty, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heading_with_a_per_cent_sign_is_over_per_cent() {
        let table = Table::of("x", "X", &[0.5])
            .column("wins %", Kind::Percent, |value| *value)
            .column("flipped (%)", Kind::Percent, |value| *value)
            .column("95 % low", Kind::Number(1), |value| *value)
            .build();
        assert_eq!(table.csv(), "wins,flipped,95 % low\n0.5,0.5,0.5\n");
        let headings: Vec<_> = table.columns.iter().map(|column| serde_json::json!(column)["heading"].clone()).collect();
        assert_eq!(headings, ["wins", "flipped", "95 % low"]);
        for text in [table.plain(80), table.latex().replace('\\', "")] {
            assert!(text.contains("wins %") && text.contains("flipped (%)") && text.contains("50.0"), "{text}");
        }
    }

    #[test]
    fn blocks_repeat_the_columns_that_tell_rows_apart() {
        let rows = [("best", 1, "1/0"), ("best", 2, "1/0"), ("best", 2, "0/1")];
        let table = Table::of("x", "X", &rows)
            .column("case", Kind::Text, |row| row.0)
            .column("prompt", Kind::Count, |row| row.1)
            .column("weights", Kind::Text, |row| row.2)
            .columns(["first number", "second number"], Kind::Number(9), |_, _| 0.5)
            .build();
        let blocks = table.plain(36);
        assert_eq!(blocks.matches("best       2  0/1").count(), 2, "{blocks}");
        let apart = Table { rows: table.rows[1..].to_vec(), ..table.clone() };
        assert_eq!(apart.plain(36).matches("prompt").count(), 2);
        let one = Table { rows: table.rows[..1].to_vec(), ..table };
        assert_eq!(one.plain(36).matches("prompt").count(), 1);
    }

    /// JSON has no infinity, so the other formats show none either.
    #[test]
    fn what_is_not_finite_is_blank_in_every_format() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let table = Table::of("x", "X", &[value])
                .column("row", Kind::Text, |_| "a")
                .column("number", Kind::Number(1), |value| *value)
                .column("share", Kind::Percent, |value| Some(*value))
                .column("interval", Kind::Interval(2), |value| Interval { low: 0.0, high: *value })
                .build();
            assert_eq!(table.csv(), "row,number,share,interval low,interval high\na,,,,\n");
            assert!(table.latex().contains("a & -- & -- & -- \\\\\n"), "{}", table.latex());
            assert_eq!(table.plain(80).lines().last().map(str::trim_end), Some("a"));
            assert_eq!(serde_json::json!(table)["rows"], serde_json::json!([["a", null, null, null]]));
        }
    }
}
