use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sk_core::{Backbone, BoxError, Candidates, Policy, Readings, TokenId};

use super::Verifier;

/// A [`Verifier`] that a proposal and a scheme share, so that the proposal's reading of π_B and the
/// blades' readings take one pass.
#[derive(Clone)]
pub struct SharedVerifier(Arc<Mutex<Verifier>>);

impl SharedVerifier {
    /// Shares `verifier`. Clones refer to the same verifier.
    #[must_use]
    pub fn new(verifier: Verifier) -> Self {
        Self(Arc::new(Mutex::new(verifier)))
    }

    /// Returns a copy of [`Verifier::next_token`].
    ///
    /// # Errors
    /// As [`Verifier::next_token`].
    pub fn next_token(&self, context: &[TokenId]) -> Result<Vec<f32>, BoxError> {
        self.lock().next_token(context).map(<[f32]>::to_vec)
    }

    fn lock(&self) -> MutexGuard<'_, Verifier> {
        // Every call updates the cache to its own context, so a panic leaves nothing invalid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backbone for SharedVerifier {
    fn read(&mut self, context: &[TokenId], candidates: &Candidates, policies: &[Policy]) -> Result<Readings, BoxError> {
        self.lock().read(context, candidates, policies)
    }

    fn read_beginnings(
        &mut self,
        context: &[TokenId],
        beginnings: &Candidates,
        policies: &[Policy],
    ) -> Result<Readings, BoxError> {
        self.lock().read_beginnings(context, beginnings, policies)
    }

    fn commit(&mut self, chosen: usize) -> Result<(), BoxError> {
        self.lock().commit(chosen)
    }
}
