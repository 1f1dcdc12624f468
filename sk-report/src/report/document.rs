use serde::Serialize;

use super::tables::{self, Rows};
use super::{RawResults, ReportError, Resampling};
use crate::table::Table;

/// Tables on one set of results.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The method that the others are compared with.
    pub reference: String,
    /// Resamples per interval.
    pub resamples: usize,
    /// Seed of the resamples.
    pub seed: u64,
    /// The tables, in reading order.
    pub tables: Vec<Table>,
    /// What the tables hold, for charts.
    #[serde(skip)]
    pub(super) rows: Rows,
}

impl Report {
    /// Computes every table that the results allow.
    ///
    /// # Errors
    /// When `reference` is not among the methods.
    pub fn of(results: &RawResults, reference: &str, resampling: Resampling) -> Result<Self, ReportError> {
        let (tables, rows) = tables::all(results, reference, resampling)?;
        Ok(Self { reference: reference.to_owned(), resamples: resampling.resamples, seed: resampling.seed, tables, rows })
    }

    /// The tables as text on lines of at most `width` columns, with their notes; those of the appendix
    /// are left out.
    pub fn plain(&self, width: usize) -> String {
        let shown = self.tables.iter().filter(|table| !table.appendix);
        shown.map(|table| table.plain(width)).collect::<Vec<_>>().join("\n")
    }

    /// The table of a name.
    pub fn table(&self, id: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.id == id)
    }
}
