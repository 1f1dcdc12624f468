#![doc = include_str!("../README.md")]
#![warn(missing_debug_implementations)]

mod backbone;
mod check;
mod drafter;
mod engine;
mod error;
mod fleet;
mod http;
mod reader;
mod retry;
mod role;
mod tolerance;
mod traffic;
mod vocabulary;
mod wire;

pub use check::{CheckReport, Probe, ServerReport};
pub use engine::{IfLoaded, RemoteEngine, RemoteOptions};
pub use error::{AnswerError, Fault, RemoteError};
pub use http::{advice, client_config, failure, gist, is_local};
pub use retry::{Retry, backoff, retry_after};
pub use role::{AddressError, Key, Kind, Reason, Role, address, without_user};
pub use sk_core::{TimeLeft, Traffic};
pub use tolerance::Tolerance;

use traffic::Meter;

/// The adapters on the servers: the name of an adapter on the servers, by the name of its blade.
pub type AdapterRack = sk_core::Rack<str>;
