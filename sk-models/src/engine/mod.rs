//! Decoding: the frozen models behind the slots of a scheme.
//!
//! [`Drafter`] is Π_prop by sampling, from a model or from a [`Soup`] of adapters. [`Vocabulary`]
//! is Π_prop of token-level schemes. [`Verifier`] is π_B with its adapters and heads, and
//! [`Delimited`](sk_core::Delimited) is ρ by text. [`Frozen`] decodes one model without steering.
//! All of them compare the token ids of the context with those of the step before, and keep the
//! keys and values of the common beginning. So callers may change the context between steps.

mod drafter;
mod drawing;
mod error;
mod follower;
mod frozen;
mod heads;
mod rack;
mod sampling;
mod shared;
mod soup;
mod verifier;
mod vocabulary;

pub use drafter::{Drafter, DrafterConfig};
pub use error::EngineError;
pub(crate) use follower::chunk;
pub use frozen::{Frozen, TokenScore};
pub use rack::{AdapterRack, HeadRack, Racks, ReaderRack};
pub use shared::SharedVerifier;
pub use sk_core::{Instruction, InstructionRack, Sampling};
pub use soup::Soup;
pub use verifier::Verifier;
pub use vocabulary::{TokenPrior, Vocabulary};
