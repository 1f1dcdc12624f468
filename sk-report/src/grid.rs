//! Tables of text cells, laid out for a given line width.
//!
//! Every table for a terminal is rendered here. The caller supplies the width.

use comfy_table::{CellAlignment, Color, ColumnConstraint, ContentArrangement, LineStyle, TableStyle, Width};
use unicode_width::UnicodeWidthStr;

/// A table style with a rule under the header and no other line.
const RULED: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// The number of blank columns between two table columns.
const GAP: usize = 2;

/// The width in columns up to which a text column is not narrowed to fit other columns beside it.
const READABLE: usize = 20;

/// A table of text cells under headings.
///
/// A table that is too wide first wraps its text at word boundaries. If that is not enough, its
/// columns are split into blocks, one below the other, which all start with the same leading
/// columns. A word or number is broken only if it does not fit on a line beside those columns.
///
/// ```
/// use sk_report::grid::Grid;
///
/// let mut grid = Grid::new(["arm", "steps", "same choice"]).numbers(1..);
/// grid.row(["elo", "12", "0.250"]);
/// assert_eq!(grid.render(80), "arm  steps  same choice\n───────────────────────\nelo     12        0.250");
/// assert_eq!(grid.render(12), "arm  steps\n──────────\nelo     12\n\narm     same\n      choice\n────────────\nelo    0.250");
/// ```
#[derive(Debug, Clone)]
pub struct Grid {
    columns: Vec<GridColumn>,
    rows: Vec<Vec<String>>,
    repeated: usize,
    marked: Option<usize>,
}

#[derive(Debug, Clone)]
struct GridColumn {
    heading: String,
    numbers: bool,
}

impl Grid {
    /// Creates a table without rows, whose columns hold text.
    #[must_use]
    pub fn new<S: Into<String>>(headings: impl IntoIterator<Item = S>) -> Self {
        let columns = headings.into_iter().map(|heading| GridColumn { heading: heading.into(), numbers: false }).collect();
        Self { columns, rows: Vec::new(), repeated: 1, marked: None }
    }

    /// Marks columns as numeric: they are right-aligned and not wrapped.
    #[must_use]
    pub fn numbers(mut self, places: impl std::ops::RangeBounds<usize>) -> Self {
        let held = self.columns.iter_mut().enumerate().filter(|(place, _)| places.contains(place));
        held.for_each(|(_, column)| column.numbers = true);
        self
    }

    /// Sets how many leading columns every block repeats; the default is one.
    #[must_use]
    pub fn repeat(mut self, columns: usize) -> Self {
        self.repeated = columns;
        self
    }

    /// Adds a row.
    ///
    /// # Panics
    /// In debug builds, if the number of cells differs from the number of columns. In release builds,
    /// [`render`](Self::render) panics if a row is too short.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        debug_assert_eq!(cells.len(), self.columns.len(), "a cell per column");
        self.rows.push(cells);
    }

    /// Shows the most recently added row in green.
    pub fn mark(&mut self) {
        self.marked = self.rows.len().checked_sub(1);
    }

    /// Renders the table on lines of at most `width` columns, without a trailing newline.
    #[must_use]
    pub fn render(&self, width: usize) -> String {
        let blocks = self.blocks(width);
        let blocks: Vec<String> = blocks.iter().map(|columns| self.block(columns, width)).collect();
        blocks.join("\n\n")
    }

    /// Returns the column indices of each block.
    fn blocks(&self, width: usize) -> Vec<Vec<usize>> {
        let repeated = self.repeated.min(self.columns.len());
        // A column is not narrowed below its longest word to fit a block, nor below its whole text
        // if that is at most `READABLE` columns wide.
        let least = |place: usize| self.natural(place).min(self.shortest(place, width).max(READABLE));
        let least: Vec<usize> = (0..self.columns.len()).map(least).collect();
        let line = |columns: &[usize]| columns.iter().map(|&place| least[place] + GAP).sum::<usize>().saturating_sub(GAP);
        let whole: Vec<usize> = (0..self.columns.len()).collect();
        let mut blocks = Vec::new();
        let mut block: Vec<usize> = whole[..repeated].to_vec();
        for &place in &whole[repeated..] {
            block.push(place);
            if block.len() > repeated + 1 && line(&block) > width {
                block.pop();
                blocks.push(std::mem::replace(&mut block, whole[..repeated].iter().copied().chain([place]).collect()));
            }
        }
        blocks.push(block);
        blocks
    }

    /// Returns the width of a column without wrapping.
    fn natural(&self, place: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[place].as_str()).chain([self.columns[place].heading.as_str()]);
        cells.flat_map(str::lines).map(UnicodeWidthStr::width).max().unwrap_or(0)
    }

    fn longest_word(&self, place: usize) -> usize {
        let GridColumn { heading, numbers } = &self.columns[place];
        let of_heading = heading.split_whitespace().map(UnicodeWidthStr::width).max().unwrap_or(0);
        let cells = self.rows.iter().map(|row| row[place].as_str());
        let of_cells = if *numbers {
            cells.map(UnicodeWidthStr::width).max()
        } else {
            cells.flat_map(str::split_whitespace).map(UnicodeWidthStr::width).max()
        };
        of_heading.max(of_cells.unwrap_or(0))
    }

    /// Returns the width to which a column is narrowed: its longest word, or half the line if that word
    /// is longer than the line and has to be broken anyway.
    fn shortest(&self, place: usize, width: usize) -> usize {
        match self.longest_word(place) {
            word if word > width => width / 2,
            word => word,
        }
    }

    /// Computes the column widths of a block. Columns take their natural width if it fits.
    /// Otherwise they are narrowed down to [`shortest`](Self::shortest), and below it if that does not
    /// fit either.
    fn widths(&self, columns: &[usize], width: usize) -> Vec<usize> {
        let room = width.saturating_sub(GAP * columns.len().saturating_sub(1));
        let natural: Vec<usize> = columns.iter().map(|&place| self.natural(place)).collect();
        let shortest: Vec<usize> = columns.iter().map(|&place| self.shortest(place, width)).collect();
        let mut widths = natural.clone();
        // The widest column shrinks first, so that wrapped columns get similar widths.
        while widths.iter().sum::<usize>() > room {
            let widest =
                |least: &dyn Fn(usize) -> usize| (0..widths.len()).filter(|&i| widths[i] > least(i)).max_by_key(|&i| widths[i]);
            match widest(&|i| shortest[i]).or_else(|| widest(&|_| 1)) {
                Some(widest) => widths[widest] -= 1,
                None => break,
            }
        }
        widths
    }

    fn block(&self, columns: &[usize], width: usize) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(RULED).set_content_arrangement(ContentArrangement::Dynamic).force_no_tty();
        // The columns have fixed widths below, so the table width must only be large enough.
        table.set_width(u16::MAX);
        table.set_header(columns.iter().map(|&place| &self.columns[place].heading));
        for (number, row) in self.rows.iter().enumerate() {
            let marked = self.marked == Some(number);
            let cell = |&place: &usize| {
                let cell = comfy_table::Cell::new(&row[place]);
                if marked { cell.fg(Color::Green) } else { cell }
            };
            table.add_row(columns.iter().map(cell));
        }
        if self.marked.is_some() {
            table.enforce_styling();
        }
        let widths = self.widths(columns, width);
        for (place, column) in table.column_iter_mut().enumerate() {
            // The table style itself puts one blank between columns.
            let padding = if place + 1 < columns.len() { GAP - 1 } else { 0 };
            let fixed = u16::try_from(widths[place] + padding).unwrap_or(u16::MAX);
            column.set_padding((0, u16::try_from(padding).unwrap_or_default()));
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(fixed)));
            if self.columns[columns[place]].numbers {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.trim_fmt()
    }
}

/// Wraps a text at word boundaries to lines of at most `width` columns. Lines after the first are
/// indented by `indent` blanks. A longer word gets a line of its own.
#[must_use]
pub fn wrap(text: &str, width: usize, indent: usize) -> String {
    let mut wrapped = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        if column > 0 && column + 1 + word.width() > width {
            wrapped.push('\n');
            wrapped.push_str(&" ".repeat(indent));
            column = indent;
        } else if column > 0 {
            wrapped.push(' ');
            column += 1;
        }
        wrapped.push_str(word);
        column += word.width();
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn grid(headings: &[&str], rows: &[&[&str]]) -> Grid {
        let mut grid = Grid::new(headings.iter().copied());
        rows.iter().for_each(|row| grid.row(row.iter().copied()));
        grid
    }

    #[test]
    fn what_fits_is_one_block() {
        let grid = grid(&["name", "μ"], &[&["a", "1.25"], &["bcdef", "-10.5"]]).numbers(1..);
        assert_eq!(grid.render(12), "name       μ\n────────────\na       1.25\nbcdef  -10.5");
        assert_eq!(grid.render(12), grid.render(80));
    }

    #[test]
    fn words_wrap_before_columns_fold() {
        let grid =
            grid(&["name", "what it does", "cost"], &[&["a", "it takes the best of several candidates", "7"]]).numbers(2..);
        let rule = "─".repeat(32);
        assert_eq!(
            grid.render(32),
            format!("name  what it does          cost\n{rule}\na     it takes the best of     7\n      several candidates")
        );
    }

    #[test]
    fn a_folded_table_repeats_its_first_columns() {
        let headings = ["arm", "first", "second", "third"];
        let grid = grid(&headings, &[&["a", "0.12345", "[+0.1, +0.2]", "0.3"]]).numbers(1..);
        assert_eq!(
            grid.render(18),
            "arm    first\n────────────\na    0.12345\n\n\
             arm        second\n─────────────────\na    [+0.1, +0.2]\n\n\
             arm  third\n──────────\na      0.3"
        );
        assert!(grid.clone().repeat(0).render(18).starts_with("arm    first\n"));
        assert_eq!(grid.repeat(2).render(18).matches("first").count(), 2);
    }

    #[test]
    fn a_word_longer_than_the_line_leaves_room_for_numbers() {
        let id = "x".repeat(100);
        let grid = grid(&["id", "weights", "N", "radius"], &[&[&id, "as labelled", "7", "0.1234"]]).numbers(2..);
        let text = grid.render(80);
        assert!(text.matches("radius").count() == 1 && text.contains("as labelled"), "{text}");
        assert!(text.contains("\n") && !text.contains("\n\n") && text.lines().all(|line| line.width() <= 80), "{text}");
    }

    #[test]
    fn a_marked_row_is_green_and_as_wide() {
        let mut marked = grid(&["a", "b"], &[&["x", "two words here"]]);
        let plain = marked.render(8);
        marked.mark();
        let green = marked.render(8);
        assert!(green.contains("\u{1b}[38;5;10m") && green.len() > plain.len(), "{green:?}");
        assert_eq!(green.lines().count(), plain.lines().count());
    }

    #[test]
    fn texts_wrap_between_words() {
        assert_eq!(wrap("one two three", 8, 2), "one two\n  three");
        assert_eq!(wrap("  one  two ", 80, 2), "one two");
        assert_eq!(wrap("unbreakable x", 4, 0), "unbreakable\nx");
    }

    #[test]
    fn a_word_is_split_where_it_fits_on_no_line() {
        let grid = grid(&["name", "text"], &[&["a", "a https://example.org/very/long/address"]]);
        let text = grid.render(20);
        assert!(text.lines().all(|line| line.width() <= 20), "{text}");
        let letters = |text: &str| text.chars().filter(char::is_ascii_alphabetic).count();
        assert_eq!(letters(&text), letters("nametextaahttpsexampleorgverylongaddress"));
        assert!(grid.render(45).contains("https://example.org/very/long/address"));
    }

    /// Splits a rendered table into words. A blank inside a number is not a separator.
    fn words(text: &str) -> Vec<&str> {
        text.split_whitespace().filter(|word| !word.starts_with('─')).collect()
    }

    proptest! {
        /// No line is wider than the width, and every word of every cell is whole.
        #[test]
        fn lines_fit_and_words_stay_whole(
            headings in prop::collection::vec("[a-zμ]{1,9}( [a-z]{1,9}){0,2}", 1..9),
            cells in prop::collection::vec("[0-9.éμ|]{1,11}( [0-9.a]{1,7}){0,4}", 0..40),
            numbers in 0_usize..9,
            repeated in 0_usize..2,
            width in 40_usize..100,
        ) {
            let mut grid = Grid::new(headings.clone()).repeat(repeated);
            let count = headings.len();
            // Numbers are not wrapped, so each counts as one word here.
            let number = |place: usize, cell: &String| if place >= numbers { cell.replace(' ', "_") } else { cell.clone() };
            let of_cells = |cells: &[String]| cells.iter().enumerate().map(|(place, cell)| number(place, cell)).collect::<Vec<_>>();
            let cut = |cell: String| cell.chars().take(18).collect::<String>();
            grid = grid.numbers(numbers..);
            let rows: Vec<Vec<String>> =
                cells.chunks_exact(count).map(|row| of_cells(row).into_iter().map(cut).collect()).collect();
            rows.iter().for_each(|row| grid.row(row.clone()));
            let text = grid.render(width);
            for line in text.lines() {
                prop_assert!(line.width() <= width, "{} > {width}:\n{text}", line.width());
                prop_assert_eq!(line, line.trim_end());
            }
            let shown = words(&text);
            for word in headings.iter().chain(rows.iter().flatten()).flat_map(|cell| cell.split_whitespace()) {
                prop_assert!(shown.contains(&word), "{word}:\n{text}");
            }
            // Every cell outside the repeated columns appears once.
            let blocks = text.split("\n\n").count();
            let count_of = |places: std::ops::Range<usize>| {
                let of_row = |row: &[String]| places.clone().flat_map(|place| row.get(place)).flat_map(|cell| cell.split_whitespace()).count();
                of_row(&headings) + rows.iter().map(|row| of_row(row)).sum::<usize>()
            };
            prop_assert_eq!(shown.len(), count_of(repeated..count) + blocks * count_of(0..repeated.min(count)));
        }
    }
}
