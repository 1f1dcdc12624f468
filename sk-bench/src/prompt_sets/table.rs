//! Rows of a CSV file by the names of their columns.

use std::path::{Path, PathBuf};

use csv::StringRecord;

use crate::Error;
use sk_report::lines;
use sk_report::record::RecordError;

/// A table in memory.
pub(super) struct Table<const N: usize> {
    path: PathBuf,
    bytes: Vec<u8>,
    /// The byte offset of each row, and its fields in the requested columns.
    pub(super) rows: Vec<(usize, [String; N])>,
}

impl<const N: usize> Table<N> {
    /// Reads the requested columns of a table, gzipped or not.
    ///
    /// # Errors
    /// If the file cannot be read, is not UTF-8, lacks a column, or has a row whose number of
    /// fields differs from the header.
    pub(super) fn read(path: &Path, columns: [&'static str; N]) -> Result<Self, Error> {
        let bytes = lines::read(path).map_err(RecordError::reading(path))?;
        let mut table = Self { path: path.to_owned(), bytes, rows: Vec::new() };
        table.rows = table.parse(columns)?;
        Ok(table)
    }

    fn parse(&self, columns: [&'static str; N]) -> Result<Vec<(usize, [String; N])>, Error> {
        let mut reader = csv::Reader::from_reader(self.bytes.as_slice());
        let header = reader.headers().map_err(|error| self.failure(&error))?.clone();
        let mut places = [0; N];
        for (place, column) in places.iter_mut().zip(columns) {
            *place = header.iter().position(|name| name == column).ok_or_else(|| {
                let found = header.iter().collect::<Vec<_>>().join(", ");
                Error::Input(format!("{}: no column \"{column}\"; found: {found}", self.path.display()))
            })?;
        }
        let mut rows = Vec::new();
        let mut record = StringRecord::new();
        while reader.read_record(&mut record).map_err(|error| self.failure(&error))? {
            let start = record.position().map_or(0, |position| position.byte() as usize);
            rows.push((start, places.map(|place| record.get(place).unwrap_or_default().to_owned())));
        }
        Ok(rows)
    }

    /// Returns the error for the row at byte offset `start`.
    pub(super) fn wrong(&self, start: usize, reason: String) -> Error {
        // For the parser, a row starts right after the first byte of a two-byte line end, and
        // includes blank lines before it.
        let blank = self.bytes[start..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let line = 1 + self.bytes[..start + blank].iter().filter(|&&byte| byte == b'\n').count() as u64;
        RecordError::line(&self.path, line, reason).into()
    }

    fn failure(&self, error: &csv::Error) -> Error {
        let start = error.position().map_or(0, |position| position.byte() as usize);
        let reason = match error.kind() {
            csv::ErrorKind::Utf8 { .. } => "it is not UTF-8".to_owned(),
            csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                format!("it has {len} fields where the header has {expected_len}; is a quotation mark missing?")
            }
            _ => error.to_string(),
        };
        self.wrong(start, reason)
    }
}
