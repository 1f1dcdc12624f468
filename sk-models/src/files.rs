//! Files that are either whole or absent.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

/// Creates a directory and its parents.
pub(crate) fn create_dir(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Writes to a temporary file in the same directory and renames it, so that a reader never sees a part.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(parent)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    // Temporary files are private; a model is for everybody who may read the directory.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
    }
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
