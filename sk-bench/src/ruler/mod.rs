//! The ruler behind `swiss-knife bench`: what is measured, and what it is held against.
//!
//! A [`Figure`] is the median of repetitions beside the floor that the device sets
//! ([`sk_models::roofline`]). Whatever is compared is measured in turns, so that a machine that
//! changes its mind does so for both sides.

mod axis;
mod error;
mod figure;
mod floors;
mod footprint;
mod frozen;
mod opponent;
mod reconfiguration;
mod spread;
mod steered;
mod sweep;

pub use axis::{Axis, AxisArg, Operating};
pub use error::RulerError;
pub use figure::Figure;
pub use floors::{Floors, Roofs};
pub use footprint::Footprint;
pub use frozen::{FrozenSeconds, frozen};
pub use opponent::Opponent;
pub use reconfiguration::Reconfiguration;
pub use spread::Spread;
pub use steered::{Steered, Timed};
pub use sweep::{AxisReport, PointReport, sweep};

/// What prompts are made of.
pub(crate) const TEXT: &str = "The morning train was late again, so we stood on the platform and talked about the garden, the weather, and what \
     to cook for the friends who would visit on Sunday. ";
