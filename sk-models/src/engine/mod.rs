//! Decoding: the frozen models behind the slots of a scheme.
//!
//! [`Drafter`] is Π_prop, [`Verifier`] is π_B with its adapters, [`Delimited`] is ρ by text, and [`Frozen`] decodes one model
//! unsteered. All of them follow the context by its token ids: what was computed for a common beginning is kept, whatever the caller
//! does with the context between steps.

mod delimited;
mod drafter;
mod error;
mod follower;
mod frozen;
mod sampling;
mod verifier;

pub use delimited::Delimited;
pub use drafter::{Drafter, DrafterConfig};
pub use error::EngineError;
pub use frozen::Frozen;
pub use sampling::{Sampling, SamplingError};
pub use verifier::{AdapterRack, Verifier};
