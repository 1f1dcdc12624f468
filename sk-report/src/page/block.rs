use serde::Serialize;

use super::Figure;
use crate::table::Table;

/// A part of a page under a heading.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Section {
    id: String,
    title: String,
    pub(super) blocks: Vec<Block>,
}

/// What a section is made of; the template tells blocks apart by their kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase", tag = "kind", content = "of")]
pub(super) enum Block {
    /// Text.
    Paragraph(String),
    /// What is not here, and why.
    Missing(String),
    /// Figures that stand out.
    Facts(Vec<Fact>),
    /// Charts.
    Figure(Box<Figure>),
    /// A table; closed where it is of the appendix.
    Table(Box<ShownTable>),
    /// A prompt and what was answered, side by side.
    Exchange(Box<Exchange>),
}

/// A table and the prompts that its rows are about.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ShownTable {
    pub(super) table: Table,
    /// A column that names prompts, and the text of the prompt in each row; nothing where it is not
    /// known. A cell shows the beginning of the text, and all of it when pointed at.
    pub(super) prompts: Option<(usize, Vec<Option<String>>)>,
}

/// A number and what it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fact {
    /// What it is.
    pub name: String,
    /// The number, as printed.
    pub value: String,
    /// Its interval, unit, or what it is measured on.
    pub detail: String,
}

/// A prompt and its answers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Exchange {
    /// Why it is shown; the beginning of the prompt stands behind it.
    pub title: String,
    /// The dialogue that is answered.
    pub prompt: String,
    /// The answers, from left to right.
    pub answers: Vec<Answer>,
}

/// One answer of an [`Exchange`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// Who answered.
    pub heading: String,
    /// What was measured of it: name and value.
    pub figures: Vec<(String, String)>,
    /// What it says.
    pub text: String,
}

impl Section {
    /// A section without content. `id` names it in the page's address; no two sections of a page
    /// have the same.
    pub fn new(id: impl Into<String>, title: impl Into<String>) -> Self {
        Self { id: id.into(), title: title.into(), blocks: Vec::new() }
    }

    /// Adds text.
    #[must_use]
    pub fn paragraph(self, text: impl Into<String>) -> Self {
        self.block(Block::Paragraph(text.into()))
    }

    /// Says what is not here, and why.
    #[must_use]
    pub fn missing(self, text: impl Into<String>) -> Self {
        self.block(Block::Missing(text.into()))
    }

    /// Adds figures that stand out.
    #[must_use]
    pub fn facts(self, facts: Vec<Fact>) -> Self {
        self.block(Block::Facts(facts))
    }

    /// Adds charts.
    #[must_use]
    pub fn figure(self, figure: Figure) -> Self {
        self.block(Block::Figure(Box::new(figure)))
    }

    /// Adds a table.
    #[must_use]
    pub fn table(self, table: Table) -> Self {
        self.block(Block::Table(Box::new(ShownTable { table, prompts: None })))
    }

    /// Adds a table that names prompts in `column`, with the text of the prompt of each row, where
    /// it is known.
    #[must_use]
    pub fn table_on_prompts(self, table: Table, column: usize, prompts: Vec<Option<String>>) -> Self {
        self.block(Block::Table(Box::new(ShownTable { table, prompts: Some((column, prompts)) })))
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

    /// Its title.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// What is missing, if nothing else is in it: no chart, no row of a table, no number, no answer.
    pub fn lacks<'a>(&'a self) -> Option<Vec<&'a str>> {
        let content = |block: &Block| match block {
            Block::Paragraph(_) | Block::Missing(_) => false,
            Block::Facts(facts) => !facts.is_empty(),
            Block::Table(shown) => !shown.table.rows.is_empty(),
            Block::Figure(_) | Block::Exchange(_) => true,
        };
        if self.blocks.iter().any(content) {
            return None;
        }
        let missing = |block: &'a Block| if let Block::Missing(text) = block { Some(text.as_str()) } else { None };
        Some(self.blocks.iter().filter_map(missing).collect())
    }
}
