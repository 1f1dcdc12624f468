use sk_core::TokenId;

use crate::decoder::{Stopped, check_stopped};
use crate::device::DeviceFailure;

/// Why a model could not draft, read or decode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum EngineError {
    /// The context is empty.
    #[error("the context of the {role} is empty; give at least one token")]
    EmptyContext { role: &'static str },
    /// The context leaves no room for another token.
    #[error("the context has {tokens} tokens and the {role} holds {limit}; shorten the prompt or the response")]
    ContextFull { role: &'static str, tokens: usize, limit: usize },
    /// A token outside the model's vocabulary.
    #[error("token {token} is outside the {role}'s vocabulary of {vocab_size}; do both models share one tokenizer?")]
    Vocabulary { role: &'static str, token: TokenId, vocab_size: usize },
    /// An adapter or a head that is not in its rack.
    #[error("no {kind} is called \"{name}\"; loaded: {loaded}")]
    Unknown { kind: &'static str, name: String, loaded: String },
    /// An adapter of a soup with a negative scale, under a merge that takes its root.
    #[error(
        "adapter \"{name}\" has a negative lora_alpha, which the merge \"peft-linear\" cannot take the root of; use the merge \"exact\""
    )]
    NegativeScale { name: String },
    /// A head for hidden states of another width.
    #[error("head \"{name}\" reads {found} numbers per token and the backbone has {expected}; was it trained for another model?")]
    HeadWidth { name: String, found: usize, expected: usize },
    /// A head returned NaN or infinity.
    #[error("head \"{name}\" returned NaN or infinity after token {token}; its weights or the backbone's are damaged")]
    HeadNotANumber { name: String, token: TokenId },
    /// The device failed to return a result; on a GPU usually for lack of memory.
    #[error("the device failed: {message}; if it ran out of memory, use fewer candidates, a shorter context or another --device")]
    Device { message: String },
    /// The model returned NaN or infinity: its weights, or those of an adapter, are broken or do
    /// not fit the number format.
    #[error("the {policy} returned NaN or infinity for token {token}; its weights are damaged or overflow on this device")]
    NotANumber { policy: String, token: TokenId },
    /// The request was stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Returns an error if the request of this thread was stopped.
pub(super) fn proceed() -> Result<(), EngineError> {
    Ok(check_stopped()?)
}

impl From<DeviceFailure> for EngineError {
    fn from(failure: DeviceFailure) -> Self {
        Self::Device { message: failure.message }
    }
}
