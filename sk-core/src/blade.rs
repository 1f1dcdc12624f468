use crate::{BoxError, Candidates, Policy, Readings, Score, TokenId};

/// What a blade sees of a step.
#[derive(Clone, Copy)]
pub struct Observation<'a> {
    /// The context the candidates continue.
    pub context: &'a [TokenId],
    /// The candidates.
    pub candidates: &'a Candidates,
    /// The readings of the policies that the seated blades asked for.
    pub readings: &'a Readings,
}

/// b ∈ 𝓑: scores each candidate, b : 𝓧 × 𝓒 → ℝ × ℝ≥0.
///
/// # For implementors
/// Name the policies to be read in [`policies`](Self::policies); the backbone reads them all in one
/// pass, so that [`score`](Self::score) is arithmetic and swapping a blade is O(1) (`prop:cost`). A
/// score must not depend on the other candidates: comparing them is the business of 𝓝 and 𝓐.
pub trait Blade: Send + Sync {
    /// Writes (μ, σ) of candidate i to `out[i]`.
    ///
    /// # Errors
    /// When a reading is missing or a score cannot be computed.
    ///
    /// # Panics
    /// May panic when `out` is not as long as the candidates are many.
    fn score(&self, step: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError>;

    /// The policies whose readings [`score`](Self::score) needs.
    fn policies(&self) -> Vec<Policy> {
        Vec::new()
    }
}

const _: Option<&dyn Blade> = None;
