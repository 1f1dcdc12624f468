//! Files that are either complete or absent.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, BufWriter, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

/// Writes `bytes` to `path` as [`WholeFile`] does.
///
/// # Errors
/// If the file cannot be written or renamed. The previous contents are then unchanged, unless the
/// file is mounted.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = WholeFile::create(path)?;
    file.write_all(bytes)?;
    file.finish()
}

/// Returns whether a file could not be locked because its file system has no locks, such as NFS
/// without a lock service.
#[must_use]
pub fn has_no_locks(error: &io::Error) -> bool {
    #[cfg(target_os = "linux")]
    if error.raw_os_error() == Some(rustix::io::Errno::NOLCK.raw_os_error()) {
        return true;
    }
    // ENOTSUP and ENOLCK.
    #[cfg(target_vendor = "apple")]
    if matches!(error.raw_os_error(), Some(45 | 77)) {
        return true;
    }
    error.kind() == io::ErrorKind::Unsupported
}

/// A file that is being written. Readers of its path see either the complete file or the previous
/// contents.
///
/// Data goes to a file without a name, so a killed program leaves nothing behind; the file takes
/// its path when it is finished. A link is followed, and an existing file keeps its permissions. A
/// file that is mounted is overwritten when it is finished.
/// Other targets, such as a pipe, a device, or standard output or standard error under any of their
/// names, are written directly.
#[derive(Debug)]
pub struct WholeFile {
    file: BufWriter<File>,
    /// `None` if the target is written directly.
    target: Option<PathBuf>,
}

impl WholeFile {
    /// Starts the file that will be at `path`.
    ///
    /// # Errors
    /// If the folder is missing or not writable, or `path` is a folder.
    pub fn create(path: &Path) -> io::Result<Self> {
        let through = |file| Self { file: BufWriter::new(file), target: None };
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(found) => {
                if let Some(output) = standard_stream(&found) {
                    return Ok(through(output));
                }
                if !found.is_file() {
                    return OpenOptions::new().write(true).open(path).map(through);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let target = followed(path);
        let folder = folder(&target);
        if !folder.is_dir() {
            let reason = format!("folder {} does not exist; create it", folder.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, reason));
        }
        let file = nameless(folder).or_else(|_| tempfile::tempfile_in(folder))?;
        Ok(Self { file: BufWriter::new(file), target: Some(target) })
    }

    /// Adds all of `bytes` or nothing, so that what was added before can still be finished after an
    /// error.
    ///
    /// # Errors
    /// If the bytes cannot be written. A target that is written directly may then hold some of them.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.flush()?;
        let file = self.file.get_mut();
        if self.target.is_none() {
            return file.write_all(bytes);
        }
        let end = file.stream_position()?;
        file.write_all(bytes).inspect_err(|_| {
            // The file has no other error to report than this one.
            let _ = file.set_len(end).and_then(|()| file.seek(SeekFrom::Start(end)));
        })
    }

    /// Writes the contents so far to disk. On Linux, [`finish`](Self::finish) then only renames the
    /// file, and needs no more space for it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn sync(&mut self) -> io::Result<()> {
        self.file.flush()?;
        if self.target.is_some() { self.file.get_ref().sync_all() } else { Ok(()) }
    }

    /// Gives the file its path.
    ///
    /// # Errors
    /// If it cannot be written or renamed. The previous contents are then unchanged, unless the file
    /// is mounted.
    pub fn finish(self) -> io::Result<()> {
        let mut file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        let Some(target) = self.target else { return Ok(()) };
        file.sync_all()?;
        let kept = fs::metadata(&target).ok().map(|found| found.permissions());
        if let Some(permissions) = kept.clone() {
            file.set_permissions(permissions)?;
        }
        // Give the file a temporary name first, since it cannot take a name that exists.
        if let Ok(named) = tempfile::Builder::new().make_in(folder(&target), |path| name(&file, path)) {
            let placed = named.persist(&target).map(drop).map_err(|error| error.error);
            return placed.or_else(|error| overwrite_mounted(&mut file, &target, error));
        }
        file.rewind()?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        // The file is private until it is complete, if it keeps the permissions of an existing
        // file.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, if kept.is_none() { 0o666 } else { 0o600 });
        let mut whole = tempfile::Builder::new().make_in(folder(&target), |path| options.open(path))?;
        io::copy(&mut file, whole.as_file_mut())?;
        #[cfg(unix)]
        if let Some(permissions) = kept {
            whole.as_file().set_permissions(permissions)?;
        }
        #[cfg(not(unix))]
        drop(kept);
        whole.as_file().sync_all()?;
        let placed = whole.persist(&target).map(drop).map_err(|error| error.error);
        placed.or_else(|error| overwrite_mounted(&mut file, &target, error))
    }
}

/// Copies a file into a target that cannot be replaced because it is mounted, such as a file that a
/// container shares with its host. Returns other errors.
fn overwrite_mounted(file: &mut File, target: &Path, error: io::Error) -> io::Result<()> {
    if error.kind() != io::ErrorKind::ResourceBusy {
        return Err(error);
    }
    file.rewind()?;
    let mut target = OpenOptions::new().write(true).truncate(true).open(target)?;
    io::copy(file, &mut target)?;
    target.sync_all()
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Creates a file without a name that can be given one, with the permissions of a new file.
#[cfg(target_os = "linux")]
fn nameless(folder: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};

    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open(folder, flags, Mode::from_raw_mode(0o666))?.into())
}

/// Gives a name to a file without one.
#[cfg(target_os = "linux")]
fn name(file: &File, path: &Path) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    use rustix::fs::{AtFlags, CWD};

    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(CWD, open, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

/// Other systems have no files without a name.
#[cfg(not(target_os = "linux"))]
fn nameless(_: &Path) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Other systems cannot name an open file.
#[cfg(not(target_os = "linux"))]
fn name(_: &File, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns the target of a path, which may not exist yet.
fn followed(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| match fs::read_link(path) {
        Ok(next) => followed(&folder(path).join(next)),
        Err(_) => path.to_owned(),
    })
}

/// Returns the folder of a file, which is `.` for a bare name.
pub(crate) fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns a handle if the file is standard output or standard error. Replacing it would leave the
/// program writing to a file without a name.
#[cfg(unix)]
fn standard_stream(found: &Metadata) -> Option<File> {
    use std::os::{fd::AsFd, unix::fs::MetadataExt};
    let streams = [io::stdout().as_fd().try_clone_to_owned(), io::stderr().as_fd().try_clone_to_owned()];
    let is_same = |own: Metadata| (own.dev(), own.ino()) == (found.dev(), found.ino());
    streams.into_iter().flatten().map(File::from).find(|stream| stream.metadata().is_ok_and(is_same))
}

#[cfg(not(unix))]
fn standard_stream(_: &Metadata) -> Option<File> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::{
        os::unix::fs::{PermissionsExt, symlink},
        process::Command,
        thread,
    };

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_link_is_followed_even_to_a_missing_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("sub")).unwrap();
        symlink("sub/target", at("first")).unwrap();
        symlink("first", at("second")).unwrap();
        for text in ["new", "newer"] {
            write(&at("second"), text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(at("sub/target")).unwrap(), text);
        }
        assert!(at("second").is_symlink() && at("first").is_symlink());
        assert_eq!(names(&at("sub")), ["target"]);
    }

    #[test]
    fn a_pipe_is_written_directly() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reader = thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        write(&pipe, b"through").unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        assert_eq!(names(folder.path()), ["pipe"]);
        assert!(!fs::metadata(&pipe).unwrap().is_file());
    }

    #[test]
    fn permissions_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("private");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        write(&path, b"anybody's, as far as the umask goes").unwrap();
        File::create(folder.path().join("other")).unwrap();
        assert_eq!(mode(), fs::metadata(folder.path().join("other")).unwrap().permissions().mode() & 0o777);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        write(&path, b"mine").unwrap();
        assert_eq!((mode(), fs::read_to_string(&path).unwrap().as_str()), (0o600, "mine"));
    }

    #[test]
    fn an_unfinished_file_has_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "before").unwrap();
        let mut file = WholeFile::create(&path).unwrap();
        file.write_all(b"after").unwrap();
        file.flush().unwrap();
        assert_eq!((names(folder.path()), fs::read_to_string(&path).unwrap()), (vec!["file".to_owned()], "before".to_owned()));
        file.finish().unwrap();
        assert_eq!((names(folder.path()), fs::read_to_string(&path).unwrap()), (vec!["file".to_owned()], "after".to_owned()));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_system_without_locks_is_known_by_its_errors() {
        let without = [rustix::io::Errno::NOLCK, rustix::io::Errno::NOTSUP].map(io::Error::from);
        assert!(without.iter().all(has_no_locks), "{without:?}");
        assert!(!has_no_locks(&rustix::io::Errno::IO.into()));
    }

    #[test]
    fn errors_do_not_name_temporary_files() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(write(folder.path(), b"").unwrap_err().kind(), io::ErrorKind::IsADirectory);
        let missing = folder.path().join("missing");
        let error = write(&missing.join("file"), b"").unwrap_err();
        assert_eq!(error.to_string(), format!("folder {} does not exist; create it", missing.display()));
    }

    /// A copy would be a second file, which a killed program would leave behind.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_written_file_takes_the_path_without_a_copy() {
        use std::os::unix::fs::MetadataExt;

        let folder = tempfile::tempdir().unwrap();
        // Some file systems have no files without a name.
        if nameless(folder.path()).is_err() {
            return;
        }
        let path = folder.path().join("whole");
        for text in ["first", "second"] {
            let mut file = WholeFile::create(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            let inode = file.file.get_ref().metadata().unwrap().ino();
            file.finish().unwrap();
            assert_eq!((fs::read_to_string(&path).unwrap(), path.metadata().unwrap().ino()), (text.to_owned(), inode));
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        }
    }
}
