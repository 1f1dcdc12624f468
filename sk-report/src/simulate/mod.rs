//! Simulation: checks of the theory without a model.
//!
//! Each study draws batches from a stated distribution with a stated seed, computes the quantities
//! of a theorem, and checks the theorem on every datum it shows. A violation is a
//! [`Contradiction`], which names the theorem and the datum. A study that passes has found no
//! counterexample in its batches; it proves nothing.
//!
//! | study | shows |
//! |---|---|
//! | [`contamination`] | `thm:robust`: total variation against contamination, for argmax and members of the family, with the published and the sharpened bounds |
//! | [`influence`] | `thm:cbn` (i) and (ii): who decides as one blade is rescaled, with and without CBN |
//! | [`dispersion`] | `app:cor:decomp`, `cor:multiset`: real, shuffled and zero σ as σ-informativeness grows |
//! | [`frontier`] | `thm:cbn` (iii): which weights reach which candidates of the frontier |
//!
//! Operators and normalisers are parameters, so that tests can substitute broken ones, which the
//! checks must detect.

pub mod contamination;
pub mod dispersion;
mod error;
mod figures;
pub mod frontier;
pub mod influence;
mod sampling;
mod simulation;

pub use error::{Contradiction, SimulationError};
pub use figures::{Exhibit, page};
pub use sampling::Mean;
pub use simulation::{DEFECTS, STUDIES, exhibits};
