use sk_core::{Policy, ScoreError};

/// The reason why a blade cannot score a batch. Candidates are counted from 0.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum BladeError {
    /// A policy was not read.
    #[error("{} was not read; the backbone must know it and be asked for it", describe(.policy))]
    Missing { policy: Policy },
    /// A policy was read for another number of candidates.
    #[error("{} was read for {got} candidates where {expected} were drafted", describe(.policy))]
    Candidates { policy: Policy, expected: usize, got: usize },
    /// A reading has another number of tokens than the candidate.
    #[error("{quantity} of {} for candidate {candidate} has {got} entries for {expected} tokens", describe(.policy))]
    Tokens { policy: Policy, quantity: &'static str, candidate: usize, expected: usize, got: usize },
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
