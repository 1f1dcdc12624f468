//! Files on disk or inside the program.

use std::{
    fs::{self, File},
    io,
    ops::{Deref, Range},
    path::Path,
};

use memmap2::Mmap;
#[cfg(unix)]
use memmap2::UncheckedAdvice;

use crate::assets;
pub(crate) use crate::whole_file::write as write_atomically;

/// The contents of a file.
#[derive(Debug)]
pub(crate) enum Contents {
    /// On disk, mapped.
    Mapped(Mmap),
    /// Inside the program.
    Embedded(&'static [u8]),
}

impl Contents {
    /// Releases the memory of bytes that have been read. They are read from disk again if needed.
    pub(crate) fn release(&self, bytes: Range<usize>) {
        #[cfg(unix)]
        if let Self::Mapped(map) = self {
            // SAFETY: pages of a file that are mapped to be read, and of which there is no other
            // copy to lose, come back as they were. Without this they stay in memory, and the rest
            // is the same.
            let _ = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, bytes.start, bytes.len()) };
        }
        #[cfg(not(unix))]
        let _ = bytes;
    }
}

impl Deref for Contents {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Embedded(bytes) => bytes,
        }
    }
}

/// Opens a file without reading it.
pub(crate) fn open(path: &Path) -> io::Result<Contents> {
    if let Some(bytes) = assets::find(path) {
        return bytes.map(Contents::Embedded);
    }
    check_regular(path)?;
    let file = File::open(path)?;
    // SAFETY: the map is read-only and private to this process's view of the file. As with every
    // mapped file, a writer that truncates it while it is read would fault; checkpoints are
    // replaced by renaming, never in place.
    unsafe { Mmap::map(&file) }.map(Contents::Mapped)
}

/// Reads a file.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    assets::find(path).map_or_else(|| check_regular(path).and_then(|()| fs::read(path)), |bytes| bytes.map(<[u8]>::to_vec))
}

/// Refuses what is not a regular file: to open a pipe may take for ever, and a device may have no
/// end.
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

/// Whether the path is a file.
pub(crate) fn is_file(path: &Path) -> bool {
    assets::find(path).map_or_else(|| path.is_file(), |bytes| bytes.is_ok())
}

/// Whether the path is a directory.
pub(crate) fn is_dir(path: &Path) -> bool {
    assets::is_dir(path) || path.is_dir()
}

/// Creates a directory and its parents.
pub(crate) fn create_dir(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}
