#![doc = include_str!("../README.md")]
#![warn(missing_debug_implementations)]

mod argmax;
mod champion;
mod epsilon_argmax;
mod gate;
mod nucleus;
mod plackett_luce;
mod softmax;
mod top_k;
mod truncate;
mod uniform;

pub use argmax::Argmax;
pub use champion::Champion;
pub use epsilon_argmax::EpsilonArgmax;
pub use gate::{Criterion, Gate, GateFallback};
pub use nucleus::Nucleus;
pub use plackett_luce::PlackettLuce;
pub use softmax::Softmax;
pub use top_k::TopK;
pub use uniform::Uniform;
