use sk_core::{ReadingsError, ScoreError};

/// The reason why a blade cannot score a batch. Candidates are counted from 0.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BladeError {
    /// A policy was not read, or not for every token of every candidate.
    #[error(transparent)]
    Readings(#[from] ReadingsError),
    /// A score is NaN or infinite, or a dispersion is negative.
    #[error(transparent)]
    Score(#[from] ScoreError),
}
