use crate::{StepError, TokenId};

/// The token ids a generation has so far: a prompt, then what was appended to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    tokens: Vec<TokenId>,
    prompt: usize,
}

impl Context {
    /// A context that holds a prompt alone.
    ///
    /// # Errors
    /// When the prompt has no tokens.
    pub fn new(prompt: impl Into<Vec<TokenId>>) -> Result<Self, StepError> {
        let tokens = prompt.into();
        if tokens.is_empty() {
            return Err(StepError::EmptyContext);
        }
        Ok(Self { prompt: tokens.len(), tokens })
    }

    /// Prompt and response.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// The response alone.
    pub fn response(&self) -> &[TokenId] {
        &self.tokens[self.prompt..]
    }

    /// Appends a span.
    pub fn extend(&mut self, span: &[TokenId]) {
        self.tokens.extend_from_slice(span);
    }
}
