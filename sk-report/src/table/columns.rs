use super::{Column, Kind, Table, Value};

/// A builder of a table from rows of one type, column by column.
///
/// ```
/// use sk_report::table::{Kind, Table};
///
/// let table = Table::of("lengths", "Words and their lengths", &["a", "bcd"])
///     .column("word", Kind::Text, |word| *word)
///     .column("letters", Kind::Count, |word| word.len())
///     .build();
/// assert_eq!(table.csv(), "word,letters\na,1\nbcd,3\n");
/// ```
#[derive(Debug, Clone)]
pub struct Columns<'a, R> {
    rows: &'a [R],
    table: Table,
}

impl Table {
    /// Starts a table of these rows, without columns.
    pub fn of<R>(id: impl Into<String>, title: impl Into<String>, rows: &[R]) -> Columns<'_, R> {
        let values = vec![Vec::new(); rows.len()];
        let table =
            Self { id: id.into(), title: title.into(), columns: Vec::new(), rows: values, notes: Vec::new(), appendix: false };
        Columns { rows, table }
    }
}

impl<'a, R> Columns<'a, R> {
    /// Adds a column: its heading, its format, and its value in a row.
    #[must_use]
    pub fn column<V: Into<Value>>(mut self, heading: impl Into<String>, kind: Kind, value: impl Fn(&'a R) -> V) -> Self {
        self.table.columns.push(Column { heading: heading.into(), kind });
        self.table.rows.iter_mut().zip(self.rows).for_each(|(values, row)| values.push(value(row).into()));
        self
    }

    /// Adds one column per heading. `value` also takes the index of the heading.
    #[must_use]
    pub fn columns<V: Into<Value>>(
        self,
        headings: impl IntoIterator<Item = impl Into<String>>,
        kind: Kind,
        value: impl Fn(&'a R, usize) -> V,
    ) -> Self {
        let headings = headings.into_iter().enumerate();
        headings.fold(self, |table, (place, heading)| table.column(heading, kind, |row| value(row, place)))
    }

    /// Returns the table.
    pub fn build(self) -> Table {
        self.table
    }
}
