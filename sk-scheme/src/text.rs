//! Reading of whole texts up to a maximum length, since a device or a pipe may not end.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The most bytes of a text. Plans and schemes have some thousands.
pub const LONGEST: u64 = 64 << 20;

/// Reads a file, as [`read_from`].
///
/// # Errors
/// If the file cannot be read, is not UTF-8, or is longer than [`LONGEST`] bytes.
pub fn read(path: &Path) -> io::Result<String> {
    read_from(File::open(path)?)
}

/// Reads to the end. A byte order mark is dropped, and line breaks of Windows, `\r\n`, become `\n`.
///
/// # Errors
/// As [`read`].
pub fn read_from(reader: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    reader.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        let reason = format!("it is longer than {} MiB", LONGEST >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8"))?;
    let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
    Ok(if text.contains("\r\n") { text.replace("\r\n", "\n") } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_of_windows_are_those_of_unix() {
        assert_eq!(read_from("\u{feff}one \u{feff}".as_bytes()).unwrap(), "one \u{feff}");
        assert_eq!(read_from(&b"one\r\n\r\ntwo\rthree\n"[..]).unwrap(), "one\n\ntwo\rthree\n");
    }

    #[test]
    fn what_has_no_end_is_refused() {
        assert_eq!(read_from(io::repeat(0)).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read_from(&b"\xff"[..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(read_from(&b"text"[..]).unwrap(), "text");
    }
}
