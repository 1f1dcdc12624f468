//! The journal: an append-only file of judgements, from which an interrupted run resumes.

use std::path::Path;

use super::{JudgeError, Judged};
use crate::record_file::{RecordFile, RecordFileError};

/// An open file of judgements.
///
/// Each judgement is one line, which is synced to disk when it is appended. A run that is killed
/// leaves at most one incomplete last line, which the next run removes. The file is locked while it
/// is open.
#[derive(Debug)]
pub struct Journal(RecordFile);

impl Journal {
    /// Opens or creates a file of judgements, and reads the existing judgements.
    ///
    /// # Errors
    /// If the file cannot be opened, another process has it open, or a complete line is not a
    /// judgement.
    pub fn open(path: &Path) -> Result<(Self, Vec<Judged>), JudgeError> {
        let owned = || path.to_owned();
        let (file, records) = RecordFile::open(path).map_err(|error| match error {
            RecordFileError::Locked => JudgeError::Locked { path: owned() },
            RecordFileError::Write(source) => JudgeError::Write { path: owned(), source },
            RecordFileError::Records(error) => error.into(),
        })?;
        Ok((Self(file), records.into_iter().map(|(_, record)| record).collect()))
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Appends a judgement.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn append(&self, record: &Judged) -> Result<(), JudgeError> {
        self.0.append(record).map_err(|source| JudgeError::Write { path: self.path().to_owned(), source })
    }
}
