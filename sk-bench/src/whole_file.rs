//! Files that are either whole or absent.

use std::io::{self, Write};
use std::path::Path;

use tempfile::NamedTempFile;

/// Writes `bytes` to a temporary file beside `path` and renames it.
///
/// # Errors
/// When the file cannot be written or renamed; what was there before is then still there.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = NamedTempFile::new_in(parent)?;
    file.write_all(bytes)?;
    persist(file, path)
}

/// Gives a finished temporary file its name.
///
/// # Errors
/// When it cannot be written out or renamed.
pub(crate) fn persist(file: NamedTempFile, path: &Path) -> io::Result<()> {
    // Temporary files are private to their owner; what a command writes is as readable as any other file.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
    }
    file.as_file().sync_all()?;
    file.persist(path).map(drop).map_err(|error| error.error)
}
