//! Sweeps over schemes × weight vectors × prompts × seeds. The results go into one file of records.
//!
//! A [`Plan`] is read from TOML and expanded to a [`Grid`] of cells, one per response. A `Worker`
//! generates the responses of cells; a `Store` hands out cells and stores the responses. A response
//! depends only on the plan and the id of its cell. The order of cells, the number of cells
//! generated at the same time, and interruptions do not change it.

mod cell;
mod completion;
mod grid;
pub(crate) mod plan;
mod run;
mod settings;
mod store;
mod worker;

pub(crate) use cell::{Cell, Weights};
pub(crate) use completion::Completion;
pub(crate) use grid::Arm;
pub use grid::Grid;
pub use plan::Plan;
pub(crate) use plan::{Generation, PlannedScheme, Questions};
pub(crate) use run::{AT_ONCE, run};
pub use settings::Digests;
pub(crate) use store::{Next, Store};
pub(crate) use worker::{Loaded, Worker};
