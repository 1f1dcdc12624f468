//! The width of the terminal.

use comfy_table::Table;

/// Width of an output that is not a terminal.
pub(crate) const PLAIN: usize = 80;

/// Returns the width of standard output: that of its terminal, or else 80, so that a pipe always
/// gets the same text.
pub(crate) fn columns() -> usize {
    of(&Table::new())
}

/// Returns the width of standard error.
pub(crate) fn error_columns() -> usize {
    of(Table::new().use_stderr())
}

fn of(table: &Table) -> usize {
    // A terminal without a size reports 0.
    table.width().filter(|&width| width > 0).map_or(PLAIN, usize::from)
}
