use std::fmt::Write;

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, TableStyle};

use super::{Kind, Table, print};

/// A rule under the header and nothing else.
const RULED: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

impl Table {
    /// The table as text: title, columns, notes.
    pub fn plain(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(RULED).set_content_arrangement(ContentArrangement::Disabled).force_no_tty();
        let align = |kind| if kind == Kind::Text { CellAlignment::Left } else { CellAlignment::Right };
        table.set_header(self.columns.iter().map(|column| Cell::new(&column.heading).set_alignment(align(column.kind))));
        for row in &self.rows {
            let cells = self.columns.iter().zip(row);
            let power = |mantissa: &str, exponent| format!("{mantissa}e{exponent}");
            table.add_row(
                cells.map(|(column, value)| Cell::new(print(column.kind, value, power)).set_alignment(align(column.kind))),
            );
        }
        let mut text = format!("{}\n\n", self.title);
        for line in table.to_string().lines() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}", line.trim_end());
        }
        for note in &self.notes {
            let _ = writeln!(text, "  {note}");
        }
        text
    }
}
