//! The framing of a dialogue as a text for the model.

use std::sync::Arc;

use sk_core::TokenId;

use crate::text::{
    ASSISTANT, ChatTemplate, END_OF_TURN, HUMAN, Message, Role, TextError, Tokenizer, encode_turns, plain_prompt, turns,
};

/// The framing of a dialogue as a text for the model.
#[derive(Debug, Clone)]
pub enum Framing {
    /// `"\n\nHuman: …\n\nAssistant: …"`.
    Hh {
        /// Whether a response ends where the model begins another turn, of either speaker.
        stop: bool,
    },
    /// The chat template of a checkpoint.
    Chat(Arc<ChatTemplate>),
    /// No framing: the model continues the plain text of the messages.
    Bare,
}

impl Framing {
    /// Returns the texts that end a response.
    #[must_use]
    pub fn stops(&self) -> &'static [&'static str] {
        match self {
            Self::Hh { stop: true } => &[HUMAN, ASSISTANT],
            Self::Hh { stop: false } | Self::Chat(_) | Self::Bare => &[],
        }
    }
}

/// Returns the tokens of a framed dialogue that ends with an open assistant turn.
///
/// In the framing of HH-RLHF under the sound convention, earlier answers end as in a chat and in
/// training: no white space after the last word, then the end-of-turn token if the tokenizer has
/// one. Under the convention of the paper, and without a framing, the text is encoded unchanged.
/// With a chat template, the turns are rendered.
///
/// # Errors
/// If the tokenizer or the template refuses the text.
pub fn encode_dialogue(
    framing: &Framing,
    system: Option<&str>,
    tokenizer: &Tokenizer,
    dialogue: &str,
) -> Result<Vec<TokenId>, TextError> {
    let whole = || format!("{}{dialogue}", system.unwrap_or_default());
    match framing {
        Framing::Hh { stop: true } => match tokenizer.id_of(END_OF_TURN) {
            Some(end_of_turn) => encode_turns(&whole(), end_of_turn, |text| tokenizer.encode(text)),
            None => tokenizer.encode(&whole()),
        },
        Framing::Hh { stop: false } | Framing::Bare => tokenizer.encode(&whole()),
        Framing::Chat(template) => {
            let system = system.map(|text| Message::new(Role::System, text));
            let messages: Vec<Message> = system.into_iter().chain(turns(dialogue)).collect();
            tokenizer.encode(&template.prompt(&messages)?)
        }
    }
}

/// Returns the tokens of turns and an open assistant turn. An instruction, if there is one, follows
/// the system message.
///
/// A chat template gets the messages in their order. Without one, system messages are joined and come
/// first.
///
/// # Errors
/// If the tokenizer or the template refuses the text.
pub fn encode_messages(
    framing: &Framing,
    tokenizer: &Tokenizer,
    messages: &[Message],
    instruction: Option<&str>,
) -> Result<Vec<TokenId>, TextError> {
    if let Framing::Chat(template) = framing {
        let mut messages = messages.to_vec();
        if let Some(instruction) = instruction {
            match messages.first_mut().filter(|first| first.role == Role::System) {
                Some(first) => first.content = instructed(Some(&first.content), instruction),
                None => messages.insert(0, Message::new(Role::System, instruction)),
            }
        }
        return tokenizer.encode(&template.prompt(&messages)?);
    }
    let (system, turns): (Vec<&Message>, Vec<&Message>) = messages.iter().partition(|message| message.role == Role::System);
    let system: Vec<&str> = system.into_iter().map(|message| message.content.as_str()).collect();
    let system = (!system.is_empty()).then(|| system.join("\n\n"));
    let system = instruction.map(|text| instructed(system.as_deref(), text)).or(system);
    let turns: Vec<Message> = turns.into_iter().cloned().collect();
    let dialogue = match framing {
        Framing::Bare => turns.iter().map(|turn| turn.content.as_str()).collect(),
        Framing::Hh { .. } | Framing::Chat(_) => plain_prompt(&turns),
    };
    encode_dialogue(framing, system.as_deref(), tokenizer, &dialogue)
}

/// Returns whether a text is a dialogue in the framing of HH-RLHF that ends with an open assistant
/// turn.
#[must_use]
pub fn is_framed(text: &str) -> bool {
    text.contains(HUMAN) && text.ends_with(ASSISTANT)
}

/// Returns the system message with an instruction after it.
#[must_use]
pub fn instructed(system: Option<&str>, instruction: &str) -> String {
    system.map_or_else(|| instruction.to_owned(), |system| format!("{system}\n\n{instruction}"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::dialogue::TOKENIZER;
    use crate::train::encoder::Encoder;

    use super::*;

    const DIALOGUE: &str =
        "\n\nHuman: Hi\n\nAssistant: Hello. \n\nHuman: Bye\n\nAssistant: Farewell.\n\nHuman: Hm?\n\nAssistant:";

    #[test]
    fn a_dialogue_is_encoded_as_in_training() {
        let tokenizer = Tokenizer::from_file(Path::new(TOKENIZER)).unwrap();
        let trained = Encoder::load(Path::new(TOKENIZER).parent().unwrap()).unwrap();
        let sound = encode_dialogue(&Framing::Hh { stop: true }, None, &tokenizer, DIALOGUE).unwrap();
        assert_eq!(sound, trained.prompt(DIALOGUE).unwrap());
        let published = encode_dialogue(&Framing::Hh { stop: false }, None, &tokenizer, DIALOGUE).unwrap();
        assert_eq!(tokenizer.decode(&published).unwrap(), DIALOGUE);
        assert!(published != sound);
        assert_eq!(encode_dialogue(&Framing::Bare, None, &tokenizer, DIALOGUE).unwrap(), published);
        let told = encode_dialogue(&Framing::Bare, Some("Be brief."), &tokenizer, DIALOGUE).unwrap();
        assert_eq!(tokenizer.decode(&told).unwrap(), format!("Be brief.{DIALOGUE}"));
    }

    #[test]
    fn a_chat_is_encoded_as_in_training() {
        let folder = Path::new(TOKENIZER).parent().unwrap();
        let tokenizer = Tokenizer::from_file(Path::new(TOKENIZER)).unwrap();
        let trained = Encoder::load_chat(folder).unwrap();
        let framing = Framing::Chat(Arc::new(ChatTemplate::from_directory(folder).unwrap()));
        for system in [None, Some("Be brief.")] {
            let sound = encode_dialogue(&framing, system, &tokenizer, DIALOGUE).unwrap();
            assert_eq!(sound, trained.prompt(&(system.unwrap_or_default().to_owned() + DIALOGUE)).unwrap());
        }
        assert_eq!(trained.answer(" Yes.").unwrap(), [tokenizer.encode("Yes.").unwrap(), vec![trained.end_of_turn]].concat());
    }

    #[test]
    fn a_chat_template_gets_the_messages_in_their_order() {
        let folder = Path::new(TOKENIZER).parent().unwrap();
        let tokenizer = Tokenizer::from_file(Path::new(TOKENIZER)).unwrap();
        let template = Arc::new(ChatTemplate::from_directory(folder).unwrap());
        let turn = |role, text: &str| Message::new(role, text);
        let dialogue =
            [turn(Role::User, "Hi"), turn(Role::Assistant, "Hello."), turn(Role::System, "Be brief."), turn(Role::User, "Bye")];
        let told = |messages: &[Message], instruction| {
            encode_messages(&Framing::Chat(Arc::clone(&template)), &tokenizer, messages, instruction).unwrap()
        };
        let prompt = |messages: &[Message]| tokenizer.encode(&template.prompt(messages).unwrap()).unwrap();
        assert_eq!(told(&dialogue, None), prompt(&dialogue));
        let instruction = turn(Role::System, "Be kind.");
        assert_eq!(told(&dialogue, Some("Be kind.")), prompt(&[&[instruction], &dialogue[..]].concat()));
        let systems = [turn(Role::System, "A."), turn(Role::System, "B."), turn(Role::User, "Hi")];
        assert_eq!(told(&systems, Some("C.")), prompt(&[&[turn(Role::System, "A.\n\nC.")], &systems[1..]].concat()));
        // Other framings have no place for a system message between turns.
        let plain = encode_messages(&Framing::Bare, &tokenizer, &dialogue, None).unwrap();
        assert_eq!(tokenizer.decode(&plain).unwrap(), "Be brief.HiHello.Bye");
    }

    #[test]
    fn a_response_ends_before_a_label_of_either_speaker() {
        use crate::dialogue::reply_text::ReplyText;
        let tokenizer = Tokenizer::from_file(Path::new(TOKENIZER)).unwrap();
        let shown = |framing: Framing, text: &str| {
            let mut reply = ReplyText::new(&tokenizer, framing.stops(), false);
            let mut shown: String = tokenizer.encode(text).unwrap().iter().map(|&token| reply.push(&[token])).collect();
            shown += &reply.finish();
            shown
        };
        for label in [HUMAN, ASSISTANT] {
            let text = format!(" Hello.{label} More.");
            assert_eq!(shown(Framing::Hh { stop: true }, &text), "Hello.");
            assert_eq!(shown(Framing::Hh { stop: false }, &text), text.trim_start());
        }
        let words = " The Assistant: a play.\n\nAssistants: two.";
        assert_eq!(shown(Framing::Hh { stop: true }, words), words.trim_start());
    }
}
