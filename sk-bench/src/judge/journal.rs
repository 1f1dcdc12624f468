//! The file of judgements: only ever appended to, and taken up again where a run stopped.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::{JudgeError, Judged};
use crate::lines::json_fault;

/// A file of judgements being written.
///
/// Each judgement is a line, on disk before the next question counts as answered. A run that is killed while it writes leaves at most a
/// part of a last line, which the next one cuts off. The file is locked while it is open.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: Mutex<File>,
}

impl Journal {
    /// Opens a file of judgements, or creates it, and reads what is there.
    ///
    /// # Errors
    /// When the file cannot be opened, another process has it open, or a line that is whole is not a judgement.
    pub fn open(path: &Path) -> Result<(Self, Vec<Judged>), JudgeError> {
        let failed = |source| JudgeError::Write { path: path.to_owned(), source };
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(JudgeError::Locked { path: path.to_owned() }),
            // A file system without locks is no reason not to judge.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|source| JudgeError::Read { path: path.to_owned(), source })?;
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let records = parse(path, &bytes[..whole])?;
        if whole < bytes.len() {
            file.set_len(whole as u64).and_then(|()| file.seek(SeekFrom::End(0))).map_err(failed)?;
        }
        Ok((Self { path: path.to_owned(), file: Mutex::new(file) }, records))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a judgement.
    ///
    /// # Errors
    /// When the file cannot be written to.
    pub fn append(&self, record: &Judged) -> Result<(), JudgeError> {
        let failed = |source| JudgeError::Write { path: self.path.clone(), source };
        let mut line = serde_json::to_vec(record).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&line).and_then(|()| file.sync_data()).map_err(failed)
    }
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<Judged>, JudgeError> {
    let mut records = Vec::new();
    for (line, text) in (1..).zip(bytes.split(|&byte| byte == b'\n')) {
        if text.trim_ascii().is_empty() {
            continue;
        }
        let wrong = |error: serde_json::Error| JudgeError::Record {
            path: path.to_owned(),
            line,
            reason: format!("it is no judgement: {}", json_fault(&error)),
        };
        records.push(serde_json::from_slice(text).map_err(wrong)?);
    }
    Ok(records)
}
