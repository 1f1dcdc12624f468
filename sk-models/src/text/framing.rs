//! A dialogue, and the plain framing of the HH-RLHF dialogues.

use serde::{Deserialize, Serialize};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Role {
    /// Instructions that stand above the dialogue.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// One turn of a dialogue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: String,
}

impl Message {
    /// A turn.
    #[must_use]
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self { role, content: content.into() }
    }
}

/// The prompt of a dialogue in the framing of HH-RLHF, ready for the assistant to go on.
///
/// Each turn is `"\n\nHuman: …"` or `"\n\nAssistant: …"`, and the prompt ends with `"\n\nAssistant:"`. The framing has
/// no place for a system message, so its text comes first as it is.
///
/// ```
/// use sk_models::text::{Message, Role, plain_prompt};
///
/// let prompt = plain_prompt(&[Message::new(Role::User, "Why is the sky blue?")]);
/// assert_eq!(prompt, "\n\nHuman: Why is the sky blue?\n\nAssistant:");
/// ```
#[must_use]
pub fn plain_prompt(messages: &[Message]) -> String {
    let mut prompt = String::new();
    for Message { role, content } in messages {
        match role {
            Role::System => prompt.push_str(content),
            Role::User => {
                prompt.push_str("\n\nHuman: ");
                prompt.push_str(content);
            }
            Role::Assistant => {
                prompt.push_str("\n\nAssistant: ");
                prompt.push_str(content);
            }
        }
    }
    prompt.push_str("\n\nAssistant:");
    prompt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_alternate_as_in_the_data() {
        let messages = [
            Message::new(Role::System, "Be brief."),
            Message::new(Role::User, "Hi"),
            Message::new(Role::Assistant, "Hello."),
            Message::new(Role::User, "Bye"),
        ];
        assert_eq!(plain_prompt(&messages), "Be brief.\n\nHuman: Hi\n\nAssistant: Hello.\n\nHuman: Bye\n\nAssistant:");
    }
}
