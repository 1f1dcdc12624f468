//! What the program says on standard error. A message may quote a file, a server or a model, so
//! none of it reaches the terminal as a command.

use std::io::Write;

use owo_colors::OwoColorize;

/// Characters of a line: a message may quote a value, and a value may be as long as its file.
const LONGEST: usize = 2000;

/// Says `error: …` on one line.
pub fn error(text: &str) {
    write(&format!("{} {}", "error:".red().bold(), joined(text)));
}

/// Says `warning: …` on one line.
pub fn warning(text: &str) {
    write(&format!("warning: {}", joined(text)));
}

/// Says what is no fault, on as many lines as it has.
pub fn note(text: &str) {
    text.lines().for_each(|line| write(&plain(line)));
}

/// Says what only a reader beside the text wants to know, on one line.
pub fn aside(text: &str) {
    write(&plain(text).dimmed().to_string());
}

/// Returns a text on one line of at most 2,000 characters, with those that command a terminal
/// spelled out.
pub fn plain(text: &str) -> String {
    clipped(text, LONGEST)
}

/// Returns what a file, a server or a user said, on one line of at most `longest` characters.
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

/// Whether a terminal obeys a character: control characters, and what breaks a line or turns its
/// direction.
pub fn commands(c: char) -> bool {
    c.is_control() || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Errors of parsers have several lines.
fn joined(text: &str) -> String {
    quoted(text, LONGEST)
}

fn write(line: &str) {
    // anstream's macro would panic where standard error is closed, and there would be nobody to
    // tell.
    let _ = anstream::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_commands_no_terminal_and_has_an_end() {
        assert_eq!(plain("a\u{1b}[2Jb\u{202e}c\r\u{9b}d é"), "a\\u{1b}[2Jb\\u{202e}c\\u{d}\\u{9b}d é");
        assert_eq!(joined("one\n  two\t three"), "one two three");
        assert_eq!(plain(&"é".repeat(100_000)), "é".repeat(LONGEST) + " […]");
    }
}
