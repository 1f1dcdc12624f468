//! Identifiers of requests and answers.

use std::sync::Arc;

use rand::RngExt;

/// The identifier of a request, for logs and a header of its response.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) Arc<str>);

/// Returns a new random identifier that cannot be guessed.
pub(crate) fn new_id(kind: &str) -> String {
    let mut rng = rand::rng();
    format!("{kind}-{:016x}{:016x}", rng.random::<u64>(), rng.random::<u64>())
}
