use rand::Rng;

use crate::{BoxError, Candidates, Granularity, TokenId};

/// What is asked of a proposal.
#[derive(Clone, Copy)]
pub struct DraftRequest<'a> {
    /// The context to continue, at least one token.
    pub context: &'a [TokenId],
    /// ρ: when a span is whole.
    pub granularity: &'a dyn Granularity,
    /// No candidate may be longer than this many tokens (at least 1).
    pub limit: usize,
}

/// Π_prop: proposes N candidate spans.
pub trait Proposal: Send {
    /// Draws candidates for the next step. All randomness comes from `rng`.
    ///
    /// # Errors
    /// When the model fails or the context does not fit it; nothing is committed.
    fn propose(&mut self, request: DraftRequest<'_>, rng: &mut dyn Rng) -> Result<Candidates, BoxError>;

    /// Candidate `chosen` of the last [`propose`](Self::propose) is appended to the context: keep
    /// what was computed for it.
    ///
    /// Where another slot fails after it, the context is not extended after all: the one of the
    /// next call is the truth.
    ///
    /// # Errors
    /// When the cache cannot be extended.
    fn commit(&mut self, chosen: usize) -> Result<(), BoxError> {
        let _ = chosen;
        Ok(())
    }
}

const _: Option<&dyn Proposal> = None;
