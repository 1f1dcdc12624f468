use crate::{BoxError, Candidates, Policy, Readings, TokenId, Traffic};

/// π_B: the frozen model that reads candidates, under itself, under the variants seated on it, and
/// with heads on its hidden states.
///
/// # For implementors
/// One call must serve all candidates under all policies: that is where a fast implementation makes
/// a single pass. A reading must not depend on which other candidates or policies are in the call.
pub trait Backbone: Send {
    /// Reads each candidate, as a continuation of `context`, under each policy.
    ///
    /// The result holds every policy asked for, with one [`Reading`](crate::Reading) per candidate
    /// and one value per token.
    ///
    /// # Errors
    /// When a policy is unknown or the model fails; nothing is committed.
    fn read(&mut self, context: &[TokenId], candidates: &Candidates, policies: &[Policy]) -> Result<Readings, BoxError>;

    /// Reads the first tokens of candidates, some of which are likely to be read whole next, after the
    /// same context and under the same policies. A backbone may keep what the next
    /// [`read`](Self::read) can go on from; its readings are those of [`read`](Self::read).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_heads(&mut self, context: &[TokenId], heads: &Candidates, policies: &[Policy]) -> Result<Readings, BoxError> {
        self.read(context, heads, policies)
    }

    /// Candidate `chosen` of the last [`read`](Self::read) is appended to the context: keep what
    /// was computed for it.
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

    /// The traffic of the generation so far, that of the proposal included, where models are behind
    /// servers.
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }
}

const _: Option<&dyn Backbone> = None;
