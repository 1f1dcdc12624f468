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
            // The published runs had no stop text: they ran to the limit.
            Self::Hh => Framing::Hh { stop: convention == Convention::Sound },
        })
    }
}
