use serde::Serialize;

use super::block::ShownTable;
use crate::chart::Plot;
use crate::table::Table;

/// Charts under one title, with a caption and the table of what they show.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    id: String,
    title: String,
    caption: String,
    alt: String,
    panels: Vec<Panel>,
    #[serde(flatten)]
    behind: Option<Behind>,
}

/// One chart of a figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Panel {
    title: String,
    plot: Plot,
}

/// Where a figure's numbers stand.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Behind {
    /// In a table of its own, which opens under the figure.
    Table(Box<ShownTable>),
    /// In a table elsewhere on the page, by its short name.
    Elsewhere(String),
}

impl Figure {
    /// A figure of one chart. `id` names it in the page's address; no two figures of a page have
    /// the same.
    pub fn new(id: impl Into<String>, title: impl Into<String>, plot: impl Into<Plot>) -> Self {
        let panel = Panel { title: String::new(), plot: plot.into() };
        Self { panels: vec![panel], ..Self::panels(id, title) }
    }

    /// A figure of several charts side by side, as many as fit; [`panel`](Self::panel) adds them.
    pub fn panels(id: impl Into<String>, title: impl Into<String>) -> Self {
        let title = title.into();
        Self { id: id.into(), alt: title.clone(), title, caption: String::new(), panels: Vec::new(), behind: None }
    }

    /// Adds a chart with its own title.
    #[must_use]
    pub fn panel(mut self, title: impl Into<String>, plot: impl Into<Plot>) -> Self {
        self.panels.push(Panel { title: title.into(), plot: plot.into() });
        self
    }

    /// What is shown, of how many, and what an interval or a band is.
    #[must_use]
    pub fn caption(mut self, caption: impl Into<String>) -> Self {
        self.caption = caption.into();
        self
    }

    /// What somebody who cannot see the chart should know; the title, unless given.
    #[must_use]
    pub fn alt(mut self, alt: impl Into<String>) -> Self {
        self.alt = alt.into();
        self
    }

    /// The table of what is drawn, closed under the figure.
    #[must_use]
    pub fn behind(mut self, table: Table) -> Self {
        self.behind = Some(Behind::Table(Box::new(ShownTable { table, prompts: None })));
        self
    }

    /// Points to a table of the page that has the numbers.
    #[must_use]
    pub fn see(mut self, table: impl Into<String>) -> Self {
        self.behind = Some(Behind::Elsewhere(table.into()));
        self
    }
}
