use std::collections::HashSet;

use super::{Kind, Table, Value, print};
use crate::grid::{Grid, wrap};

/// The most leading columns that every block of a split table repeats.
const REPEATED: usize = 3;

impl Table {
    /// Formats the table as text on lines of at most `width` columns: title, rows, notes. If it is
    /// split into blocks, each repeats the leading columns that tell its rows apart, up to three.
    pub fn plain(&self, width: usize) -> String {
        let power = |mantissa: &str, exponent| format!("{mantissa}e{exponent}");
        let cells =
            |row: &Vec<Value>| self.columns.iter().zip(row).map(|(column, value)| print(column.kind, value, power)).collect();
        let rows: Vec<Vec<String>> = self.rows.iter().map(cells).collect();
        let tells_apart = |columns: &usize| {
            let mut seen = HashSet::new();
            rows.iter().all(|row| seen.insert(row.get(..*columns)))
        };
        let mut grid = Grid::new(self.columns.iter().map(|column| column.heading.as_str()));
        grid = grid.repeat((1..REPEATED).find(tells_apart).unwrap_or(REPEATED));
        for (place, column) in self.columns.iter().enumerate() {
            if column.kind != Kind::Text {
                grid = grid.numbers(place..=place);
            }
        }
        rows.into_iter().for_each(|row| grid.row(row));
        let mut text = format!("{}\n\n{}\n", wrap(&self.title, width, 0), grid.render(width));
        for note in &self.notes {
            text += &format!("  {}\n", wrap(note, width.saturating_sub(2), 2));
        }
        text
    }
}
