//! Judging without a server: a preference model per axis, and a language model that measures
//! fluency.
//!
//! A [`PreferenceModel`] says how likely a response is to be preferred, a [`Ruler`] how surprising
//! it is. Neither has a weight in common with a backbone, a drafter or a blade.
//! [`train_judge`](crate::train::judge::train_judge) fits the former,
//! [`train_lm`](crate::train::lm::train_lm) trains the latter.

mod features;
mod preference;
mod ruler;

pub use preference::PreferenceModel;
pub use ruler::{Ruler, Surprise};

use sha2::{Digest, Sha256};

/// Hexadecimal digits of a digest that tells judges apart.
const DIGITS: usize = 12;

fn short_digest(bytes: &[u8]) -> String {
    format!("{:.DIGITS$x}", Sha256::digest(bytes))
}

pub(crate) use features::{Features, MANNERS, Splitter};
pub(crate) use preference::{MOST_BITS, WEIGHTS_FILE, Weights};
