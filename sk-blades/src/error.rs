use sk_core::{Policy, ScoreError};

/// The reason why a blade cannot score a batch. Candidates are counted from 0.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum BladeError {
    /// A policy was not read.
    #[error("{policy} was not read; the backbone must know it and be asked for it")]
    Missing { policy: Policy },
    /// A policy was read for another number of candidates.
    #[error("{policy} was read for {got} candidates where {expected} were drafted")]
    Candidates { policy: Policy, expected: usize, got: usize },
    /// A reading has another number of tokens than the candidate.
    #[error("{quantity} of {policy} for candidate {candidate} has {got} entries for {expected} tokens")]
    Tokens { policy: Policy, quantity: &'static str, candidate: usize, expected: usize, got: usize },
    /// A score is NaN or infinite, or a dispersion is negative.
    #[error(transparent)]
    Score(#[from] ScoreError),
}
