#![doc = include_str!("../README.md")]
#![warn(missing_debug_implementations)]

mod aggregator;
mod arm;
mod backbone;
mod batch;
mod blade;
mod candidates;
mod context;
mod decision;
mod delimited;
mod divergence;
mod engine;
mod error;
mod granularity;
mod normalizer;
mod operating_point;
mod proposal;
mod rack;
mod readings;
mod scheme;
mod score;
mod scratch;
mod search;
mod selector;
mod simplex;
mod spec;
mod standardize;
mod trace;
mod traffic;
mod weighting;

// Generators of random numbers are in the interface.
pub use rand;

pub use aggregator::Aggregator;
pub use arm::Arm;
pub use backbone::Backbone;
pub use batch::{Batch, Composite, Picked};
pub use blade::{Blade, Observation};
pub use candidates::{Candidate, Candidates, PartialSpan, SpanEnd};
pub use context::Context;
pub use decision::{Decision, Operators};
pub use delimited::Delimited;
pub use divergence::Divergence;
pub use engine::{DraftModel, Drafting, Engine, Generation, HeadKind, Merge, Prior, Sampling, TimeLeft, VocabularyHead};
pub use error::{BoxError, CandidatesError, ParameterError, ReadingsError, ScoreError, SimplexError, SpecError, StepError};
pub use granularity::{Capped, Granularity, Response, Token, Uncertain};
pub use normalizer::Normalizer;
pub use operating_point::OperatingPoint;
pub use proposal::{DraftRequest, Proposal};
pub use rack::{Instruction, InstructionRack, Rack};
pub use readings::{Policy, Reading, Readings};
pub use scheme::{Fallback, Scheme};
pub use score::{Score, ScoreTable};
pub use scratch::Scratch;
pub use search::{Race, Search, Settled, Waves};
pub use selector::{Selector, draw, draw_at};
pub use simplex::Simplex;
pub use spec::{AlignmentSpec, Seat, SpecHandle};
pub use standardize::{Deviation, Moments, Standardize, merge_ties, mid_ranks};
pub use trace::{ArmTrace, BatchTrace, CandidateTrace, Ended, ScoreTrace, Seconds, StepTrace};
pub use traffic::Traffic;
pub use weighting::{Fixed, Weighting};

/// A token id of the model's vocabulary. Ids are authoritative: spans are appended as ids and never
/// re-encoded from text.
pub type TokenId = u32;

/// The floating-point type of scores: `f32` or `f64`.
pub trait Real: num_traits::Float + std::fmt::Debug + Default + std::iter::Sum + Send + Sync + 'static {
    /// Converts to the nearest value.
    fn of(value: f64) -> Self;

    /// Converts to `f64` exactly.
    fn widen(self) -> f64;
}

impl Real for f32 {
    #[inline]
    fn of(value: f64) -> Self {
        value as f32
    }
    #[inline]
    fn widen(self) -> f64 {
        f64::from(self)
    }
}

impl Real for f64 {
    #[inline]
    fn of(value: f64) -> Self {
        value
    }
    #[inline]
    fn widen(self) -> f64 {
        self
    }
}
