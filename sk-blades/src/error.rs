use sk_core::{Policy, ScoreError};

/// The reason why a blade cannot score a batch.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BladeError {
    /// A policy was not read.
    #[error("{} was not read; the backbone must know it and be asked for it", describe(.policy))]
    Missing {
        /// The policy.
        policy: Policy,
    },
    /// A policy was read for another number of candidates.
    #[error("{} was read for {got} candidates where {expected} were drafted", describe(.policy))]
    Candidates {
        /// The policy.
        policy: Policy,
        /// N.
        expected: usize,
        /// Number of readings.
        got: usize,
    },
    /// A reading has another number of tokens than the candidate.
    #[error("{quantity} of {} for candidate {candidate} has {got} entries for {expected} tokens", describe(.policy))]
    Tokens {
        /// The policy.
        policy: Policy,
        /// The part of the reading.
        quantity: &'static str,
        /// Index of the candidate.
        candidate: usize,
        /// L, its number of tokens.
        expected: usize,
        /// Number of entries.
        got: usize,
    },
    /// A score is NaN or infinite, or a dispersion is negative.
    #[error(transparent)]
    Score(#[from] ScoreError),
}

fn describe(policy: &Policy) -> String {
    match policy {
        Policy::Backbone => "the backbone".to_owned(),
        Policy::Variant(name) => format!("policy \"{name}\""),
        Policy::Head(name) => format!("head \"{name}\""),
    }
}
