use std::collections::HashSet;
use std::path::{Path, PathBuf};

use tokenizers::NormalizedString;

use super::{HELD, Row, Tally, read};
use crate::files;
use crate::train::error::TrainError;

/// Questions whose rows are excluded, in any file and any turn.
///
/// Questions are compared by their letters and digits in NFC and lower case. The first turn always
/// counts; a later turn counts if it is longer than [`Excluded::INCIDENTAL`], since "yes, please"
/// is not a question of its own.
#[derive(Debug, Clone, Default)]
pub struct Excluded {
    questions: HashSet<String>,
}

impl Excluded {
    /// Later turns of at most this many letters and digits do not count as questions.
    pub const INCIDENTAL: usize = 25;

    /// Collects the questions of the given files: rows as [`read_rows`](super::read_rows) takes
    /// them, with or without an answer, or a `.csv` table with a column `prompt` or `question`.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, a row has no question, or a table has no such column.
    pub fn load(paths: &[PathBuf]) -> Result<Self, TrainError> {
        let mut excluded = Self::default();
        for path in paths {
            if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv")) {
                excluded.questions.extend(read_questions(path)?);
            } else {
                excluded.add(&read(path, Row::question, &mut Tally::default())?);
            }
        }
        excluded.questions.remove("");
        Ok(excluded)
    }

    /// Adds the questions of rows.
    pub(in crate::train) fn add<'a>(&mut self, rows: impl IntoIterator<Item = &'a Row>) {
        self.questions.extend(rows.into_iter().flat_map(Self::questions_of));
    }

    /// Returns the turns of a row that count as questions.
    fn questions_of(row: &Row) -> impl Iterator<Item = String> {
        let turns = row.human_turns().map(letters).enumerate();
        let counted =
            turns.filter(|(at, turn)| if *at == 0 { !turn.is_empty() } else { turn.chars().count() > Self::INCIDENTAL });
        counted.map(|(_, turn)| turn)
    }

    /// Returns whether a turn of a row that counts as a question is one of the questions.
    pub(in crate::train) fn shares(&self, row: &Row) -> bool {
        Self::questions_of(row).any(|turn| self.questions.contains(&turn))
    }

    /// Reads the rows of a file that ask none of the questions.
    pub(in crate::train) fn rows(&self, path: &Path, tally: &mut Tally) -> Result<Vec<Row>, TrainError> {
        Ok(self.without(read(path, Row::parse, tally)?, tally))
    }

    /// As [`rows`](Self::rows), but a row that is no pair is an error.
    pub(in crate::train) fn pairs(&self, path: &Path, tally: &mut Tally) -> Result<Vec<Row>, TrainError> {
        Ok(self.without(read(path, Row::pair, tally)?, tally))
    }

    fn without(&self, mut rows: Vec<Row>, tally: &mut Tally) -> Vec<Row> {
        rows.retain(|row| {
            let excluded = self.contains(row);
            if excluded {
                tally.count("with an excluded question");
            }
            !excluded
        });
        rows
    }

    /// Keeps each held-out row once, unless it asks one of the questions, which are those of the
    /// training rows. The split compares exact texts.
    pub(in crate::train) fn independent<T>(&self, mut held_out: Vec<(Row, T)>, tally: &mut Tally) -> Vec<(Row, T)> {
        let mut known = HashSet::new();
        held_out.retain(|(row, _)| {
            let what = match (self.shares(row), known.insert(row.clone())) {
                (true, _) => "held out, but with a question of the training data",
                (false, false) => "repeating a held-out pair",
                (false, true) => HELD,
            };
            tally.count(what);
            what == HELD
        });
        held_out
    }

    /// Returns whether a row asks one of the questions in any turn.
    #[must_use]
    pub fn contains(&self, row: &Row) -> bool {
        !self.questions.is_empty() && row.human_turns().any(|turn| self.questions.contains(&letters(turn)))
    }
}

/// Returns the letters and digits of a text, in NFC and lower case.
fn letters(text: &str) -> String {
    let mut composed;
    let text = if text.is_ascii() {
        text
    } else {
        composed = NormalizedString::from(text);
        composed.nfc().get()
    };
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Returns the normalised entries of the column `prompt` or `question` of a table.
fn read_questions(path: &Path) -> Result<Vec<String>, TrainError> {
    let refuse = |line: u64, reason: String| TrainError::Row { path: path.display().to_string(), line: line as usize, reason };
    let bytes = files::read(path).map_err(|source| TrainError::io(path, source))?;
    let mut table = csv::Reader::from_reader(&bytes[..]);
    let headers = table.headers().map_err(|error| refuse(1, error.to_string()))?;
    // Spreadsheets put a byte-order mark before the first name.
    let name = |header: &str| header.trim_start_matches('\u{feff}').trim().to_lowercase();
    let column = headers
        .iter()
        .position(|header| matches!(name(header).as_str(), "prompt" | "question"))
        .ok_or_else(|| refuse(1, "expected a column `prompt` or `question`".into()))?;
    table
        .records()
        .map(|record| {
            let record = record.map_err(|error| refuse(error.position().map_or(0, csv::Position::line), error.to_string()))?;
            Ok(letters(record.get(column).unwrap_or_default()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::{ASSISTANT, HUMAN, frame};
    use super::*;

    #[test]
    fn held_out_rows_are_new_and_counted_once() {
        let pair = |question: &str, chosen: &str| {
            let (chosen, rejected) = (chosen.to_owned(), "no".to_owned());
            (Row::Pair { prompt: frame(question), chosen, rejected }, ())
        };
        let mut asked = Excluded::default();
        asked.add([&pair("Why is the sky blue?", "yes").0]);
        let held_out = [("WHY IS THE SKY BLUE", "x"), ("Why?", "x"), ("Why?", "y"), ("Why?", "x")].map(|(q, a)| pair(q, a));
        let mut tally = Tally::default();
        let kept = asked.independent(held_out.to_vec(), &mut tally);
        assert_eq!(kept, [pair("Why?", "x"), pair("Why?", "y")]);
        let left_out: Vec<_> = tally.left_out().collect();
        assert_eq!(left_out, [("held out, but with a question of the training data", 1), ("repeating a held-out pair", 1)]);
    }

    #[test]
    fn composed_and_decomposed_letters_are_the_same() {
        let (composed, decomposed) = ("Où est le café ?", "Ou\u{300} est le cafe\u{301} ?");
        assert_ne!(composed, decomposed);
        assert_eq!(letters(composed), "oùestlecafé");
        assert_eq!(letters(decomposed), "oùestlecafé");
    }

    /// A later turn of 17 letters is no question of its own, whatever its bytes.
    #[test]
    fn letters_are_counted_as_characters() {
        let later = |turn: &str| Row::Text(format!("{}{}", frame("Один?"), format_args!(" Да.{HUMAN} {turn}{ASSISTANT} Вот.")));
        let mut asked = Excluded::default();
        asked.add([&later("Да, конечно, спасибо.")]);
        assert_eq!(asked.questions.len(), 1, "{asked:?}");
    }
}
