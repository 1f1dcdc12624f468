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

/// The lines of a file that are not blank, each with its number from 1.
///
/// # Errors
/// Opening the file, and each line that cannot be read or is not UTF-8.
pub fn numbered_lines(path: &Path) -> io::Result<impl Iterator<Item = (u64, io::Result<String>)>> {
    let lines = (1..).zip(open(path)?.lines());
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

    #[test]
    fn a_fault_is_told_by_its_column() {
        let error = serde_json::from_str::<u8>("[1]").unwrap_err();
        assert_eq!(json_fault(&error), "invalid type: sequence, expected u8 (column 0)");
    }
}
