use serde::Serialize;

use super::Figure;
use super::table::TableView;
use crate::table::Table;

/// A section of a page, with a heading.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Section {
    id: String,
    title: String,
    pub(super) blocks: Vec<Block>,
}

/// A block of a section. The template distinguishes blocks by their kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase", tag = "kind", content = "of")]
pub(super) enum Block {
    /// Text.
    Paragraph(String),
    /// A note on what is missing, and why.
    Missing(String),
    /// Key numbers.
    Facts(Vec<Fact>),
    /// Charts.
    Figure(Box<Figure>),
    /// A table, collapsed if it belongs to the appendix.
    Table(Box<TableView>),
    /// A prompt and its answers, side by side.
    Exchange(Box<Exchange>),
}

/// A key number with its name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fact {
    /// The name of the number.
    pub name: String,
    /// The number, as printed.
    pub value: String,
    /// Its confidence interval, unit, or sample.
    pub detail: String,
}

/// A prompt and its answers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Exchange {
    /// The reason why it is shown. The beginning of the prompt follows it.
    pub title: String,
    /// The dialogue to be answered.
    pub prompt: String,
    /// The answers, from left to right.
    pub answers: Vec<Answer>,
}

/// One answer of an [`Exchange`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// The name of the method or model.
    pub heading: String,
    /// Measurements of the answer, as name and value.
    pub figures: Vec<(String, String)>,
    /// The text of the answer.
    pub text: String,
}

impl Section {
    /// Creates an empty section. `id` is its fragment in the page's address and must be unique on
    /// the page.
    pub fn new(id: impl Into<String>, title: impl Into<String>) -> Self {
        Self { id: id.into(), title: title.into(), blocks: Vec::new() }
    }

    /// Adds a paragraph.
    #[must_use]
    pub fn paragraph(self, text: impl Into<String>) -> Self {
        self.block(Block::Paragraph(text.into()))
    }

    /// Adds a note on what is missing, and why.
    #[must_use]
    pub fn missing(self, text: impl Into<String>) -> Self {
        self.block(Block::Missing(text.into()))
    }

    /// Adds key numbers.
    #[must_use]
    pub fn facts(self, facts: Vec<Fact>) -> Self {
        self.block(Block::Facts(facts))
    }

    /// Adds a figure.
    #[must_use]
    pub fn figure(self, figure: Figure) -> Self {
        self.block(Block::Figure(Box::new(figure)))
    }

    /// Adds a table.
    #[must_use]
    pub fn table(self, table: Table) -> Self {
        self.block(Block::Table(Box::new(TableView::of(table))))
    }

    /// Adds a table whose last `count` rows summarise the others. Sorting the table leaves them
    /// last.
    #[must_use]
    pub fn table_with_summary(self, table: Table, count: usize) -> Self {
        self.block(Block::Table(Box::new(TableView::of(table).summarized(count))))
    }

    /// Adds a table whose `column` names prompts. `prompts` holds the prompt text of each row,
    /// `None` if unknown. A cell shows the beginning of the text, and its tooltip the whole text.
    #[must_use]
    pub fn table_on_prompts(self, table: Table, column: usize, prompts: &[Option<String>]) -> Self {
        self.block(Block::Table(Box::new(TableView::of(table).naming(column, prompts))))
    }

    /// Adds a prompt and its answers.
    #[must_use]
    pub fn exchange(self, exchange: Exchange) -> Self {
        self.block(Block::Exchange(Box::new(exchange)))
    }

    fn block(mut self, block: Block) -> Self {
        self.blocks.push(block);
        self
    }

    /// Returns the title.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Returns the notes on missing content if the section has no other content: no figure, table
    /// row, key number or exchange.
    pub fn lacks<'a>(&'a self) -> Option<Vec<&'a str>> {
        let content = |block: &Block| match block {
            Block::Paragraph(_) | Block::Missing(_) => false,
            Block::Facts(facts) => !facts.is_empty(),
            Block::Table(table) => !table.rows.is_empty(),
            Block::Figure(_) | Block::Exchange(_) => true,
        };
        if self.blocks.iter().any(content) {
            return None;
        }
        let missing = |block: &'a Block| if let Block::Missing(text) = block { Some(text.as_str()) } else { None };
        Some(self.blocks.iter().filter_map(missing).collect())
    }
}
