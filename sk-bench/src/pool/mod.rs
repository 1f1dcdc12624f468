//! Shared pools: arms of an ablation that choose from the same candidates at every step of a
//! response.
//!
//! One scheme drives: it drafts the candidates, and its choices are appended. The other arms have
//! the same drafting settings and may differ in everything else. The cost of a step, one draft and
//! one scoring pass, does not depend on the number of arms. `PoolStep` holds the choices of all
//! arms at a step, and `Comparison` summarises a response. A trace can be [replayed](Recording)
//! with other arms without a model.

mod compare;
mod plan;
mod replay;
mod report;
mod step;

pub(crate) use compare::{Comparison, Summary};
pub(crate) use plan::{ArmArg, PlannedArm, companions, same_candidates, same_scores};
pub use replay::Recording;
pub(crate) use step::PoolStep;
