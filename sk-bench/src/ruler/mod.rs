//! The measurements of `swiss-knife bench`, and the limits that they are compared with.
//!
//! A [`Figure`] is the median of repetitions and the floor of the device ([`sk_models::roofline`]).
//! Things that are compared are measured alternately, so that a change in the machine's speed
//! affects both sides.

mod axis;
mod figure;
mod floors;
mod opponent;
mod steered;

pub(crate) use axis::{Axis, AxisArg, Operating};
pub(crate) use figure::{Figure, Spread};
pub(crate) use floors::{Floors, Footprint, Roofs};
pub(crate) use opponent::Opponent;
pub(crate) use steered::{FrozenSeconds, Steered, frozen, instructions};

use sk_core::TokenId;

use crate::Error;

/// The text that prompts are made of.
pub(crate) const TEXT: &str = "The morning train was late again, so we stood on the platform and talked about the garden, the weather, and what \
     to cook for the friends who would visit on Sunday. ";

/// Returns a prompt of `length` tokens: `text`, over and over.
pub(crate) fn prompt(text: &[TokenId], length: usize, new: usize, limit: usize) -> Result<Vec<TokenId>, Error> {
    if length.saturating_add(new) > limit {
        let cure = "lower --prompt-tokens or --new-tokens";
        return Err(Error::Input(format!("{length} prompt tokens and {new} new ones do not fit into {limit}; {cure}")));
    }
    Ok(text.iter().copied().cycle().take(length).collect())
}
