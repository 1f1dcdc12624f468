//! Shared pools: arms of an ablation that choose from the very same candidates, over a whole
//! response.
//!
//! One scheme drives: it drafts, and its choices are appended. The [arms](PlannedArm) agree with it
//! in what makes candidates and differ in what is made of them, so that each step costs one draft
//! and one reading whatever their number. [`PoolStep`] is what all of them make of a step,
//! [`Comparison`] of a response; a trace can be [replayed](Recording) under other arms without a
//! model.

mod compare;
mod error;
mod plan;
mod replay;
mod report;
mod step;

pub use compare::{ArmSummary, Comparison, Summary};
pub use error::{Difference, PoolError};
pub use plan::{ArmArg, PlannedArm, companions, same_candidates, same_scores};
pub use replay::Recording;
pub use step::{ArmChoice, Distributions, PoolCandidate, PoolStep};
