use serde::Serialize;

use super::table::TableView;
use crate::chart::Plot;
use crate::table::Table;

/// One or more charts under one title, with a caption and the table of their numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    id: String,
    title: String,
    caption: String,
    alt: String,
    panels: Vec<Panel>,
    /// The table of its numbers, which expands under the figure.
    table: Option<Box<TableView>>,
    /// The id of a table elsewhere on the page that has the numbers.
    elsewhere: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Panel {
    title: String,
    plot: Plot,
}

impl Figure {
    /// Creates a figure of one chart. `id` is its fragment in the page's address and must be unique
    /// on the page.
    pub fn new(id: impl Into<String>, title: impl Into<String>, plot: impl Into<Plot>) -> Self {
        Self::panels(id, title, [("", plot)])
    }

    /// Creates a figure of several charts with their own titles, side by side as far as they fit.
    pub fn panels<T: Into<String>, P: Into<Plot>>(
        id: impl Into<String>,
        title: impl Into<String>,
        panels: impl IntoIterator<Item = (T, P)>,
    ) -> Self {
        let (title, caption) = (title.into(), String::new());
        let panels = panels.into_iter().map(|(title, plot)| Panel { title: title.into(), plot: plot.into() }).collect();
        Self { id: id.into(), alt: title.clone(), title, caption, panels, table: None, elsewhere: None }
    }

    /// Sets the caption: what is shown, the sample size, and the meaning of intervals and bands.
    #[must_use]
    pub fn caption(mut self, caption: impl Into<String>) -> Self {
        self.caption = caption.into();
        self
    }

    /// Sets the text for readers who cannot see the chart. Defaults to the title.
    #[must_use]
    pub fn alt(mut self, alt: impl Into<String>) -> Self {
        self.alt = alt.into();
        self
    }

    /// Adds the table of the plotted numbers, collapsed under the figure.
    #[must_use]
    pub fn behind(mut self, table: Table) -> Self {
        self.table = Some(Box::new(TableView::of(table)));
        self
    }

    /// Refers to a table on the page that has the numbers.
    #[must_use]
    pub fn see(mut self, table: impl Into<String>) -> Self {
        self.elsewhere = Some(table.into());
        self
    }
}
