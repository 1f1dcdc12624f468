use auto_impl::auto_impl;

use crate::{BoxError, Candidates, Policy, Readings, Score, TokenId};

/// The inputs of a blade in a step.
#[derive(Debug, Clone, Copy)]
pub struct Observation<'a> {
    /// The context that the candidates continue.
    pub context: &'a [TokenId],
    /// The candidates. One that a [`Race`](crate::Race) cuts to its first tokens ends with
    /// [`SpanEnd::Limit`](crate::SpanEnd::Limit).
    pub candidates: &'a Candidates,
    /// The readings of the policies that the seated blades requested.
    pub readings: &'a Readings,
}

/// b ∈ 𝓑: scores each candidate, b : 𝓧 × 𝓒 → ℝ × ℝ≥0.
///
/// # For implementors
/// Return the policies to read from [`policies`](Self::policies). The backbone reads all of them in
/// one call, so that [`score`](Self::score) is arithmetic only and swapping a blade is O(1)
/// (`prop:cost`). A score must not depend on the other candidates, which 𝓝 and 𝓐 compare.
#[auto_impl(&, Box, Arc)]
pub trait Blade: Send + Sync {
    /// Writes (μ, σ) of candidate i to `out[i]`, for every candidate. In a step, the scores in
    /// `out` are not valid when the blade is called.
    ///
    /// # Errors
    /// If a reading is missing or a score cannot be computed.
    ///
    /// # Panics
    /// May panic if the length of `out` differs from the number of candidates.
    fn score(&self, step: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError>;

    /// Returns the policies whose readings [`score`](Self::score) needs.
    fn policies(&self) -> Vec<Policy> {
        Vec::new()
    }
}
