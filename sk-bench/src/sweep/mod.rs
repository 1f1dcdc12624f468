//! Sweeps over schemes × weight vectors × prompts × seeds. The results go into one file of records.
//!
//! A [`Plan`] is read from TOML and expanded to a [`Grid`] of [`Cell`]s, one per response. A
//! [`Worker`] generates the responses of cells; a [`Store`] hands out cells and stores the
//! responses. A response depends only on the plan and the id of its cell. The order of cells, the
//! number of cells generated at the same time, and interruptions do not change it.

mod cell;
mod completion;
mod grid;
pub(crate) mod plan;
mod run;
mod settings;
mod store;
mod worker;

pub use cell::{Cell, Weights};
pub use completion::Completion;
pub use grid::{Arm, Grid};
pub use plan::{Generation, Plan, PlannedScheme, Questions};
pub use run::{AT_ONCE, SweepProgress, run};
pub use settings::Digests;
pub use store::{Claim, Next, Store};
pub use worker::{Loaded, Worker};
