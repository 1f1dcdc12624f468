//! Word wrapping of streamed text at the width of a terminal.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The state of the current line.
///
/// A word is held back until it is complete, since it may belong on the next line. A word that is
/// longer than a line is wrapped by the terminal.
#[derive(Debug, Default)]
pub(crate) struct Wrap {
    /// Number of columns used in the current line.
    column: usize,
    /// White space after the line so far, which is dropped if the line ends here.
    blank: String,
    /// The incomplete word.
    word: String,
}

impl Wrap {
    /// Adds text, and returns the part that can be shown, wrapped to `width` columns.
    pub(crate) fn push(&mut self, text: &str, width: usize) -> String {
        let mut shown = String::new();
        for c in text.chars() {
            if c == '\n' {
                self.end_word(&mut shown, width);
                self.blank.clear();
                shown.push('\n');
                self.column = 0;
            } else if c.is_whitespace() {
                self.end_word(&mut shown, width);
                self.blank.push(c);
            } else {
                self.word.push(c);
                // A line may break after any wide character, such as a Chinese one.
                if c.width() == Some(2) {
                    self.end_word(&mut shown, width);
                }
            }
        }
        shown
    }

    /// Returns the word that was held back. The next text continues in the same line.
    pub(crate) fn finish(&mut self, width: usize) -> String {
        let mut shown = String::new();
        self.end_word(&mut shown, width);
        self.blank.clear();
        shown
    }

    /// Returns whether the last line is unfinished.
    pub(crate) fn is_open(&self) -> bool {
        self.column > 0 || !self.word.is_empty()
    }

    /// Continues at the beginning of a new line, because other output follows. Returns whether the
    /// caller must end the current line.
    pub(crate) fn restart_line(&mut self) -> bool {
        self.blank.clear();
        std::mem::take(&mut self.column) > 0
    }

    fn end_word(&mut self, shown: &mut String, width: usize) {
        if self.word.is_empty() {
            return;
        }
        let columns = self.word.width();
        if self.column + self.blank.width() + columns > width {
            if self.column > 0 {
                shown.push('\n');
            }
            self.column = 0;
        } else {
            shown.push_str(&self.blank);
            self.column += self.blank.width();
        }
        self.blank.clear();
        shown.push_str(&self.word);
        self.word.clear();
        self.column += columns;
        // The terminal has wrapped the line by itself.
        if self.column > width {
            self.column = (self.column - 1) % width.max(1) + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wrapped(pieces: &[&str], width: usize) -> String {
        let mut wrap = Wrap::default();
        let mut shown: String = pieces.iter().map(|piece| wrap.push(piece, width)).collect();
        shown += &wrap.finish(width);
        shown
    }

    #[test]
    fn lines_end_between_words() {
        assert_eq!(wrapped(&["one two three"], 8), "one two\nthree");
        assert_eq!(wrapped(&["one tw", "o thr", "ee"], 8), "one two\nthree");
        assert_eq!(wrapped(&["one two"], 7), "one two");
        assert_eq!(wrapped(&["a\n  b c"], 4), "a\n  b\nc");
        // The terminal shows "unbre", "akabl" and "e x".
        assert_eq!(wrapped(&["unbreakable x"], 5), "unbreakable x");
        assert_eq!(wrapped(&["我们走吧"], 5), "我们\n走吧");
        assert_eq!(wrapped(&["end "], 80), "end");
    }

    #[test]
    fn a_word_is_shown_once_it_is_complete() {
        let mut wrap = Wrap::default();
        assert_eq!((wrap.push("one tw", 8).as_str(), wrap.is_open()), ("one", true));
        assert_eq!(wrap.push("o ", 8), " two");
        assert_eq!(wrap.push("\n", 8), "\n");
        assert!(!wrap.is_open());
    }

    proptest! {
        /// However the text is split into pieces, no line is too long unless a word is, and only
        /// white space changes.
        #[test]
        fn words_stay_whole(pieces in prop::collection::vec("[a-zé我 \n]{0,12}", 0..12), width in 1_usize..20) {
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let shown = wrapped(&pieces, width);
            let whole = pieces.concat();
            prop_assert_eq!(&shown, &wrapped(&[&whole], width));
            let characters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            prop_assert_eq!(characters(&shown), characters(&whole));
            if !whole.contains('我') {
                prop_assert!(shown.split_whitespace().eq(whole.split_whitespace()));
                let fits = whole.split_whitespace().all(|word| word.width() <= width);
                prop_assert!(!fits || shown.lines().all(|line| line.trim_end().width() <= width), "{:?}", shown);
            }
        }
    }
}
