//! Append-only files of records, one JSON object per line, from which an interrupted run resumes.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::Error;
use sk_models::whole_file::has_no_locks;
use sk_report::lines::{MARK, json_fault};
use sk_report::record::RecordError;

/// A record, stored as one line.
pub(crate) trait Record: Serialize + DeserializeOwned {
    /// The name of its first field.
    const FIRST: &str;
    /// The beginning of the message of a line that is not a record.
    const IS_NOT: &str;
}

/// An open file of records.
///
/// Each record is one line, which is synced to disk when it is appended. A run that is killed
/// leaves at most one incomplete last line, which the next run removes. If the end of the file
/// cannot come from a killed run, opening fails and the file is not changed. The file is locked
/// while it is open.
#[derive(Debug)]
pub(crate) struct RecordFile {
    path: PathBuf,
    file: Mutex<File>,
}

/// An error of a file of records.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum RecordFileError {
    /// Another process has the file open.
    #[error("{} is in use by another process; wait for it, or give another output", path.display())]
    Locked { path: PathBuf },
    /// The file cannot be opened. Nothing was written.
    #[error("cannot write {}: {source}; give another output", path.display())]
    Open { path: PathBuf, source: io::Error },
    /// The file cannot be written.
    #[error("cannot write {}: {source}; what was finished is kept, run again to go on", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// The file cannot be read, or a complete line is not a record.
    #[error(transparent)]
    Records(#[from] RecordError),
}

impl RecordFileError {
    /// Returns a function that wraps an I/O error from opening `path`.
    pub(crate) fn opening(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Open { path: path.to_owned(), source }
    }

    /// Returns a function that wraps an I/O error from writing `path`.
    pub(crate) fn writing(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Write { path: path.to_owned(), source }
    }
}

/// Opens a file for reading and appending, or creates it and its folder.
///
/// Windows cannot truncate a file that is opened only for appending. There the file is opened for
/// writing, and each append first seeks to the end.
pub(crate) fn open_to_append(path: &Path) -> Result<File, RecordFileError> {
    let opening = RecordFileError::opening(path);
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(&opening)?;
    }
    let mut options = OpenOptions::new();
    options.read(true).append(cfg!(not(windows))).write(cfg!(windows)).create(true).truncate(false);
    options.open(path).map_err(opening)
}

/// Appends a record as one line, and syncs it to disk. If the line cannot be written whole, as on a
/// full disk, what was written is removed.
pub(crate) fn append_line(file: &mut File, record: &impl Record) -> io::Result<()> {
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    let before = file.metadata()?.len();
    file.seek(SeekFrom::End(0))?;
    file.write_all(&line).inspect_err(|_| drop(file.set_len(before)))?;
    file.sync_data()
}

/// Locks a file, unless the file system does not support locks. Returns `false` if it is locked
/// already.
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) if has_no_locks(&error) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Returns an error for anything but a regular file, since a device may have no end.
fn check_regular(found: &Metadata) -> io::Result<()> {
    if found.is_file() { Ok(()) } else { Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")) }
}

/// Reads the complete lines of a file of records, without changing it. The file may be missing, or
/// another process may be writing to it.
pub(crate) fn look(path: &Path) -> Result<Vec<u8>, RecordError> {
    match std::fs::metadata(path).and_then(|found| check_regular(&found)).and_then(|()| std::fs::read(path)) {
        Ok(mut bytes) => {
            bytes.truncate(whole_lines(&bytes).len());
            Ok(bytes)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(RecordError::reading(path)(error)),
    }
}

impl RecordFile {
    /// Opens a file of records, or creates it and its folder. Returns the existing records with
    /// their line numbers, from 1.
    pub(crate) fn open<T: Record>(path: &Path) -> Result<(Self, Vec<(u64, T)>), RecordFileError> {
        let mut records = Vec::new();
        let take = |line, record| {
            records.push((line, record));
            Ok::<_, RecordFileError>(())
        };
        Ok((Self::open_with(path, take)?, records))
    }

    /// Opens a file as [`open`](Self::open) does, and passes each existing record to `take` instead
    /// of collecting them. If `take` fails, the file is not changed.
    pub(crate) fn open_with<T: Record, E: From<RecordFileError>>(
        path: &Path,
        mut take: impl FnMut(u64, T) -> Result<(), E>,
    ) -> Result<Self, E> {
        let reading = |error| RecordFileError::Records(RecordError::reading(path)(error));
        let file = open_to_append(path)?;
        file.metadata().and_then(|found| check_regular(&found)).map_err(reading)?;
        if !try_lock(&file).map_err(RecordFileError::opening(path))? {
            return Err(RecordFileError::Locked { path: path.to_owned() }.into());
        }
        let locked = Self { path: path.to_owned(), file: Mutex::new(file) };
        {
            let mut file = locked.lock();
            let mut tail = Tail::read(&mut file, 0).map_err(reading)?;
            for record in records(path, tail.whole(), 0) {
                let (line, record) = record.map_err(RecordFileError::Records)?;
                take(line, record)?;
            }
            tail.cut::<T>(path, &mut file, 0)?;
        }
        Ok(locked)
    }

    fn lock(&self) -> MutexGuard<'_, File> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a record.
    pub(crate) fn append<T: Record>(&self, record: &T) -> Result<(), RecordFileError> {
        append_line(&mut self.lock(), record).map_err(RecordFileError::writing(&self.path))
    }
}

impl Drop for RecordFile {
    /// Unlocks the file explicitly. Closing it is not enough: a child process that is just being
    /// spawned inherits the open file, and with it the lock, until it executes its own program.
    fn drop(&mut self) {
        // Ignore errors: the file may not be locked.
        let _ = self.lock().unlock();
    }
}

/// Returns the complete lines of `bytes`.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1)]
}

/// The last bytes of a file of records. The last line may be incomplete.
pub(crate) struct Tail {
    start: u64,
    bytes: Vec<u8>,
}

impl Tail {
    /// Reads a file from byte `start` to its end.
    pub(crate) fn read(file: &mut File, start: u64) -> io::Result<Self> {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(start)).and_then(|_| file.read_to_end(&mut bytes))?;
        Ok(Self { start, bytes })
    }

    /// Returns the complete lines.
    pub(crate) fn whole(&self) -> &[u8] {
        whole_lines(&self.bytes)
    }

    /// Removes an incomplete last line from the file, which is at `path`. `lines` is the number of
    /// lines before the tail.
    ///
    /// # Errors
    /// If the last line cannot be the beginning of a record, or the file cannot be written. The
    /// file is then unchanged.
    pub(crate) fn cut<T: Record>(&mut self, path: &Path, file: &mut File, lines: u64) -> Result<(), RecordFileError> {
        let whole = self.whole().len();
        if whole < self.bytes.len() {
            let line = lines + self.whole().iter().filter(|&&byte| byte == b'\n').count() as u64 + 1;
            check_torn::<T>(&self.bytes[whole..]).map_err(|reason| not_a_record::<T>(path, line, &reason))?;
            let end = self.start + whole as u64;
            file.set_len(end).and_then(|()| file.seek(SeekFrom::Start(end))).map_err(RecordFileError::writing(path))?;
            self.bytes.truncate(whole);
        }
        Ok(())
    }
}

/// Checks that the end of a file can come from a killed run: it must be the beginning of a record,
/// or a complete record without its newline.
///
/// # Errors
/// If it cannot. The error is the reason.
fn check_torn<T: Record>(tail: &[u8]) -> Result<(), String> {
    // Some file systems leave zeros after a power cut.
    let tail = &tail[..tail.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)];
    let ends_early = |text: &[u8]| serde_json::from_slice::<IgnoredAny>(text).is_err_and(|error| error.is_eof());
    match serde_json::from_slice::<IgnoredAny>(tail) {
        Ok(_) => serde_json::from_slice::<T>(tail).map(drop).map_err(|error| json_fault(&error)),
        // A line that is cut inside a number, such as `-` or `0.`, becomes valid with another
        // digit.
        Err(error) if error.is_eof() || ends_early(&[tail, b"0"].concat()) => {
            if begins_like(tail, T::FIRST) {
                Ok(())
            } else {
                Err(format!("it does not begin with \"{}\"", T::FIRST))
            }
        }
        Err(error) => Err(json_fault(&error)),
    }
}

/// Returns whether `bytes` begin like an object whose first field is a string named `field`.
/// `bytes` may be shorter than that beginning.
pub(crate) fn begins_like(bytes: &[u8], field: &str) -> bool {
    format!("{{\"{field}\":\"").bytes().zip(bytes).all(|(expected, &found)| expected == found)
}

/// Checks that an output file is not one of the input files.
///
/// # Errors
/// If it is one of them, even under another path.
pub(crate) fn spare(inputs: impl IntoIterator<Item = impl AsRef<Path>>, output: &Path) -> Result<(), Error> {
    if inputs.into_iter().any(|input| same_file(input.as_ref(), output)) {
        let output = output.display();
        return Err(Error::Input(format!("{output} is an input and would be overwritten; give another output file")));
    }
    Ok(())
}

/// Returns whether two paths lead to the same file. A file that does not exist yet is known by its
/// folder and its name.
pub(crate) fn same_file(first: &Path, second: &Path) -> bool {
    let resolved = |path: &Path| {
        path.canonicalize().or_else(|error| match (path.parent(), path.file_name()) {
            (Some(folder), Some(name)) => Ok(Path::new(".").join(folder).canonicalize()?.join(name)),
            _ => Err(error),
        })
    };
    let (Ok(one), Ok(other)) = (resolved(first), resolved(second)) else { return false };
    // A hard link is another path to the same file.
    one == other
        || matches!((one.metadata(), other.metadata()), (Ok(one), Ok(other)) if inode(&one).is_some() && inode(&one) == inode(&other))
}

/// Returns whether `path` still leads to the file `opened`. On systems other than Unix, returns
/// whether it leads to any file.
pub(crate) fn leads_to(path: &Path, opened: &File) -> bool {
    matches!((path.metadata(), opened.metadata()), (Ok(named), Ok(opened)) if inode(&named) == inode(&opened))
}

/// Returns the device and inode of a file, if the system has them.
#[cfg_attr(not(unix), expect(unused_variables, reason = "there is neither"))]
fn inode(file: &Metadata) -> Option<(u64, u64)> {
    #[cfg(unix)]
    return Some((std::os::unix::fs::MetadataExt::dev(file), std::os::unix::fs::MetadataExt::ino(file)));
    #[cfg(not(unix))]
    return None;
}

/// Returns the records in the lines of `bytes`, a part of the file at `path`, with their line
/// numbers, from 1. `before` is the number of lines before this part. Blank lines and a byte order
/// mark are skipped.
pub(crate) fn records<T: Record>(path: &Path, bytes: &[u8], before: u64) -> impl Iterator<Item = Result<(u64, T), RecordError>> {
    let marked = bytes.strip_prefix(MARK).filter(|_| before == 0);
    let lines = (before + 1..).zip(marked.unwrap_or(bytes).split(|&byte| byte == b'\n'));
    lines.filter(|(_, text)| !text.trim_ascii().is_empty()).map(move |(line, text)| match serde_json::from_slice(text) {
        Ok(record) => Ok((line, record)),
        Err(error) => Err(not_a_record::<T>(path, line, &json_fault(&error))),
    })
}

fn not_a_record<T: Record>(path: &Path, line: u64, reason: &str) -> RecordError {
    RecordError::line(path, line, format!("{}: {reason}", T::IS_NOT))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use sk_report::record::SweepRecord;
    use sk_report::settings::KeptSettings;

    use super::*;
    use crate::judge::Judged;
    use crate::tune::TrialRecord;

    impl Record for Value {
        const FIRST: &str = "id";
        const IS_NOT: &str = "it is not a value";
    }

    #[test]
    fn an_end_that_no_killed_run_leaves_is_refused_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records.jsonl");
        let opened = |text: &[u8]| {
            std::fs::write(&path, text).unwrap();
            let opened = RecordFile::open::<WithId>(&path).map(|(_, records)| records.len());
            (opened, std::fs::read(&path).unwrap())
        };
        for torn in [
            "{",
            "{\"i",
            "{\"id\":\"a",
            "{\"id\":\"é",
            "{\"id\":\"a\"}",
            "{\"id\":\"a\\",
            "{\"id\":\"a\",\"x\":[1,",
            "\0\0",
            "{\"id\0",
        ] {
            let text = format!("{{\"id\":\"b\"}}\n{torn}");
            let (records, left) = opened(text.as_bytes());
            assert_eq!((records.unwrap(), left.as_slice()), (1, b"{\"id\":\"b\"}\n".as_slice()), "{torn}");
        }
        // A character that is cut in the middle.
        assert_eq!(opened(b"{\"id\":\"\xc3").0.unwrap(), 0);
        for foreign in ["settings", "{\"model\": {\"a\": 1}}", "{\"id\":1}", "{\"name\":\"x", "{\"id\": \"a", "[1, 2", "7"] {
            let (records, left) = opened(foreign.as_bytes());
            assert!(matches!(records, Err(RecordFileError::Records(RecordError::Line { line: 1, .. }))), "{foreign}");
            assert_eq!(left, foreign.as_bytes());
        }
    }

    /// Opens files that hold `line` followed by a prefix of it, for each length of the prefix.
    fn tear_everywhere<T: Record>(line: &str) {
        let line = serde_json::to_string(&serde_json::from_str::<T>(line).unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records.jsonl");
        for torn in 0..=line.len() {
            std::fs::write(&path, [line.as_bytes(), b"\n", &line.as_bytes()[..torn]].concat()).unwrap();
            let (_, records) = RecordFile::open::<T>(&path).unwrap_or_else(|error| panic!("{}: {error:?}", &line[..torn]));
            assert_eq!(records.len(), 1);
            assert_eq!(std::fs::read(&path).unwrap(), [line.as_bytes(), b"\n"].concat());
        }
    }

    #[test]
    fn an_incomplete_record_of_any_kind_is_removed() {
        let judge = r#""judge":{"model":"m","scoring":"integer","scale":"0-10","settings":"0"}"#;
        tear_everywhere::<SweepRecord>(
            r#"{"id":"a","scheme":"s","weights":{"a":0.25,"b":0.75},"prompt_id":"p","prompt":"x \u0007","seed":42,"draws":7,"response":"y\n",
               "ended":"limit","tokens":3,"steps":1,"settings":"00","device":"cpu","seconds":{"draft":1e-9,"score":0.5,"select":-2.5e-300,
               "commit":0.0},"elapsed":1.25,"trace":{"offset":0,"bytes":12}}"#,
        );
        tear_everywhere::<KeptSettings>(
            r#"{"settings":"00","sources":{"backbone":"b"},"of":{"program":"0","models":{},"precision":"f32","adapters":{"a":"1"},
               "convention":"sound","framing":"hh","max_new_tokens":256,"numbers":{"alpha":0.5,"lambda":-1.5e-7},"slots":{"beta":"0.1"}}}"#,
        );
        tear_everywhere::<TrialRecord>(
            r#"{"search":"s","trial":0,"point":{"alpha":0.5},"scores":{"a":-0.25},"responses":2,"settings":"00","elapsed":1e-7}"#,
        );
        tear_everywhere::<Judged>(&format!(
            r#"{{"id":"a","weights":{{"a":0.5}},"digest":"0","rubric":"r","rubric_version":1,"pass":0,{judge},"score":0.5,"seconds":1.5e-9}}"#
        ));
    }

    #[derive(Debug, serde::Serialize, serde::Deserialize)]
    struct WithId {
        id: String,
    }

    impl Record for WithId {
        const FIRST: &str = "id";
        const IS_NOT: &str = "it has no id";
    }

    #[cfg(unix)]
    #[test]
    fn a_file_is_the_same_by_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("one"), "").unwrap();
        std::fs::write(at("other"), "").unwrap();
        std::os::unix::fs::symlink("one", at("link")).unwrap();
        std::fs::hard_link(at("one"), at("hard")).unwrap();
        for name in ["one", "./one", "link", "hard"] {
            assert!(same_file(&at("one"), &at(name)), "{name}");
        }
        assert!(same_file(&at("missing"), &folder.path().join("./missing")));
        assert!(!same_file(&at("one"), &at("other")) && !same_file(&at("one"), &at("missing")));
        assert!(!same_file(&at("nowhere/missing"), &at("missing")));
    }

    #[test]
    fn a_lock_ends_with_its_holder_even_if_a_child_inherits_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records.jsonl");
        let (held, _) = RecordFile::open::<Value>(&path).unwrap();
        assert!(matches!(RecordFile::open::<Value>(&path), Err(RecordFileError::Locked { .. })));
        let inherited = held.lock().try_clone().unwrap();
        drop(held);
        let (again, records) = RecordFile::open::<Value>(&path).unwrap();
        assert!(records.is_empty());
        drop((inherited, again));
    }

    #[test]
    fn look_neither_changes_the_file_nor_waits_for_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records.jsonl");
        assert!(look(&path).unwrap().is_empty() && !path.exists());
        let (held, _) = RecordFile::open::<Value>(&path).unwrap();
        held.append(&Value::from(1)).unwrap();
        // A line that another process is writing.
        std::fs::write(&path, "1\n{\"tri").unwrap();
        assert_eq!(look(&path).unwrap(), b"1\n");
        assert_eq!(std::fs::read(&path).unwrap(), b"1\n{\"tri");
    }
}
