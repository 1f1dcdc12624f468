//! Sweeps: schemes × weight vectors × prompts × seeds, into one file of records.
//!
//! A [`Plan`] is read from TOML and laid out as a [`Grid`] of [`Cell`]s: one response each. A
//! [`Worker`] answers cells, a [`Store`] hands them out and keeps the answers. Everything a cell
//! depends on follows from the plan and the cell's own name, so that neither the order of cells, nor
//! how many are answered at once, nor an interruption changes a byte of a response.

mod cell;
mod completion;
mod error;
mod grid;
pub(crate) mod plan;
mod run;
mod settings;
mod store;
mod worker;

pub use cell::{Cell, Weights};
pub use completion::Completion;
pub use error::SweepError;
pub use grid::{Arm, Grid};
pub use plan::{Generation, Plan, PlannedScheme, Questions};
pub use run::{AT_ONCE, SweepProgress, run};
pub use settings::Digests;
pub use store::{Claim, Next, Store};
pub use worker::{Loaded, Worker};
