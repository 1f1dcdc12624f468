//! Text files that may be gzipped, line by line, and what is wrong with a line of JSON.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

/// What a gzip file begins with. It is looked for in the contents, since files get renamed.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// A UTF-8 byte order mark, which no reader of prompts wants.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// The contents of a file, unpacked if it is gzipped, without a byte order mark.
///
/// # Errors
/// When the file cannot be opened or unpacked.
pub fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    let mut file = BufReader::new(File::open(path)?);
    let gzipped = file.fill_buf()?.starts_with(&GZIP);
    let mut reader: Box<dyn BufRead> = if gzipped { Box::new(BufReader::new(MultiGzDecoder::new(file))) } else { Box::new(file) };
    if reader.fill_buf()?.starts_with(MARK) {
        reader.read_exact(&mut [0; MARK.len()])?;
    }
    Ok(reader)
}

/// Bytes of the longest line: a device or a packed file may have one without an end.
const LONGEST_LINE: u64 = 64 << 20;
/// Bytes of the longest file that is read whole.
const LONGEST_FILE: u64 = 256 << 20;

/// The lines of a reader, without their ends. They stop after an error.
///
/// # Errors
/// Each line that cannot be read, is not UTF-8, or is longer than 64 MiB.
pub fn lines(mut reader: impl BufRead) -> impl Iterator<Item = io::Result<String>> {
    let mut next = move || {
        let mut line = Vec::new();
        reader.by_ref().take(LONGEST_LINE + 1).read_until(b'\n', &mut line)?;
        if line.len() as u64 > LONGEST_LINE {
            return Err(too_long("the line", LONGEST_LINE));
        }
        if line.is_empty() {
            return Ok(None);
        }
        if line.ends_with(b"\n") {
            line.pop();
            if line.ends_with(b"\r") {
                line.pop();
            }
        }
        let text = String::from_utf8(line);
        text.map(Some).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8"))
    };
    let mut failed = false;
    std::iter::from_fn(move || {
        let line = if failed { None } else { next().transpose() };
        // What follows a line that is too long is its rest.
        failed = line.as_ref().is_some_and(|line| line.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::InvalidData));
        line
    })
}

fn too_long(what: &str, most: u64) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("{what} is longer than {} MiB", most >> 20))
}

/// The whole contents of a file, as [`open`] shows them.
///
/// # Errors
/// When the file cannot be read or unpacked, or is longer than 256 MiB.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(LONGEST_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST_FILE { Err(too_long("it", LONGEST_FILE)) } else { Ok(bytes) }
}

/// The lines of a file that are not blank, each with its number from 1.
///
/// # Errors
/// Opening the file, and each line that cannot be read or is not UTF-8.
pub fn numbered_lines(path: &Path) -> io::Result<impl Iterator<Item = (u64, io::Result<String>)>> {
    let lines = (1..).zip(lines(open(path)?));
    Ok(lines.filter(|(_, line)| !line.as_ref().is_ok_and(|line| line.trim().is_empty())))
}

/// What is wrong with a line of JSON, by column: the parser saw one line and calls every line the
/// first.
pub fn json_fault(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.split_once(" at line ") {
        Some((fault, _)) => format!("{fault} (column {})", error.column()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    #[test]
    fn lines_are_numbered_as_an_editor_does() {
        let plain = b"\xef\xbb\xbfone\n\n  \r\ntwo\r\nthree".as_slice();
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        packer.write_all(plain).unwrap();
        for bytes in [plain.to_vec(), packer.finish().unwrap()] {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&bytes).unwrap();
            let lines: Vec<(u64, String)> =
                numbered_lines(file.path()).unwrap().map(|(number, line)| (number, line.unwrap())).collect();
            assert_eq!(lines, [(1, "one".to_owned()), (4, "two".to_owned()), (5, "three".to_owned())]);
        }
    }

    /// Sixty-four megabytes of zeros take some kilobytes when they are packed.
    #[test]
    fn a_line_without_an_end_is_refused() {
        let path = Path::new("/dev/zero");
        if path.exists() {
            let mut lines = numbered_lines(path).unwrap();
            assert_eq!(lines.next().unwrap().1.unwrap_err().kind(), io::ErrorKind::FileTooLarge);
            assert!(lines.next().is_none());
            assert_eq!(read(path).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        }
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        (0..65).for_each(|_| packer.write_all(&vec![b'a'; 1 << 20]).unwrap());
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&packer.finish().unwrap()).unwrap();
        let error = numbered_lines(file.path()).unwrap().next().unwrap().1.unwrap_err();
        assert_eq!(error.to_string(), "the line is longer than 64 MiB");
    }

    #[test]
    fn a_fault_is_told_by_its_column() {
        let error = serde_json::from_str::<u8>("[1]").unwrap_err();
        assert_eq!(json_fault(&error), "invalid type: sequence, expected u8 (column 0)");
    }
}
