use std::fmt;

use auto_impl::auto_impl;
use rand::Rng;

use crate::{BoxError, Candidates, Granularity, TokenId};

/// The parameters of a draft.
#[derive(Clone, Copy)]
pub struct DraftRequest<'a> {
    /// The context to continue, at least one token.
    pub context: &'a [TokenId],
    /// ρ: the rule by which a span is complete.
    pub granularity: &'a dyn Granularity,
    /// The most tokens of a candidate, at least 1.
    pub limit: usize,
}

impl fmt::Debug for DraftRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DraftRequest").field("context", &self.context).field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// Π_prop: proposes N candidate spans.
///
/// # For implementors
/// End a span where [`Granularity::completes`] says so, as [`PartialSpan`](crate::PartialSpan)
/// does. To support rules that [need the entropy](Granularity::needs_entropy) of each token, also
/// ask [`Granularity::ends_before`], and return `true` from [`knows_entropy`](Self::knows_entropy).
#[auto_impl(&mut, Box)]
pub trait Proposal: Send {
    /// Draws candidates for the next step. All randomness comes from `rng`.
    ///
    /// # Errors
    /// If the model fails or the context does not fit it. Nothing is committed.
    fn propose(&mut self, request: DraftRequest<'_>, rng: &mut dyn Rng) -> Result<Candidates, BoxError>;

    /// Returns whether spans end where [`Granularity::ends_before`] says so. If not, a step fails
    /// under a rule that [needs the entropy](Granularity::needs_entropy).
    fn knows_entropy(&self) -> bool {
        false
    }

    /// Notifies the proposal that candidate `chosen` of the last [`propose`](Self::propose) is
    /// appended to the context, so that it can keep the state computed for it.
    ///
    /// Not called if the selected candidate is from the other proposal of a scheme with a fallback. If
    /// another slot fails afterwards, the context is not extended. The context of the next call is
    /// authoritative.
    ///
    /// # Errors
    /// If the cache cannot be extended.
    fn commit(&mut self, chosen: usize) -> Result<(), BoxError> {
        let _ = chosen;
        Ok(())
    }
}
