//! Tables as the template reads them: what is printed, and the digits behind it.

use serde::Serialize;

use crate::table::{Column, Kind, Table, Value, headings, print, record};

#[derive(Debug, Serialize)]
pub(super) struct TableView<'a> {
    id: &'a str,
    title: &'a str,
    columns: Vec<ColumnView<'a>>,
    rows: Vec<Vec<CellView>>,
    notes: &'a [String],
    appendix: bool,
}

#[derive(Debug, Serialize)]
struct ColumnView<'a> {
    heading: &'a str,
    /// The headings of the CSV, as JSON.
    fields: String,
    number: bool,
}

#[derive(Debug, Serialize)]
struct CellView {
    text: String,
    /// The fields of the CSV, as JSON.
    fields: String,
    number: bool,
    /// Whether a name is better left in one piece: it is shorter than a line, and a hyphen of it is
    /// part of it.
    short: bool,
}

/// Characters of a name up to which it is not broken.
const SHORT: usize = 18;

impl<'a> TableView<'a> {
    pub(super) fn of(table: &'a Table) -> Self {
        let row = |values: &Vec<Value>| {
            let cells = table.columns.iter().zip(values);
            cells.map(|(column, value)| CellView::of(column, value)).collect()
        };
        Self {
            id: &table.id,
            title: &table.title,
            columns: table.columns.iter().map(ColumnView::of).collect(),
            rows: table.rows.iter().map(row).collect(),
            notes: &table.notes,
            appendix: table.appendix,
        }
    }
}

impl<'a> ColumnView<'a> {
    fn of(column: &'a Column) -> Self {
        Self { heading: &column.heading, fields: json(headings(column)), number: column.kind != Kind::Text }
    }
}

impl CellView {
    fn of(column: &Column, value: &Value) -> Self {
        let power = |mantissa: &str, exponent: i32| format!("{mantissa}\u{2009}×\u{2009}10{}", raised(exponent));
        // A hyphen is no minus: it is shorter, and lines break after it.
        let text = match value {
            Value::Text(text) => text.clone(),
            _ => print(column.kind, value, power).replace('-', "−"),
        };
        Self {
            short: text.chars().count() <= SHORT,
            text,
            fields: json(record(column.kind, value)),
            number: column.kind != Kind::Text,
        }
    }
}

fn json(fields: Vec<String>) -> String {
    serde_json::Value::from(fields).to_string()
}

/// An exponent in superscript digits.
fn raised(exponent: i32) -> String {
    let digit = |c: char| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        _ => c.to_digit(10).and_then(|digit| char::from_u32(0x2070 + digit)).unwrap_or(c),
    };
    exponent.to_string().chars().map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_raised() {
        assert_eq!((raised(-120), raised(3456789)), ("⁻¹²⁰".into(), "³⁴⁵⁶⁷⁸⁹".into()));
    }

    #[test]
    fn a_short_name_is_not_broken() {
        let column = Column { heading: "x".into(), kind: Kind::Text };
        let short = |text: &str| CellView::of(&column, &Value::from(text)).short;
        assert!(short("swiss-knife") && short("größer-als-sieben") && !short("f1: swiss-knife − base"));
    }

    #[test]
    fn digits_stand_behind_what_is_printed() {
        let cell = |kind, value: Value| {
            let column = Column { heading: "x".into(), kind };
            let CellView { text, fields, .. } = CellView::of(&column, &value);
            (text, fields)
        };
        assert_eq!(cell(Kind::Signed(2), Value::Number(-0.123)), ("−0.12".into(), "[\"-0.123\"]".into()));
        assert_eq!(cell(Kind::PValue, Value::Number(2.46e-15)), ("2.5\u{2009}×\u{2009}10⁻¹⁵".into(), "[\"2.46e-15\"]".into()));
        assert_eq!(cell(Kind::Interval(1), Value::Interval([-1.25, 2.0])), ("[−1.2, +2.0]".into(), "[\"-1.25\",\"2\"]".into()));
        assert_eq!(cell(Kind::Text, Value::from("a-b")), ("a-b".into(), "[\"a-b\"]".into()));
        assert_eq!(cell(Kind::Number(1), Value::Empty), (String::new(), "[\"\"]".into()));
    }
}
