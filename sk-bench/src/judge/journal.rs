//! The journal: an append-only file of judgements, from which an interrupted run resumes.

use std::path::Path;

use super::Judged;
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
    pub fn open(path: &Path) -> Result<(Self, Vec<Judged>), RecordFileError> {
        let (file, records) = RecordFile::open(path)?;
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
    pub fn append(&self, record: &Judged) -> Result<(), RecordFileError> {
        self.0.append(record)
    }
}
