//! The results of the studies, as tables and figures.

pub(super) mod contamination;
pub(super) mod dispersion;
pub(super) mod frontier;
pub(super) mod influence;

use crate::page::{Page, Section};
use crate::table::Table;

/// The results of a study: a section of the page, and the tables of its figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Exhibit {
    /// The section.
    pub section: Section,
    /// Its tables, in the order of its figures.
    pub tables: Vec<Table>,
}

/// Builds the page of all exhibits.
pub fn page(exhibits: &[Exhibit], seed: u64) -> Page {
    let lead = "The theory without a model: batches are drawn from stated distributions, and every datum that is drawn was held against the \
                theorem named beside it. Nothing here contradicts one; a datum that did would have ended the program with its name.";
    Page {
        title: "Swiss-Knife: the theory, simulated".to_owned(),
        verdict: Vec::new(),
        lead: lead.to_owned(),
        sections: exhibits.iter().map(|exhibit| exhibit.section.clone()).collect(),
        colophon: format!("swiss-knife {} simulate --seed {seed}", env!("CARGO_PKG_VERSION")),
    }
}
