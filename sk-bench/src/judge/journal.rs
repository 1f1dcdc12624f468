//! The file of judgements: only ever appended to, and taken up again where a run stopped.

use std::path::Path;

use super::{JudgeError, Judged};
use crate::record_file::{RecordFile, RecordFileError};

/// A file of judgements being written.
///
/// Each judgement is a line, on disk before the next question counts as answered. A run that is
/// killed while it writes leaves at most a part of a last line, which the next one cuts off. The
/// file is locked while it is open.
#[derive(Debug)]
pub struct Journal(RecordFile);

impl Journal {
    /// Opens a file of judgements, or creates it, and reads what is there.
    ///
    /// # Errors
    /// When the file cannot be opened, another process has it open, or a line that is whole is not
    /// a judgement.
    pub fn open(path: &Path) -> Result<(Self, Vec<Judged>), JudgeError> {
        let owned = || path.to_owned();
        let (file, records) = RecordFile::open(path).map_err(|error| match error {
            RecordFileError::Locked => JudgeError::Locked { path: owned() },
            RecordFileError::Read(source) => JudgeError::Read { path: owned(), source },
            RecordFileError::Write(source) => JudgeError::Write { path: owned(), source },
            RecordFileError::Line { line, reason } => {
                JudgeError::Record { path: owned(), line, reason: format!("it is not a judgement: {reason}") }
            }
        })?;
        Ok((Self(file), records.into_iter().map(|(_, record)| record).collect()))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Adds a judgement.
    ///
    /// # Errors
    /// When the file cannot be written to.
    pub fn append(&self, record: &Judged) -> Result<(), JudgeError> {
        self.0.append(record).map_err(|source| JudgeError::Write { path: self.path().to_owned(), source })
    }
}
