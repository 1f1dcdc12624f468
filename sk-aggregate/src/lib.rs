#![doc = include_str!("../README.md")]
#![warn(missing_debug_implementations)]

#[cfg(feature = "axioms")]
mod audit;
#[cfg(feature = "axioms")]
pub mod axioms;
mod certificate;
mod copeland;
mod divergence_mixture;
mod elementary;
mod entry;
mod fluent;
mod lanes;
mod link;
mod pairwise;
mod round_robin;
mod scores;
mod spread;
mod swiss_elo;

#[cfg(feature = "axioms")]
pub use audit::{Audit, Jump};
pub use certificate::{Certify, Modulus, NoCertificate, StabilityCertificate};
pub use copeland::Copeland;
pub use divergence_mixture::DivergenceMixture;
pub use entry::Entry;
pub use fluent::Fluent;
pub use link::{Asinh, Identity, Laplace, Link, Logistic, Probit, SignedLog, StudentT, Tanh};
pub use pairwise::{Kernel, Pairwise};
pub use round_robin::RoundRobin;
pub use scores::Scores;
pub use spread::{PNorm, Spread};
pub use swiss_elo::{Bracket, Match, Round, START, Seeding, SwissElo};

/// The examples of the book and of the workspace's README, compiled and run.
#[cfg(doctest)]
mod examples {
    #[doc = include_str!("../../docs/src/write-an-aggregator.md")]
    struct WriteAnAggregator;

    #[doc = include_str!("../../README.md")]
    struct Readme;
}
