use std::path::PathBuf;

use csv::StringRecord;

use crate::lines;
use crate::objectives::{Objectives, Scores};
use crate::record::RecordError;
use crate::report::ReportError;

/// A CSV file with a header, whose values are validated on access.
pub(super) struct Sheet {
    pub(super) path: PathBuf,
    /// The column names in order.
    pub(super) header: StringRecord,
    rows: Vec<StringRecord>,
    bytes: Vec<u8>,
}

impl Sheet {
    pub(super) fn read(path: PathBuf) -> Result<Self, ReportError> {
        let bytes = lines::read(&path).map_err(RecordError::reading(&path))?;
        let mut reader = csv::Reader::from_reader(bytes.as_slice());
        let failed = |source| ReportError::Csv { path: path.clone(), source };
        let header = reader.headers().map_err(failed)?.clone();
        if let Some((_, column)) = header
            .iter()
            .enumerate()
            .find(|&(place, name)| !name.is_empty() && header.iter().take(place).any(|other| other == name))
        {
            return Err(ReportError::TwoColumns { path, column: column.to_owned() });
        }
        let rows: Vec<StringRecord> = reader.records().collect::<Result<_, _>>().map_err(failed)?;
        if rows.is_empty() { Err(ReportError::Empty { path }) } else { Ok(Self { path, header, rows, bytes }) }
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|record| Row { sheet: self, record })
    }
}

pub(super) struct Row<'a> {
    sheet: &'a Sheet,
    record: &'a StringRecord,
}

impl<'a> Row<'a> {
    /// Returns the line on which the row starts, from 1.
    fn line(&self) -> u64 {
        let start = self.record.position().map_or(0, |position| position.byte() as usize);
        lines::line_of_row(&self.sheet.bytes, start)
    }

    /// Returns the value of a column, or `None` if there is no such column.
    pub(super) fn optional(&self, column: &str) -> Option<&'a str> {
        let index = self.sheet.header.iter().position(|name| name == column);
        index.and_then(|index| self.record.get(index))
    }

    pub(super) fn text(&self, column: &str) -> Result<&'a str, ReportError> {
        let missing = || ReportError::Column { path: self.sheet.path.clone(), column: column.to_owned() };
        self.optional(column).ok_or_else(missing)
    }

    pub(super) fn whole(&self, column: &str) -> Result<u32, ReportError> {
        let value = self.text(column)?;
        value.parse().map_err(|_| self.wrong(column, value, "a whole number"))
    }

    /// Parses a number in [0, 1].
    pub(super) fn share(&self, column: &str) -> Result<f64, ReportError> {
        let value = self.text(column)?;
        let number = value.parse().ok().filter(|number| (0.0..=1.0).contains(number));
        number.ok_or_else(|| self.wrong(column, value, "a number from 0 to 1"))
    }

    /// Parses a number in [0, 1]; `None` if the field is empty.
    pub(super) fn blank_or_share(&self, column: &str) -> Result<Option<f64>, ReportError> {
        if self.text(column)?.is_empty() { Ok(None) } else { self.share(column).map(Some) }
    }

    /// Parses the reciprocal of a perplexity, which is above 0; `None` if there is no such column or
    /// the field is empty.
    pub(super) fn fluency(&self) -> Result<Option<f64>, ReportError> {
        let column = "fluency";
        let Some(value) = self.optional(column) else { return Ok(None) };
        match self.blank_or_share(column)? {
            Some(0.0) => Err(self.wrong(column, value, "a number above 0 and at most 1")),
            fluency => Ok(fluency),
        }
    }

    /// Parses the scores of all rubrics. Rubrics in `optional` may have no column.
    pub(super) fn scores(&self, objectives: &Objectives, optional: &[&str]) -> Result<Scores, ReportError> {
        let is_absent = |name: &str| optional.contains(&name) && self.optional(name).is_none();
        let score = |name: &str| if is_absent(name) { Ok(None) } else { self.blank_or_share(name) };
        let rubrics = objectives.rubrics.iter().map(|rubric| score(&rubric.name)).collect::<Result<_, _>>()?;
        Ok(objectives.scores(rubrics))
    }

    /// Returns the error for a response that was judged before.
    pub(super) fn duplicate(&self, method: &str, configuration: &str, prompt: u32) -> ReportError {
        let (method, configuration) = (method.to_owned(), configuration.to_owned());
        ReportError::Duplicate { path: self.sheet.path.clone(), line: self.line(), method, configuration, prompt }
    }

    pub(super) fn wrong(&self, column: &str, value: &str, expected: &'static str) -> ReportError {
        ReportError::Value {
            path: self.sheet.path.clone(),
            line: self.line(),
            column: column.to_owned(),
            value: value.to_owned(),
            expected,
        }
    }
}
