//! What the studies found, as tables and figures.

mod contamination;
mod dispersion;
mod frontier;
mod influence;

use crate::page::{Page, Section};
use crate::simulate::Simulation;
use crate::table::Table;

/// What a study shows: one section of the page, with the tables of its figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Exhibit {
    /// The name of the study.
    pub name: &'static str,
    /// The section.
    pub section: Section,
    /// Its tables, in the order of its figures.
    pub tables: Vec<Table>,
}

/// An exhibit per study that was done.
pub fn exhibits(simulation: &Simulation) -> Vec<Exhibit> {
    let studies = [
        simulation.contamination.as_ref().map(contamination::exhibit),
        simulation.influence.as_ref().map(influence::exhibit),
        simulation.dispersion.as_ref().map(dispersion::exhibit),
        simulation.frontier.as_ref().map(frontier::exhibit),
    ];
    studies.into_iter().flatten().collect()
}

/// The page of all exhibits.
pub fn page(exhibits: &[Exhibit], seed: u64) -> Page {
    let lead = "The theory without a model: batches are drawn from stated distributions, and every datum that is drawn was held against the \
                theorem named beside it. Nothing here contradicts one; a datum that did would have ended the program with its name.";
    let page = exhibits
        .iter()
        .fold(Page::new("Swiss-Knife: the theory, simulated").lead(lead), |page, exhibit| page.section(exhibit.section.clone()));
    page.colophon(format!("swiss-knife {} simulate --seed {seed}", env!("CARGO_PKG_VERSION")))
}
