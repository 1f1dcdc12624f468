//! Simulation: the theory made visible without a model.
//!
//! Each study draws batches from a stated generator with a stated seed, computes what a theorem
//! speaks of, and checks the theorem on every datum it shows. What contradicts it is a
//! [`Contradiction`], which names both. A study that passes has found no counterexample in its
//! batches; it proves nothing.
//!
//! | study | shows |
//! |---|---|
//! | [`contamination`] | `thm:robust`: total variation against contamination, for argmax and members of the family, with the published and the sharpened bounds |
//! | [`influence`] | `thm:cbn` (i) and (ii): who decides as one blade is rescaled, with and without CBN |
//! | [`dispersion`] | `app:cor:decomp`, `cor:multiset`: real, shuffled and zero σ as σ-informativeness grows |
//! | [`frontier`] | `thm:cbn` (iii): which weights reach which candidates of the frontier |
//!
//! Operators and normalisers are parameters, so that a broken one can be put in their place: the
//! checks must then fail.

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
pub use simulation::{Breakage, STUDIES, exhibits};
