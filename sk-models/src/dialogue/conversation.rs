//! A dialogue as token ids, to which each turn is appended.

use crate::engine::Instruction;
use crate::text::{END_OF_TEXT, END_OF_TURN, Message, Role, TextError, Tokenizer, plain_prompt, turns};
use sk_core::TokenId;

use super::framing::{self, Framing, is_framed};

/// A dialogue, turn by turn.
///
/// Answers keep the tokens that were generated, and only new turns are encoded, so that the cached
/// prefix of the models stays valid. In the framing of HH-RLHF under the convention of the paper,
/// the whole dialogue is encoded again.
#[derive(Debug, Clone)]
pub struct Conversation {
    framing: Framing,
    messages: Vec<Message>,
    tokens: Vec<TokenId>,
    opening: Opening,
    /// The opening as it was before the unanswered question.
    asked: Opening,
    /// The tokens and the opening before each exchange.
    earlier: Vec<(Vec<TokenId>, Opening)>,
}

/// The beginning of a dialogue, which an instruction changes.
#[derive(Debug, Clone, Default)]
struct Opening {
    /// The text, if the prompt was framed already.
    framed: Option<String>,
    /// Otherwise, the number of messages, including the system message.
    messages: usize,
    /// The number of its tokens.
    tokens: usize,
}

impl Conversation {
    /// Returns a dialogue without turns.
    #[must_use]
    pub fn new(framing: Framing, system: Option<&str>) -> Self {
        let messages = system.map(|text| Message::new(Role::System, text)).into_iter().collect();
        let (tokens, opening, asked, earlier) = Default::default();
        Self { framing, messages, tokens, opening, asked, earlier }
    }

    /// Returns the framing.
    #[must_use]
    pub fn framing(&self) -> &Framing {
        &self.framing
    }

    /// Returns the messages so far.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Starts the dialogue with `prompt` and returns its tokens. The prompt is either a dialogue in
    /// the framing of HH-RLHF that ends with an open assistant turn, as in a sweep, or a first
    /// question.
    ///
    /// # Errors
    /// If the template or the tokenizer refuses it.
    pub fn begin(&mut self, tokenizer: &Tokenizer, prompt: &str) -> Result<Vec<TokenId>, TextError> {
        // A line break may follow the label of the open turn.
        let dialogue = prompt.trim_end();
        if !is_framed(dialogue) {
            return self.ask(tokenizer, prompt);
        }
        let tokens = framing::encode_dialogue(&self.framing, self.system(), tokenizer, dialogue)?;
        match self.framing {
            Framing::Bare => self.messages.push(Message::new(Role::User, dialogue)),
            Framing::Hh { .. } | Framing::Chat(_) => self.messages.extend(turns(dialogue)),
        }
        self.opening = Opening { framed: Some(dialogue.to_owned()), messages: 0, tokens: tokens.len() };
        Ok(tokens)
    }

    fn system(&self) -> Option<&str> {
        self.messages.first().filter(|message| message.role == Role::System).map(|message| message.content.as_str())
    }

    /// Returns the opening with an instruction in the system message, after the text that is there
    /// already.
    ///
    /// # Errors
    /// If the template or the tokenizer refuses it.
    pub fn instructed(&self, tokenizer: &Tokenizer, instruction: &str) -> Result<Instruction, TextError> {
        let system = framing::instructed(self.system(), instruction);
        let tokens = match &self.opening.framed {
            Some(text) => framing::encode_dialogue(&self.framing, Some(&system), tokenizer, text)?,
            None => {
                framing::encode_messages(&self.framing, tokenizer, &self.messages[..self.opening.messages], Some(instruction))?
            }
        };
        Ok(Instruction::new(self.opening.tokens, tokens))
    }

    /// Removes all messages but the system message.
    pub fn restart(&mut self) {
        let system = self.system().map(str::to_owned);
        *self = Self::new(self.framing.clone(), system.as_deref());
    }

    /// Replaces the dialogue with one that was stored as text: a system message, then questions and
    /// their answers.
    pub fn resume(&mut self, system: Option<&str>, exchanges: impl IntoIterator<Item = (String, String)>) {
        *self = Self::new(self.framing.clone(), system);
        for (question, answer) in exchanges {
            self.messages.extend([Message::new(Role::User, question), Message::new(Role::Assistant, answer)]);
            // The next call of `ask` encodes these turns.
            self.earlier.push(Default::default());
        }
    }

    /// Removes the last exchange and returns its question, or `None` if there is no exchange.
    pub fn undo(&mut self) -> Option<String> {
        let (tokens, opening) = self.earlier.pop()?;
        (self.tokens, self.opening) = (tokens, opening);
        self.messages.pop_if(|message| message.role == Role::Assistant);
        self.messages.pop_if(|message| message.role == Role::User).map(|question| question.content)
    }

    /// Appends a question of the user. Returns the tokens of the whole dialogue, ready for the
    /// answer.
    ///
    /// # Errors
    /// If the template or the tokenizer refuses it. The dialogue is then unchanged.
    pub fn ask(&mut self, tokenizer: &Tokenizer, text: &str) -> Result<Vec<TokenId>, TextError> {
        self.messages.push(Message::new(Role::User, text));
        self.asked = self.opening.clone();
        let tokens = self.extended(tokenizer);
        if tokens.is_err() {
            self.retract();
        }
        tokens
    }

    /// Appends the model's answer `text`. `tokens` are those of the whole dialogue, including the
    /// answer.
    pub fn answer(&mut self, tokens: Vec<TokenId>, text: &str) {
        self.messages.push(Message::new(Role::Assistant, text));
        self.earlier.push((std::mem::replace(&mut self.tokens, tokens), std::mem::take(&mut self.asked)));
    }

    /// Removes the last question if it was not answered.
    pub fn retract(&mut self) {
        if self.messages.pop_if(|message| message.role == Role::User).is_some() {
            self.opening = std::mem::take(&mut self.asked);
        }
    }

    /// Makes the whole dialogue the opening and returns its tokens.
    fn open(&mut self, tokens: Vec<TokenId>) -> Vec<TokenId> {
        self.opening = Opening { framed: None, messages: self.messages.len(), tokens: tokens.len() };
        tokens
    }

    fn extended(&mut self, tokenizer: &Tokenizer) -> Result<Vec<TokenId>, TextError> {
        if self.tokens.is_empty() {
            let tokens = framing::encode_messages(&self.framing, tokenizer, &self.messages, None)?;
            return Ok(self.open(tokens));
        }
        let mut tokens = self.tokens.clone();
        // A turn of the plain framings does not depend on the turns before it.
        let turn = &self.messages[self.messages.len() - 1..];
        let addition = match &self.framing {
            Framing::Bare => turn[0].content.clone(),
            Framing::Hh { stop: true } => {
                close_turn(&mut tokens, tokenizer)?;
                plain_prompt(turn)
            }
            // Answers are not closed: the text is encoded as that of a stored dialogue is.
            Framing::Hh { stop: false } => {
                let whole = framing::encode_messages(&self.framing, tokenizer, &self.messages, None)?;
                let keeps_opening = whole.starts_with(&tokens[..self.opening.tokens]);
                return Ok(if keeps_opening { whole } else { self.open(whole) });
            }
            Framing::Chat(template) => {
                let whole = template.prompt(&self.messages)?;
                let said = tokenizer.decode(&self.tokens)?;
                match whole.strip_prefix(said.as_str()) {
                    Some(addition) => addition.to_owned(),
                    // The template changes earlier turns, for example by trimming them, so all
                    // tokens are encoded again.
                    None => {
                        let tokens = tokenizer.encode(&whole)?;
                        return Ok(self.open(tokens));
                    }
                }
            }
        };
        tokens.extend(tokenizer.encode(&addition)?);
        Ok(tokens)
    }
}

/// Ends the answer at the end of `tokens` as in training: no white space after the last word, then
/// the end-of-turn token. The model may have ended it otherwise, or a limit or a stop text may have
/// cut it off.
fn close_turn(tokens: &mut Vec<TokenId>, tokenizer: &Tokenizer) -> Result<(), TextError> {
    let Some(end_of_turn) = tokenizer.id_of(END_OF_TURN) else { return Ok(()) };
    let end_of_text = tokenizer.id_of(END_OF_TEXT);
    let ends = |token| token == end_of_turn || Some(token) == end_of_text;
    let is_blank = |token| tokenizer.token_bytes(token).is_ok_and(|bytes| bytes.iter().all(u8::is_ascii_whitespace));
    while tokens.last().is_some_and(|&token| ends(token) || is_blank(token)) {
        tokens.pop();
    }
    // The last token may end in white space, too.
    let last = tokens.last().and_then(|&token| std::str::from_utf8(tokenizer.token_bytes(token).ok()?).ok());
    if let Some(word) = last.filter(|text| text.ends_with(char::is_whitespace)) {
        tokens.pop();
        tokens.extend(tokenizer.encode(word.trim_end())?);
    }
    tokens.push(end_of_turn);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::dialogue::TOKENIZER;
    use crate::text::ChatTemplate;
    use crate::train::encoder::Encoder;

    use super::*;

    const TURNS: [(&str, &str); 3] = [
        ("How do I apologise?", "Say what you did, and that you're sorry."),
        ("In 3 words?", "I am sorry!\n\n1. Mean it."),
        ("Thanks, naïve café ☕", "You're welcome."),
    ];

    /// Returns the tokens of a dialogue of [`TURNS`]. Each answer ends with the tokens that
    /// `ending` returns.
    fn asked(tokenizer: &Tokenizer, framing: Framing, ending: impl Fn(usize) -> Vec<TokenId>) -> Vec<TokenId> {
        let mut conversation = Conversation::new(framing, None);
        for (turn, (question, answer)) in TURNS.iter().enumerate() {
            let mut tokens = conversation.ask(tokenizer, question).unwrap();
            tokens.extend(tokenizer.encode(&format!(" {answer}")).unwrap());
            tokens.extend(ending(turn));
            conversation.answer(tokens, answer);
        }
        conversation.ask(tokenizer, "Bye.").unwrap()
    }

    #[test]
    fn answers_end_as_in_training() {
        let tokenizer = Tokenizer::from_file(Path::new(TOKENIZER)).unwrap();
        let trained = Encoder::load(Path::new(TOKENIZER).parent().unwrap()).unwrap();
        let dialogue: String = TURNS.iter().map(|(q, a)| format!("\n\nHuman: {q}\n\nAssistant: {a}")).collect();
        let expected = trained.prompt(&format!("{dialogue}\n\nHuman: Bye.\n\nAssistant:")).unwrap();
        assert_eq!(expected.iter().filter(|&&token| token == trained.end_of_turn).count(), TURNS.len());

        let blank = tokenizer.encode(" \n").unwrap();
        let endings = [
            vec![trained.end_of_turn],
            vec![trained.end_of_text],
            vec![],
            blank.clone(),
            [blank, vec![trained.end_of_turn]].concat(),
        ];
        for ending in &endings {
            assert_eq!(asked(&tokenizer, Framing::Hh { stop: true }, |_| ending.clone()), expected, "{ending:?}");
        }
        let unchanged = tokenizer.encode(&format!("{dialogue}\n\nHuman: Bye.\n\nAssistant:")).unwrap();
        assert_eq!(asked(&tokenizer, Framing::Hh { stop: false }, |turn| endings[turn].clone()), unchanged);

        // A token of this tokenizer holds a full stop and two line breaks.
        let mut tokens = tokenizer.encode("Mean it.\n\n").unwrap();
        close_turn(&mut tokens, &tokenizer).unwrap();
        assert_eq!(tokens, [tokenizer.encode("Mean it.").unwrap(), vec![trained.end_of_turn]].concat());
    }

    #[test]
    fn without_a_frame_nothing_is_added_between_turns() {
        let tokenizer = Tokenizer::from_file(Path::new(TOKENIZER)).unwrap();
        let text: String = TURNS.iter().map(|(q, a)| format!("{q} {a}")).collect();
        let said = tokenizer.decode(&asked(&tokenizer, Framing::Bare, |_| vec![])).unwrap();
        assert_eq!(said, format!("{text}Bye."));
    }

    #[test]
    fn a_question_follows_a_framed_dialogue() {
        let tokenizer = Tokenizer::from_file(Path::new(TOKENIZER)).unwrap();
        let framed = "\n\nHuman: Hi\n\nAssistant: Hello.\n\nHuman: Go on\n\nAssistant:";
        for framing in framings() {
            let mut conversation = Conversation::new(framing.clone(), Some("Be kind."));
            let begun = conversation.begin(&tokenizer, framed).unwrap();
            let answered = [&begun[..], &tokenizer.encode(" So it goes.").unwrap()].concat();
            conversation.answer(answered.clone(), "So it goes.");
            let asked = conversation.ask(&tokenizer, "And then?").unwrap();
            if matches!(framing, Framing::Bare) {
                assert_eq!(asked, [answered, tokenizer.encode("And then?").unwrap()].concat());
                continue;
            }
            let mut whole = Conversation::new(framing.clone(), None);
            let exchanges = [("Hi", "Hello."), ("Go on", "So it goes.")].map(|(q, a)| (q.to_owned(), a.to_owned()));
            whole.resume(Some("Be kind."), exchanges);
            assert_eq!(asked, whole.ask(&tokenizer, "And then?").unwrap(), "{framing:?}");
        }
    }

    /// The lane of an instruction reads the same tokens as a backbone with the instruction as its
    /// system message, including after the first question.
    #[test]
    fn an_instruction_is_a_system_message() {
        let tokenizer = Tokenizer::from_file(Path::new(TOKENIZER)).unwrap();
        let dialogue = "\n\nHuman: Hi\n\nAssistant: Hello.\n\nHuman: Go on\n\nAssistant:";
        for framing in framings() {
            for prompt in ["How do I apologise?", dialogue] {
                for (system, whole) in [(None, "Be calm."), (Some("You are kind."), "You are kind.\n\nBe calm.")] {
                    let mut merged = Conversation::new(framing.clone(), Some(whole));
                    let expected = merged.begin(&tokenizer, prompt).unwrap();
                    let mut conversation = Conversation::new(framing.clone(), system);
                    let tokens = conversation.begin(&tokenizer, prompt).unwrap();
                    let instruction = Instruction::new(tokens.len(), expected);
                    assert_eq!(conversation.instructed(&tokenizer, "Be calm.").unwrap(), instruction, "{prompt:?}");
                    let mut with_line_break = Conversation::new(framing.clone(), system);
                    assert!(prompt != dialogue || with_line_break.begin(&tokenizer, &format!("{prompt}\n")).unwrap() == tokens);
                    if prompt != dialogue {
                        conversation.answer(tokens, "Say sorry.");
                        conversation.ask(&tokenizer, "And then?").unwrap();
                        assert_eq!(conversation.instructed(&tokenizer, "Be calm.").unwrap(), instruction);
                    }
                }
            }
        }
    }

    fn framings() -> [Framing; 4] {
        let template = ChatTemplate::from_directory(Path::new(TOKENIZER).parent().unwrap()).unwrap();
        [Framing::Hh { stop: true }, Framing::Hh { stop: false }, Framing::Bare, Framing::Chat(template.into())]
    }

    /// Returns a dialogue of [`TURNS`], and the tokens at each of its questions.
    fn dialogue_of_turns(tokenizer: &Tokenizer, framing: Framing) -> (Conversation, Vec<Vec<TokenId>>) {
        let (mut conversation, mut asked) = (Conversation::new(framing, Some("Be kind.")), Vec::new());
        for (question, answer) in TURNS {
            let mut tokens = conversation.ask(tokenizer, question).unwrap();
            asked.push(tokens.clone());
            tokens.extend(tokenizer.encode(&format!(" {answer}")).unwrap());
            conversation.answer(tokens, answer);
        }
        (conversation, asked)
    }

    #[test]
    fn undo_and_retract_restore_the_dialogue() {
        let tokenizer = Tokenizer::from_file(Path::new(TOKENIZER)).unwrap();
        for framing in framings() {
            let (mut conversation, asked) = dialogue_of_turns(&tokenizer, framing);
            let instruction = |conversation: &Conversation| conversation.instructed(&tokenizer, "Be calm.").unwrap();
            for (place, (question, _)) in TURNS.iter().enumerate().rev() {
                assert_eq!(conversation.undo().as_deref(), Some(*question));
                assert_eq!(conversation.messages().len(), 1 + 2 * place);
                assert_eq!(conversation.ask(&tokenizer, question).unwrap(), asked[place]);
                let expected = instruction(&conversation);
                conversation.retract();
                conversation.ask(&tokenizer, "Something else?").unwrap();
                conversation.retract();
                assert_eq!(conversation.ask(&tokenizer, question).unwrap(), asked[place]);
                assert_eq!(instruction(&conversation), expected);
                conversation.retract();
            }
            assert_eq!(conversation.undo(), None);
        }
    }

    /// A dialogue that was stored as text continues as before, with its instructions at the same
    /// places.
    #[test]
    fn a_resumed_dialogue_continues_as_before() {
        let tokenizer = Tokenizer::from_file(Path::new(TOKENIZER)).unwrap();
        for framing in framings() {
            let (mut left, _) = dialogue_of_turns(&tokenizer, framing.clone());
            let expected = left.ask(&tokenizer, "Bye.").unwrap();
            let mut resumed = Conversation::new(framing.clone(), None);
            let exchanges = || TURNS.map(|(question, answer)| (question.to_owned(), answer.to_owned()));
            resumed.ask(&tokenizer, "Forgotten").unwrap();
            resumed.resume(Some("Be kind."), exchanges());
            let tokens = resumed.ask(&tokenizer, "Bye.").unwrap();
            if matches!(framing, Framing::Hh { stop: true }) {
                assert_eq!(tokens, expected);
            }
            assert_eq!((resumed.messages(), resumed.framing().stops()), (left.messages(), left.framing().stops()));
            let mut instructed = Conversation::new(framing, None);
            instructed.resume(Some("Be kind.\n\nBe calm."), exchanges());
            let whole = instructed.ask(&tokenizer, "Bye.").unwrap();
            assert_eq!(resumed.instructed(&tokenizer, "Be calm.").unwrap(), Instruction::new(tokens.len(), whole));
            resumed.retract();
            assert_eq!(resumed.undo().as_deref(), Some(TURNS[2].0));
        }
    }
}
