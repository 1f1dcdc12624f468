//! Line-by-line reading of text files that may be gzipped, and JSON error messages.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

/// The magic number of gzip. Contents are tested rather than names, since files get renamed.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// The UTF-8 byte order mark, which is skipped.
pub const MARK: &[u8] = b"\xef\xbb\xbf";

/// Opens a file for reading. Gzip is decompressed and a byte order mark is skipped.
///
/// # Errors
/// If the file cannot be opened or decompressed.
pub fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    decoded(BufReader::new(File::open(path)?))
}

/// Decompresses and skips as [`open`] does.
///
/// # Errors
/// If the beginning cannot be read or decompressed.
pub fn decoded(mut file: impl BufRead + 'static) -> io::Result<Box<dyn BufRead>> {
    let gzipped = file.fill_buf()?.starts_with(&GZIP);
    let mut reader: Box<dyn BufRead> = if gzipped { Box::new(BufReader::new(MultiGzDecoder::new(file))) } else { Box::new(file) };
    if reader.fill_buf()?.starts_with(MARK) {
        reader.read_exact(&mut [0; MARK.len()])?;
    }
    Ok(reader)
}

/// The most bytes of a line. A device or a compressed file may contain no line break.
const LONGEST_LINE: u64 = 64 << 20;
/// The most bytes of a file that is read whole.
const LONGEST_FILE: u64 = 256 << 20;

fn too_long(what: &str, most: u64) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("{what} is longer than {} MiB", most >> 20))
}

/// Reads a whole file, opened as by [`open`].
///
/// # Errors
/// If the file cannot be read or decompressed, or is longer than 256 MiB.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(LONGEST_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST_FILE { Err(too_long("it", LONGEST_FILE)) } else { Ok(bytes) }
}

/// Returns the number of the line, from 1, on which a CSV row starts that the parser `csv` places at
/// byte `start`. For the parser, a row starts right after the first byte of a two-byte line end, and
/// includes blank lines before it.
pub fn line_of_row(bytes: &[u8], start: usize) -> u64 {
    let blank = bytes[start..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    1 + bytes[..start + blank].iter().filter(|&&byte| byte == b'\n').count() as u64
}

/// Returns the non-blank lines of a file, without line terminators and with their line numbers, from
/// 1.
///
/// # Errors
/// If the file cannot be opened, and for each line that cannot be read, is not UTF-8, or is longer
/// than 64 MiB. Stop at the first: after an overlong line, the next one starts in the middle of it.
pub fn numbered_lines(path: &Path) -> io::Result<impl Iterator<Item = (u64, io::Result<String>)>> {
    let mut reader = open(path)?;
    let lines = (1..).zip(std::iter::from_fn(move || next_line(&mut reader).transpose()));
    Ok(lines.filter(|(_, line)| !line.as_ref().is_ok_and(|line| line.trim().is_empty())))
}

fn next_line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    reader.take(LONGEST_LINE + 1).read_until(b'\n', &mut line)?;
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
}

/// Describes a JSON error by its column. The line number is dropped, because the parser saw a
/// single line and always reports line 1.
pub fn json_fault(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
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

    /// 64 MiB of zeros compress to a few kilobytes.
    #[test]
    fn a_line_without_an_end_is_refused() {
        let path = Path::new("/dev/zero");
        if path.exists() {
            let line = numbered_lines(path).unwrap().next().unwrap().1;
            assert_eq!(line.unwrap_err().kind(), io::ErrorKind::FileTooLarge);
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
        let error = serde_json::from_str::<u8>(r#""look at line 5""#).unwrap_err();
        assert_eq!(json_fault(&error), r#"invalid type: string "look at line 5", expected u8 (column 16)"#);
    }
}
