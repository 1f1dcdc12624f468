//! A dialogue as the model sees it: token ids that only ever grow.

use sk_core::TokenId;
use sk_models::text::{ChatTemplate, Message, Role, TextError, Tokenizer, plain_prompt};

/// How a dialogue becomes a text for the model.
#[derive(Debug)]
pub enum Framing {
    /// `"\n\nHuman: …\n\nAssistant: …"`.
    Hh {
        /// Whether a response ends where the model goes on to play the human.
        stop: bool,
    },
    /// The chat template of a checkpoint.
    Chat(Box<ChatTemplate>),
    /// No frame: what is said is what the model continues.
    Bare,
}

impl Framing {
    /// The text that ends a response.
    pub fn stop(&self) -> Option<&'static str> {
        matches!(self, Self::Hh { stop: true }).then_some("\n\nHuman:")
    }

    fn render(&self, messages: &[Message]) -> Result<String, TextError> {
        match self {
            Self::Hh { .. } => Ok(plain_prompt(messages)),
            Self::Chat(template) => template.prompt(messages),
            Self::Bare => Ok(messages.iter().map(|message| message.content.as_str()).collect()),
        }
    }
}

/// A dialogue, turn by turn.
///
/// The tokens of an answer are kept as they were chosen and never encoded again from text; only what is new is encoded. So the models
/// find their own prefix again, and an answer is remembered exactly.
#[derive(Debug)]
pub struct Conversation {
    framing: Framing,
    messages: Vec<Message>,
    tokens: Vec<TokenId>,
}

impl Conversation {
    /// A dialogue in which nobody has spoken.
    pub fn new(framing: Framing, system: Option<&str>) -> Self {
        let messages = system.map(|text| Message::new(Role::System, text)).into_iter().collect();
        Self { framing, messages, tokens: Vec::new() }
    }

    /// How it is framed.
    pub fn framing(&self) -> &Framing {
        &self.framing
    }

    /// What was said so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The user speaks: the tokens of the whole dialogue, ready for the answer.
    ///
    /// # Errors
    /// When the template or the tokenizer refuses it; the dialogue is then as it was.
    pub fn ask(&mut self, tokenizer: &Tokenizer, text: &str) -> Result<Vec<TokenId>, TextError> {
        self.messages.push(Message::new(Role::User, text));
        let tokens = self.extended(tokenizer);
        if tokens.is_err() {
            self.retract();
        }
        tokens
    }

    /// The model has answered `text`: `tokens` are those of the whole dialogue, its answer included.
    pub fn answer(&mut self, tokens: Vec<TokenId>, text: &str) {
        self.messages.push(Message::new(Role::Assistant, text));
        self.tokens = tokens;
    }

    /// Takes the last question back, where it was not answered.
    pub fn retract(&mut self) {
        if self.messages.last().is_some_and(|message| message.role == Role::User) {
            self.messages.pop();
        }
    }

    fn extended(&self, tokenizer: &Tokenizer) -> Result<Vec<TokenId>, TextError> {
        if self.tokens.is_empty() {
            return tokenizer.encode(&self.framing.render(&self.messages)?);
        }
        let addition = match &self.framing {
            // A turn of these framings does not depend on the turns before it.
            Framing::Hh { .. } | Framing::Bare => self.framing.render(&self.messages[self.messages.len() - 1..])?,
            Framing::Chat(template) => {
                let whole = template.prompt(&self.messages)?;
                let said = tokenizer.decode(&self.tokens)?;
                match whole.strip_prefix(said.as_str()) {
                    Some(addition) => addition.to_owned(),
                    // The template changes earlier turns (it trims them, say): there is nothing to keep.
                    None => return tokenizer.encode(&whole),
                }
            }
        };
        let mut tokens = self.tokens.clone();
        tokens.extend(tokenizer.encode(&addition)?);
        Ok(tokens)
    }
}
