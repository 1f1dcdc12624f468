use super::{Kind, Table, print};
use crate::grid::{Grid, wrap};

/// The most leading text columns that every block of a split table repeats.
const REPEATED: usize = 2;

impl Table {
    /// Formats the table as text on lines of at most `width` columns: title, rows, notes.
    pub fn plain(&self, width: usize) -> String {
        let mut grid = Grid::new(self.columns.iter().map(|column| column.heading.as_str()));
        let words = self.columns.iter().take_while(|column| column.kind == Kind::Text).count();
        grid = grid.repeat(words.clamp(1, REPEATED));
        for (place, column) in self.columns.iter().enumerate() {
            if column.kind != Kind::Text {
                grid = grid.numbers(place..=place);
            }
        }
        for row in &self.rows {
            let power = |mantissa: &str, exponent| format!("{mantissa}e{exponent}");
            grid.row(self.columns.iter().zip(row).map(|(column, value)| print(column.kind, value, power)));
        }
        let mut text = format!("{}\n\n{}\n", wrap(&self.title, width, 0), grid.render(width));
        for note in &self.notes {
            text += &format!("  {}\n", wrap(note, width.saturating_sub(2), 2));
        }
        text
    }
}
