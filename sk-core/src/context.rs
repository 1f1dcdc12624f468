use crate::{StepError, TokenId};

/// The token ids of a generation: the prompt, then the response so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    tokens: Vec<TokenId>,
    prompt: usize,
}

impl Context {
    /// Creates a context from a prompt.
    ///
    /// # Errors
    /// If the prompt has no tokens.
    pub fn new(prompt: impl Into<Vec<TokenId>>) -> Result<Self, StepError> {
        let tokens = prompt.into();
        if tokens.is_empty() {
            return Err(StepError::EmptyContext);
        }
        Ok(Self { prompt: tokens.len(), tokens })
    }

    /// Returns prompt and response.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Returns the response.
    pub fn response(&self) -> &[TokenId] {
        &self.tokens[self.prompt..]
    }

    /// Appends a span.
    pub fn extend(&mut self, span: &[TokenId]) {
        self.tokens.extend_from_slice(span);
    }
}
