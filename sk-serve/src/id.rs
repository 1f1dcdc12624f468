//! Names of requests and answers.

use std::fmt;
use std::sync::Arc;

use rand::RngExt;

/// The name of a request in logs, which its answer has as a header.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) Arc<str>);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A name for an answer that nobody guesses.
pub(crate) fn new_id(kind: &str) -> String {
    let mut rng = rand::rng();
    format!("{kind}-{:016x}{:016x}", rng.random::<u64>(), rng.random::<u64>())
}
