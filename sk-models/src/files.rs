//! Files on disk or inside the program.

use std::{
    fs::{self, File},
    io::{self, BufRead, Read},
    ops::Range,
    path::Path,
};

use crate::assets;
pub(crate) use crate::whole_file::write as write_atomically;

/// The contents of a file.
///
/// A file on disk is read, not mapped. If another process shortens it, reading returns an error; a
/// mapping would kill the program.
#[derive(Debug)]
pub(crate) enum Contents {
    /// On disk.
    OnDisk {
        /// The open file. It stays the same if another one takes its path.
        file: File,
        /// Its length when it was opened.
        length: usize,
    },
    /// Inside the program.
    Embedded(&'static [u8]),
}

impl Contents {
    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::OnDisk { length, .. } => *length,
            Self::Embedded(bytes) => bytes.len(),
        }
    }

    /// Returns the bytes at a place, which are read to `buffer` if they are on disk.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or ends before.
    ///
    /// # Panics
    ///
    /// If an embedded file ends before.
    pub(crate) fn bytes<'a>(&'a self, place: Range<usize>, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        match self {
            Self::OnDisk { file, .. } => {
                buffer.resize(place.len(), 0);
                read_exact_at(file, buffer, place.start as u64).map_err(|error| match error.kind() {
                    io::ErrorKind::UnexpectedEof => {
                        io::Error::new(error.kind(), "the file was shortened while it was in use; fetch it again")
                    }
                    _ => error,
                })?;
                Ok(buffer)
            }
            Self::Embedded(bytes) => Ok(&bytes[place]),
        }
    }

    /// Calls `see` with all bytes, piece by piece.
    ///
    /// # Errors
    ///
    /// As [`bytes`](Self::bytes).
    pub(crate) fn visit(&self, see: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        const PIECE: usize = 1 << 20;
        let mut buffer = Vec::new();
        for start in (0..self.len()).step_by(PIECE) {
            see(self.bytes(start..self.len().min(start + PIECE), &mut buffer)?);
        }
        Ok(())
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        let count = std::os::windows::fs::FileExt::seek_read(file, buffer, offset)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer = &mut buffer[count..];
        offset += count as u64;
    }
    Ok(())
}

/// Opens a file without reading it.
pub(crate) fn open(path: &Path) -> io::Result<Contents> {
    if let Some(bytes) = assets::find(path) {
        return bytes.map(Contents::Embedded);
    }
    check_regular(path)?;
    let file = File::open(path)?;
    let length = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
    Ok(Contents::OnDisk { file, length })
}

/// Reads a file.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    assets::find(path).map_or_else(|| check_regular(path).and_then(|()| fs::read(path)), |bytes| bytes.map(<[u8]>::to_vec))
}

/// Rejects paths that are not regular files, since opening a pipe may block forever and a device
/// may be endless.
fn check_regular(path: &Path) -> io::Result<()> {
    let found = fs::metadata(path)?;
    if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if found.is_file() { Ok(()) } else { Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")) }
}

/// Reads a text file.
pub(crate) fn read_to_string(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

/// Bytes of the longest line. A device or a packed file may have an endless one.
const LONGEST_LINE: u64 = 64 << 20;

/// Returns the lines of a reader, without their ends. After an error, ask for no more lines.
pub(crate) fn lines(mut reader: impl BufRead) -> impl Iterator<Item = io::Result<String>> {
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        if let Err(error) = reader.by_ref().take(LONGEST_LINE + 1).read_until(b'\n', &mut line) {
            return Some(Err(error));
        }
        if line.len() as u64 > LONGEST_LINE {
            let reason = format!("a line is longer than {} MiB", LONGEST_LINE >> 20);
            return Some(Err(io::Error::new(io::ErrorKind::FileTooLarge, reason)));
        }
        if line.is_empty() {
            return None;
        }
        let end = line.strip_suffix(b"\n").map_or(line.len(), |line| line.strip_suffix(b"\r").unwrap_or(line).len());
        line.truncate(end);
        Some(String::from_utf8(line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error())))
    })
}

/// Returns whether the path is a file.
pub(crate) fn is_file(path: &Path) -> bool {
    assets::find(path).map_or_else(|| path.is_file(), |bytes| bytes.is_ok())
}

/// Returns whether the path is a directory.
pub(crate) fn is_dir(path: &Path) -> bool {
    assets::is_dir(path) || path.is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_files_are_refused() {
        let mut endless = lines(io::BufReader::new(io::repeat(0)));
        assert_eq!(endless.next().unwrap().unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        let text: Vec<String> = lines(&b"one\r\n\ntwo"[..]).map(Result::unwrap).collect();
        assert_eq!(text, ["one", "", "two"]);
    }
}
