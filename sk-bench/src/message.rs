//! Messages on standard error. A message may quote a file, a server or a model, so control
//! characters are escaped before they reach the terminal.

use std::io::Write;

use owo_colors::OwoColorize;

/// Maximum number of characters of a line. A message may quote a value, which may be very long.
const LONGEST: usize = 2000;

/// Prints `error: …` on one line.
pub fn error(text: &str) {
    write(&format!("{} {}", "error:".red().bold(), joined(text)));
}

/// Prints `warning: …` on one line.
pub fn warning(text: &str) {
    write(&format!("warning: {}", joined(text)));
}

/// Warns that an API key is sent without encryption.
pub(crate) fn exposed_key() {
    warning("the API key is sent without encryption; use an address that begins with https://");
}

/// Prints a text that is not an error. It may have several lines.
pub fn note(text: &str) {
    text.lines().for_each(|line| write(&plain(line)));
}

/// Prints secondary information on one line, dimmed.
pub fn aside(text: &str) {
    write(&plain(text).dimmed().to_string());
}

/// Returns a text on one line of at most 2,000 characters, with terminal control characters spelled
/// out.
pub fn plain(text: &str) -> String {
    clipped(text, LONGEST)
}

/// Returns a text from a file, a server or a user on one line of at most `longest` characters.
pub fn quoted(text: &str, longest: usize) -> String {
    clipped(&text.split_whitespace().collect::<Vec<_>>().join(" "), longest)
}

fn clipped(text: &str, longest: usize) -> String {
    let mut plain = String::new();
    for (place, c) in text.chars().enumerate() {
        if place == longest {
            return plain + " […]";
        }
        if commands(c) {
            plain.extend(c.escape_unicode());
        } else {
            plain.push(c);
        }
    }
    plain
}

/// Returns whether a character controls the terminal: control characters, line breaks and changes
/// of text direction.
pub fn commands(c: char) -> bool {
    c.is_control() || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Joins the lines of a message, such as that of a parser, and treats it as [`plain`] does.
pub(crate) fn joined(text: &str) -> String {
    quoted(text, LONGEST)
}

fn write(line: &str) {
    // anstream's macro would panic if standard error is closed, and the panic message would be
    // lost, too.
    let _ = anstream::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_escaped_and_truncated() {
        assert_eq!(plain("a\u{1b}[2Jb\u{202e}c\r\u{9b}d é"), "a\\u{1b}[2Jb\\u{202e}c\\u{d}\\u{9b}d é");
        assert_eq!(joined("one\n  two\t three"), "one two three");
        assert_eq!(plain(&"é".repeat(100_000)), "é".repeat(LONGEST) + " […]");
    }
}
