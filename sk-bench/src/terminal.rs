//! What a terminal can show: its width, and texts that cannot command it.

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

/// A message on one line, of at most `longest` characters, with control characters spelled out:
/// what a file or a server says does not reach the terminal as a command.
pub fn plain(message: &str, longest: usize) -> String {
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut plain = String::new();
    for (place, c) in line.chars().enumerate() {
        if place == longest {
            return plain + " […]";
        }
        // A bidirectional override turns what follows around.
        if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
            plain.extend(c.escape_unicode());
        } else {
            plain.push(c);
        }
    }
    plain
}
