#![doc = include_str!("../README.md")]
#![warn(missing_debug_implementations)]

mod candidate_batch;
mod correlation;
mod dual;
mod influence;
mod max_min;
mod propagation;
mod rank;
mod raw;
mod robust;
mod tilt;

pub use candidate_batch::{CandidateBatch, DispersionUnit};
pub use correlation::{Correlation, CorrelationError};
pub use dual::Dual;
pub use influence::influence_shares;
pub use max_min::MaxMin;
pub use propagation::{Propagation, Scale};
pub use rank::Rank;
pub use raw::Raw;
pub use robust::Robust;
