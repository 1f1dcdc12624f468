#![doc = include_str!("../README.md")]

mod backbone;
mod check;
mod drafter;
mod engine;
mod error;
mod fleet;
mod http;
mod rack;
mod reader;
mod retry;
mod role;
mod tolerance;
mod traffic;
mod wire;

pub use backbone::RemoteBackbone;
pub use check::{CheckReport, Probe, ServerReport, TokenizerCheck};
pub use drafter::RemoteDrafter;
pub use engine::{AdapterSource, RemoteEngine, RemoteOptions};
pub use error::{AnswerError, Fault, RemoteError};
pub use rack::{AdapterRack, Instruction, InstructionRack, Rack};
pub use retry::Retry;
pub use role::{AddressError, Key, Kind, Reason, Role};
pub use tolerance::Tolerance;
pub use traffic::{Meter, Traffic};
