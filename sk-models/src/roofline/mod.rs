//! The least time that work can take on a device: bytes over bandwidth, or operations over peak,
//! whichever is longer.
//!
//! [`Pass`] counts what one forward pass must move and compute whatever the implementation,
//! [`Work`] lists the passes of prefill, frozen decoding, drafting and scoring, and [`Roof`] is
//! what the device at hand was measured to do. A floor is a bound from below and not a forecast: it
//! takes activations for free, weights for read once a pass, and bytes and operations for perfectly
//! overlapped (Williams, Waterman and Patterson 2009).

mod probe;
mod work;

pub use probe::{Bandwidth, Peak, Roof, bandwidth, instructions, peak, threads};
pub use work::{Cost, Pass, Storage, Work, cache_numbers};
