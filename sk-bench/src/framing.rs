//! The framings of a dialogue, by name.

use std::sync::Arc;

use sk_models::dialogue::Framing;
use sk_serve::host::Host;

use crate::Error;
use crate::named::named;
use crate::scheme::Convention;

named! {
    /// The name of a [`Framing`].
    pub DialogueFraming {
        /// "Human: … Assistant:", as in the HH-RLHF data and the published runs.
        Hh = "hh",
        /// The chat template of the backbone's tokenizer.
        Chat = "chat",
        /// The prompt as it is; the model continues it.
        None = "none",
    }
}

impl DialogueFraming {
    /// Returns the framing with this name under a convention.
    ///
    /// # Errors
    /// If the chat template is requested and the backbone has none.
    pub fn of(self, host: &Host, convention: Convention) -> Result<Framing, Error> {
        Ok(match self {
            Self::Chat => Framing::Chat(Arc::new(host.chat_template()?)),
            Self::None => Framing::Bare,
            Self::Hh => Framing::Hh { stop: stops(convention) },
        })
    }

    /// Returns the framing in the settings of a sweep.
    pub(crate) fn in_settings(self, convention: Convention) -> &'static str {
        match self {
            Self::Hh if stops(convention) => "hh, with a stop text",
            Self::Hh => "hh",
            Self::Chat => "chat",
            Self::None => "none",
        }
    }
}

/// Returns whether the framing `hh` ends an answer at a stop text. The published runs had none:
/// they ran to the limit.
fn stops(convention: Convention) -> bool {
    convention == Convention::Sound
}
