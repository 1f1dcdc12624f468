//! The least time that work can take on a device: bytes over bandwidth, or operations over peak,
//! whichever is longer.
//!
//! [`ForwardPass`] counts the bytes and operations that any implementation of one forward pass
//! needs. [`Work`] lists the passes of prefill, frozen decoding, drafting and scoring. [`Roof`]
//! holds the measured limits of the device. A floor is a lower bound and not a forecast: it assumes
//! that activations are free, that weights are read once per pass, and that bytes and operations
//! overlap perfectly (Williams, Waterman and Patterson 2009).

mod probe;
mod work;

pub use probe::{Bandwidth, Peak, Roof, bandwidth, peak, threads};
pub use work::{Cost, ForwardPass, Work};
