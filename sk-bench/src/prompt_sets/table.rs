//! Rows of a CSV file by the names of their columns.

use std::path::Path;

use csv::StringRecord;

use crate::Error;
use sk_report::lines;
use sk_report::record::RecordError;

/// Reads a table, gzipped or not. `read` gets the position of each row, from 0, and its fields in
/// the requested columns. It returns the reason why a row is invalid.
///
/// # Errors
/// If the file cannot be read, is not UTF-8, lacks a column, or has a row whose number of fields
/// differs from the header or that is invalid.
pub(super) fn rows<T, const N: usize>(
    path: &Path,
    columns: [&'static str; N],
    mut read: impl FnMut(usize, [&str; N]) -> Result<T, String>,
) -> Result<Vec<T>, Error> {
    let bytes = lines::read(path).map_err(RecordError::reading(path))?;
    let failed = |error: csv::Error| failure(path, &bytes, &error);
    let mut reader = csv::Reader::from_reader(bytes.as_slice());
    let header = reader.headers().map_err(failed)?.clone();
    let mut places = [0; N];
    for (place, column) in places.iter_mut().zip(columns) {
        *place = header.iter().position(|name| name == column).ok_or_else(|| {
            let found = header.iter().collect::<Vec<_>>().join(", ");
            Error::Input(format!("{}: no column \"{column}\"; found: {found}", path.display()))
        })?;
    }
    let mut rows = Vec::new();
    let mut record = StringRecord::new();
    while reader.read_record(&mut record).map_err(failed)? {
        let start = record.position().map_or(0, |position| position.byte() as usize);
        let fields = places.map(|place| record.get(place).unwrap_or_default());
        rows.push(read(rows.len(), fields).map_err(|reason| wrong(path, &bytes, start, reason))?);
    }
    Ok(rows)
}

/// Returns the error for the row at byte offset `start`.
fn wrong(path: &Path, bytes: &[u8], start: usize, reason: String) -> Error {
    RecordError::line(path, lines::line_of_row(bytes, start), reason).into()
}

fn failure(path: &Path, bytes: &[u8], error: &csv::Error) -> Error {
    let start = error.position().map_or(0, |position| position.byte() as usize);
    let reason = match error.kind() {
        csv::ErrorKind::Utf8 { .. } => "it is not UTF-8".to_owned(),
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("it has {len} fields where the header has {expected_len}; is a quotation mark missing?")
        }
        _ => error.to_string(),
    };
    wrong(path, bytes, start, reason)
}
