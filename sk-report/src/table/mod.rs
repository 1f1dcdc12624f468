//! Tables whose values stay numbers until they are printed: as text, CSV or LaTeX here, as HTML by
//! [`Page`](crate::page::Page).

mod columns;
mod csv;
mod latex;
mod plain;
mod print;

use serde::Serialize;

pub use self::columns::Columns;
pub(crate) use self::csv::{headings, record};
pub(crate) use self::print::print;
use crate::stats::Interval;

/// Rows of values under headings; how they are printed is the renderer's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    /// A short name, which is also that of its files.
    pub id: String,
    /// One line on what is shown.
    pub title: String,
    /// The columns.
    pub columns: Vec<Column>,
    /// One value per column in each row.
    pub rows: Vec<Vec<Value>>,
    /// How to read it: definitions, units, conventions.
    pub notes: Vec<String>,
    /// Whether it is too long to be read: written to files, left out of what is printed.
    pub appendix: bool,
}

/// A heading and how its values are printed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Column {
    /// The heading.
    pub heading: String,
    /// What the values are.
    pub kind: Kind,
}

/// What the values of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Words.
    Text,
    /// Whole numbers.
    Count,
    /// Numbers to this many decimals.
    Number(usize),
    /// The same, with their sign.
    Signed(usize),
    /// Shares, printed as per cent to one decimal.
    Percent,
    /// Intervals to this many decimals.
    Interval(usize),
    /// p-values.
    PValue,
}

/// What stands in a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Nothing: it does not apply, or cannot be had.
    Empty,
    /// A word.
    Text(String),
    /// A number.
    Number(f64),
    /// Both ends of an interval.
    Interval([f64; 2]),
}

impl Table {
    /// A table without rows; [`of`](Self::of) makes one of rows.
    pub fn new(id: impl Into<String>, title: impl Into<String>, columns: &[(&str, Kind)]) -> Self {
        let columns = columns.iter().map(|&(heading, kind)| Column { heading: heading.to_owned(), kind }).collect();
        Self { id: id.into(), title: title.into(), columns, rows: Vec::new(), notes: Vec::new(), appendix: false }
    }

    /// The place of the column of that heading.
    pub fn column(&self, heading: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.heading == heading)
    }

    /// Adds a row.
    ///
    /// # Panics
    /// In debug builds, when it has not one value per column.
    pub fn row(&mut self, values: Vec<Value>) {
        debug_assert_eq!(values.len(), self.columns.len(), "{}: a value per column", self.id);
        self.rows.push(values);
    }

    /// Adds a line on how to read it.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        if value.is_nan() { Self::Empty } else { Self::Number(value) }
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
        if interval.is_none() { Self::Empty } else { Self::Interval([interval.low, interval.high]) }
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Empty, Into::into)
    }
}
