#![doc = include_str!("../README.md")]

mod candidate_batch;
mod correlation;
mod influence;
mod propagation;
mod rank;
mod raw;
mod robust;

pub use candidate_batch::{CandidateBatch, DispersionUnit};
pub use correlation::{Correlation, CorrelationError};
pub use influence::influence_shares;
pub use propagation::Propagation;
pub use rank::Rank;
pub use raw::Raw;
pub use robust::Robust;
