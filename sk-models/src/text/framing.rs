//! Dialogues and the plain framing of HH-RLHF.

use serde::{Deserialize, Serialize};

/// Opens a human turn in the framing of HH-RLHF.
pub const HUMAN: &str = "\n\nHuman:";
/// Opens an assistant turn in the framing of HH-RLHF.
pub const ASSISTANT: &str = "\n\nAssistant:";

/// The token that ends an assistant turn in the vocabularies of Qwen2.
pub const END_OF_TURN: &str = "<|im_end|>";
/// The token that ends a document in the vocabularies of Qwen2.
pub const END_OF_TEXT: &str = "<|endoftext|>";

/// The speaker of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Role {
    /// Instructions for the whole dialogue.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
}

/// One turn of a dialogue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The speaker.
    pub role: Role,
    /// The text.
    pub content: String,
}

impl Message {
    /// Returns a message.
    #[must_use]
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self { role, content: content.into() }
    }
}

/// Returns the prompt of a dialogue in the framing of HH-RLHF, ready for the assistant's answer.
///
/// Each turn is `"\n\nHuman: …"` or `"\n\nAssistant: …"`, and the prompt ends with
/// `"\n\nAssistant:"`. The framing has no place for a system message, so its text comes first as it
/// is.
///
/// ```
/// use sk_models::text::{Message, Role, plain_prompt};
///
/// let prompt = plain_prompt(&[Message::new(Role::User, "Why is the sky blue?")]);
/// assert_eq!(prompt, "\n\nHuman: Why is the sky blue?\n\nAssistant:");
/// ```
#[must_use]
pub fn plain_prompt(messages: &[Message]) -> String {
    plain_dialogue(messages) + ASSISTANT
}

/// As [`plain_prompt`], without an open assistant turn at the end.
pub(crate) fn plain_dialogue(messages: &[Message]) -> String {
    let turn = |Message { role, content }: &Message| match role {
        Role::System => content.clone(),
        Role::User => format!("{HUMAN} {content}"),
        Role::Assistant => format!("{ASSISTANT} {content}"),
    };
    messages.iter().map(turn).collect()
}

/// Returns the turns of a dialogue, without the open assistant turn. Text before the first turn
/// belongs to the user.
pub(crate) fn turns(dialogue: &str) -> Vec<Message> {
    let body = dialogue.strip_suffix(ASSISTANT).unwrap_or(dialogue);
    let (mut turns, mut role, mut rest) = (Vec::new(), Role::User, body);
    loop {
        let human = rest.find(HUMAN).map(|at| (at, HUMAN, Role::User));
        let assistant = rest.find(ASSISTANT).map(|at| (at, ASSISTANT, Role::Assistant));
        let next = [human, assistant].into_iter().flatten().min_by_key(|(at, ..)| *at);
        let content = rest[..next.map_or(rest.len(), |(at, ..)| at)].trim();
        if !content.is_empty() {
            turns.push(Message::new(role, content));
        }
        let Some((at, mark, speaker)) = next else { return turns };
        (role, rest) = (speaker, &rest[at + mark.len()..]);
    }
}

/// Encodes a text in the framing of HH-RLHF with `encode`. Each assistant turn that a human turn
/// follows loses white space at its end and gets `end_of_turn`.
pub(crate) fn encode_turns<E>(text: &str, end_of_turn: u32, encode: impl Fn(&str) -> Result<Vec<u32>, E>) -> Result<Vec<u32>, E> {
    let (mut ids, mut rest) = (Vec::with_capacity(text.len() / 3), text);
    while let Some(start) = rest.find(ASSISTANT) {
        let answer = start + ASSISTANT.len();
        let Some(length) = rest[answer..].find(HUMAN) else { break };
        let (turn, next) = rest.split_at(answer + length);
        ids.extend(encode(turn.trim_end())?);
        ids.push(end_of_turn);
        rest = next;
    }
    ids.extend(encode(rest)?);
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dialogue_is_taken_apart_into_turns() {
        let dialogue = "\n\nHuman: Hi\n\nAssistant: Hello. \n\nHuman: Bye\n\nAssistant: Farewell.\n\nHuman: Hm?\n\nAssistant:";
        let turns = |text| -> Vec<(Role, String)> { turns(text).into_iter().map(|m| (m.role, m.content)).collect() };
        let (user, assistant) = (Role::User, Role::Assistant);
        let expected = [(user, "Hi"), (assistant, "Hello."), (user, "Bye"), (assistant, "Farewell."), (user, "Hm?")];
        assert_eq!(turns(dialogue), expected.map(|(role, text)| (role, text.to_owned())));
        assert_eq!(turns("Hi"), [(user, "Hi".to_owned())]);
    }

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
