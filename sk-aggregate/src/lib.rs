#![doc = include_str!("../README.md")]

mod copeland;
mod entry;
mod fluent;
mod link;
mod round_robin;
mod scores;
mod spread;
mod swiss_elo;

pub use copeland::Copeland;
pub use entry::Entry;
pub use fluent::Fluent;
pub use link::{Asinh, Identity, Laplace, Link, Logistic, Probit, SignedLog, StudentT, Tanh};
pub use round_robin::RoundRobin;
pub use scores::Scores;
pub use spread::{PNorm, Spread};
pub use swiss_elo::{Bracket, Match, Round, START, Seeding, SwissElo};

/// One number per candidate. Batches of a decoding step fit on the stack.
type Buffer<T> = smallvec::SmallVec<[T; 32]>;
