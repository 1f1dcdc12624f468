//! Judging without a server: a preference model per axis, and a language model that measures
//! fluency.
//!
//! A [`PreferenceModel`] gives the probability that a response is preferred, and a [`Ruler`] its
//! perplexity. Neither shares weights with a backbone, a drafter or a blade.
//! [`train_judge`](crate::train::judge::train_judge) fits the former,
//! [`train_lm`](crate::train::lm::train_lm) trains the latter.

mod features;
mod preference;
mod ruler;

pub use preference::PreferenceModel;
pub use ruler::Ruler;

use sha2::{Digest, Sha256};

/// The number of hexadecimal digits in a judge's digest.
const DIGITS: usize = 12;

fn short_digest(bytes: &[u8]) -> String {
    format!("{:.DIGITS$x}", Sha256::digest(bytes))
}

pub(crate) use features::{Features, MANNERS, Splitter};
pub(crate) use preference::{MOST_BITS, WEIGHTS_FILE, Weights};
