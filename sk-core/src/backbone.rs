use auto_impl::auto_impl;

use crate::{BoxError, Candidates, Policy, Readings, TokenId, Traffic};

/// π_B: the frozen model that reads candidates, with or without an adapter, and with heads on its
/// hidden states.
///
/// # For implementors
/// One call must serve all candidates under all policies, so that a fast implementation can use a
/// single pass. A reading must not depend on the other candidates or policies in the call.
#[auto_impl(&mut, Box)]
pub trait Backbone: Send {
    /// Reads each candidate as a continuation of `context`, under each policy.
    ///
    /// The result has every requested policy, with one [`Reading`](crate::Reading) per candidate
    /// and one value per token.
    ///
    /// # Errors
    /// If a policy is unknown or the model fails. Nothing is committed.
    fn read(&mut self, context: &[TokenId], candidates: &Candidates, policies: &[Policy]) -> Result<Readings, BoxError>;

    /// Reads the first tokens of candidates, some of which are likely to be read completely by the
    /// next [`read`](Self::read), after the same context and under the same policies. A backbone
    /// may keep the computed state for that call. The readings are the same as those of
    /// [`read`](Self::read).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_beginnings(
        &mut self,
        context: &[TokenId],
        beginnings: &Candidates,
        policies: &[Policy],
    ) -> Result<Readings, BoxError> {
        self.read(context, beginnings, policies)
    }

    /// Notifies the backbone that candidate `chosen` of the last [`read`](Self::read) is appended
    /// to the context, so that it can keep the state computed for it.
    ///
    /// Not called if the step read nothing, or if the selected candidate was read before the last
    /// call, as in a search by waves. If another slot fails afterwards, the context is not extended.
    /// The context of the next call is authoritative.
    ///
    /// # Errors
    /// If the cache cannot be extended.
    fn commit(&mut self, chosen: usize) -> Result<(), BoxError> {
        let _ = chosen;
        Ok(())
    }

    /// Returns the network traffic of the generation so far, including that of the proposal, for
    /// models behind servers.
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }
}
