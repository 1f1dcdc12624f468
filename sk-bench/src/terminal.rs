//! What a terminal can show: its width.

use comfy_table::Table;

/// Columns of an output that is no terminal.
pub const PLAIN: usize = 80;

/// Columns of standard output: those of its terminal, or 80, so that a pipe always gets the same.
pub fn columns() -> usize {
    of(&Table::new())
}

/// Columns of standard error.
pub fn error_columns() -> usize {
    of(Table::new().use_stderr())
}

fn of(table: &Table) -> usize {
    // A terminal without a size says 0.
    table.width().filter(|&width| width > 0).map_or(PLAIN, usize::from)
}
