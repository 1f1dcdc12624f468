//! Tables as the template reads them: the printed text, and the full-precision values behind it.

use serde::Serialize;

use super::prompt::clipped;
use crate::table::{Column, Kind, Table, Value, headings, print, record};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct TableView {
    id: String,
    title: String,
    columns: Vec<ColumnView>,
    pub(super) rows: Vec<Vec<CellView>>,
    /// The rows that summarise the others. Sorting leaves them last.
    summary: Vec<Vec<CellView>>,
    notes: Vec<String>,
    appendix: bool,
    /// CSS classes under which only the first columns are shown until the reader expands the table:
    /// `narrow` on small screens, `wide` on all screens.
    folds: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct ColumnView {
    heading: String,
    /// The CSV headings, as JSON.
    fields: String,
    number: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct CellView {
    text: String,
    /// The CSV fields, as JSON.
    fields: String,
    number: bool,
    /// Whether the text is a short name that should not be broken across lines, not even at a
    /// hyphen.
    short: bool,
    /// The tooltip.
    whole: Option<String>,
}

/// The number of columns shown on a small and on a large screen. Keep in step with the style sheet.
const FIT: [usize; 2] = [4, 8];

/// The most characters of a name that is not broken across lines.
const SHORT: usize = 18;

impl TableView {
    pub(super) fn of(table: Table) -> Self {
        let column = |column: &Column| ColumnView {
            heading: column.heading.clone(),
            fields: json(headings(column)),
            number: column.kind != Kind::Text,
        };
        let row =
            |values: &Vec<Value>| table.columns.iter().zip(values).map(|(column, value)| CellView::of(column, value)).collect();
        Self {
            columns: table.columns.iter().map(column).collect(),
            rows: table.rows.iter().map(row).collect(),
            summary: Vec::new(),
            folds: match table.columns.len() {
                few if few <= FIT[0] => "",
                some if some <= FIT[1] => "narrow",
                _ => "narrow wide",
            },
            id: table.id,
            title: table.title,
            notes: table.notes,
            appendix: table.appendix,
        }
    }

    /// Takes the last `count` rows for a summary of the others.
    pub(super) fn summarized(mut self, count: usize) -> Self {
        self.summary = self.rows.split_off(self.rows.len().saturating_sub(count));
        self
    }

    /// Replaces the names of prompts in a column by the beginning of their texts, with the whole
    /// text as the tooltip. `prompts` holds the text of each row, `None` if unknown.
    pub(super) fn naming(mut self, column: usize, prompts: &[Option<String>]) -> Self {
        for (row, prompt) in self.rows.iter_mut().zip(prompts) {
            let Some(prompt) = prompt else { continue };
            let (text, whole) = (clipped(prompt), Some(prompt.trim().to_owned()));
            row[column] = CellView { text, whole, number: false, short: false, ..row[column].clone() };
            self.columns[column].number = false;
        }
        self
    }
}

impl CellView {
    fn of(column: &Column, value: &Value) -> Self {
        let power = |mantissa: &str, exponent: i32| format!("{mantissa}\u{2009}×\u{2009}10{}", raised(exponent));
        // A hyphen is shorter than a minus sign, and lines break after it.
        let text = match value {
            Value::Text(text) => text.clone(),
            _ => print(column.kind, value, power).replace('-', "−"),
        };
        Self {
            short: text.chars().count() <= SHORT,
            text,
            fields: json(record(column.kind, value)),
            number: column.kind != Kind::Text,
            whole: None,
        }
    }
}

fn json(fields: Vec<String>) -> String {
    serde_json::Value::from(fields).to_string()
}

/// Formats an exponent in superscript digits.
fn raised(exponent: i32) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    exponent.to_string().chars().map(|c| c.to_digit(10).map_or('⁻', |digit| DIGITS[digit as usize])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Interval;

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
    fn a_prompt_shows_its_text_and_keeps_its_digits() {
        let table = Table::of("x", "X", &[0_usize, 1])
            .column("case", Kind::Text, |_| "best")
            .column("prompt", Kind::Count, |prompt| *prompt)
            .build();
        let view = TableView::of(table).naming(1, &[Some("\n\nHuman: Why?\n\nAssistant:".to_owned()), None]);
        let shown = |row: usize| (view.rows[row][1].text.as_str(), view.rows[row][1].fields.as_str());
        assert_eq!((shown(0), shown(1)), (("Why?", "[\"0\"]"), ("1", "[\"1\"]")));
        assert_eq!(view.rows[0][1].whole.as_deref(), Some("Human: Why?\n\nAssistant:"));
    }

    #[test]
    fn a_table_folds_by_its_columns() {
        let folds = |count: usize| {
            let table = Table::of("x", "X", &[] as &[usize]).columns(vec!["x"; count], Kind::Count, |value, _| *value).build();
            TableView::of(table).folds
        };
        assert_eq!([1, 4, 5, 8, 9].map(folds), ["", "", "narrow", "narrow", "narrow wide"]);
        let style = include_str!("page.css");
        for (fold, fit) in ["narrow", "wide"].into_iter().zip(FIT) {
            let rule = format!(".{fold}:not(:has(> .all input:checked)) tr > :nth-child(n+{})", fit + 1);
            assert!(style.contains(&rule), "{rule}");
        }
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
        assert_eq!(
            cell(Kind::Interval(1), Value::Interval(Interval { low: -1.25, high: 2.0 })),
            ("[−1.2, +2.0]".into(), "[\"-1.25\",\"2\"]".into())
        );
        assert_eq!(cell(Kind::Text, Value::from("a-b")), ("a-b".into(), "[\"a-b\"]".into()));
        assert_eq!(cell(Kind::Number(1), Value::Empty), (String::new(), "[\"\"]".into()));
    }
}
