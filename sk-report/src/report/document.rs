use serde::Serialize;

use super::tables::Rows;
use crate::table::Table;

/// The report on one set of results: its tables, and the rows behind its charts.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The method that the others are compared with.
    pub reference: String,
    /// The number of resamples per confidence interval.
    pub resamples: usize,
    /// The seed of the resamples.
    pub seed: u64,
    /// The tables, in reading order.
    pub tables: Vec<Table>,
    /// The typed rows behind the tables, for charts.
    #[serde(skip)]
    pub(super) rows: Rows,
}

impl Report {
    /// Renders the tables as text on lines of at most `width` columns, with their notes. Appendix
    /// tables are left out.
    pub fn plain(&self, width: usize) -> String {
        let shown = self.tables.iter().filter(|table| !table.appendix);
        shown.map(|table| table.plain(width)).collect::<Vec<_>>().join("\n")
    }

    /// Returns the table with this id.
    pub fn table(&self, id: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.id == id)
    }
}
