//! Output of commands: files, and values as JSON.

use std::fmt::Display;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};
use sk_models::whole_file::{self, WholeFile};

use crate::Error;

/// Writes a file atomically: after an error, the old file is unchanged.
pub(crate) fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), Error> {
    whole_file::write(path, contents.as_ref()).map_err(Error::writing(path))
}

/// Writes files as [`write`] does. All are on disk before the first gets its path, so that on Linux a
/// full disk changes none.
pub(crate) fn write_together(files: &[(PathBuf, Vec<u8>)]) -> Result<(), Error> {
    let begin = |(path, contents): &(PathBuf, Vec<u8>)| {
        let mut file = WholeFile::create(path)?;
        file.write_all(contents)?;
        file.sync().map(|()| file)
    };
    let begun = files.iter().map(|file| begin(file).map_err(Error::writing(&file.0))).collect::<Result<Vec<_>, _>>()?;
    begun.into_iter().zip(files).try_for_each(|(file, (path, _))| file.finish().map_err(Error::writing(path)))
}

/// Writes a file as [`write`] does, or standard output if the path is `-`.
pub(crate) fn write_or_print(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), Error> {
    if path.as_os_str() == "-" {
        let mut out = std::io::stdout().lock();
        return out.write_all(contents.as_ref()).and_then(|()| out.flush()).map_err(Error::Output);
    }
    write(path, contents)
}

/// Fills a folder, which is created unless it exists and is empty. After an error of `fill`, `undo`
/// removes what it wrote, so that a second attempt finds the folder as the first did.
pub(crate) fn fill_folder(path: &Path, fill: impl FnOnce() -> Result<(), Error>, undo: impl FnOnce()) -> Result<(), Error> {
    let made = !path.exists();
    let taken = |what| Err(Error::Input(format!("{} is not {what}; give a new or an empty folder", path.display())));
    match fs::read_dir(path).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => taken("empty"),
        Err(error) if error.kind() == ErrorKind::NotFound => fs::create_dir_all(path).map_err(Error::writing(path)),
        Err(error) if error.kind() == ErrorKind::NotADirectory && path.exists() => taken("a folder"),
        Err(error) => Err(Error::writing(path)(error)),
    }?;
    fill().inspect_err(|_| {
        undo();
        if made {
            let _ = fs::remove_dir(path);
        }
    })
}

/// Returns the folder `swiss-knife` in a base folder of the user: the one in the environment variable
/// `named` if it is an absolute path, or else `usual` in the home folder.
pub(crate) fn user_folder(named: &str, usual: &str) -> Option<PathBuf> {
    let named = std::env::var_os(named).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let base = named.or_else(|| std::env::home_dir().map(|home| home.join(usual)))?;
    Some(base.join("swiss-knife"))
}

/// Prints a text and a line break on standard output.
pub(crate) fn print(text: impl Display) -> Result<(), Error> {
    writeln!(anstream::stdout().lock(), "{text}").map_err(Error::Output)
}

/// Prints a text that ends with a line break on standard output.
pub(crate) fn print_lines(text: &str) -> Result<(), Error> {
    anstream::stdout().lock().write_all(text.as_bytes()).map_err(Error::Output)
}

/// Returns a value as JSON on one line.
pub(crate) fn json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::Output(error.into()))
}

/// Returns a value as JSON with one field per line.
pub(crate) fn pretty_json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string_pretty(value).map_err(|error| Error::Output(error.into()))
}

/// Serializes pairs as a map that keeps their order.
pub(crate) fn in_order<V: Serialize, S: Serializer>(pairs: &[(impl Serialize, V)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

/// Returns a report as JSON or as text.
pub(crate) fn shown(report: &(impl Serialize + Display), json: bool) -> Result<String, Error> {
    if json { pretty_json(report) } else { Ok(report.to_string()) }
}
