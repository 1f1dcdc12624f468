use std::sync::Arc;

use rand::Rng;
use sk_core::TokenId;

use super::EngineError;
use super::Sampling;
use super::drawing::{self, Draw};
use super::error::proceed;
use super::follower::{Follower, check_context};
use super::sampling::{Sampler, uniform};
use crate::decoder::{Decoder, Hidden, Seats};
use crate::kernels::logits::are_numbers;

const ROLE: &str = "model";

/// A frozen model that decodes without steering: the baseline of every steered measurement.
pub struct Frozen {
    model: Arc<Decoder>,
    seats: Seats,
    follower: Follower,
    sampler: Sampler,
}

impl Frozen {
    /// Returns a decoder on `model`.
    #[must_use]
    pub fn new(model: Arc<Decoder>) -> Self {
        let (seats, follower) = (model.alone(), Follower::new(&model, 1));
        Self { model, seats, follower, sampler: Sampler::default() }
    }

    /// Reads `context` except for its last token into the cache.
    ///
    /// # Errors
    /// If the context does not fit the model.
    pub fn prefill(&mut self, context: &[TokenId]) -> Result<(), EngineError> {
        check_context(&self.model, ROLE, context, 1)?;
        self.follower.follow(&self.model, &self.seats, context)
    }

    /// Returns the logits of the next token, one per entry of the vocabulary.
    ///
    /// # Errors
    /// If the context does not fit the model, or the device fails.
    pub fn next_logits(&mut self, context: &[TokenId]) -> Result<Vec<f32>, EngineError> {
        let (hidden, last) = self.read(context)?;
        let logits = self.model.logits(&hidden, &self.seats)?;
        if !are_numbers(&logits) {
            return Err(EngineError::NotANumber { policy: ROLE.to_owned(), token: last });
        }
        Ok(logits)
    }

    /// Returns the argmax of the next token, the first of equals.
    ///
    /// # Errors
    /// If the context does not fit the model, or the device fails.
    pub fn argmax(&mut self, context: &[TokenId]) -> Result<TokenId, EngineError> {
        let (hidden, last) = self.read(context)?;
        let token = self.model.argmax(&hidden, &self.seats)?.pop().flatten();
        token.ok_or_else(|| EngineError::NotANumber { policy: ROLE.to_owned(), token: last })
    }

    /// Draws a token by `uniform`, a number in [0, 1).
    fn draw(&mut self, context: &[TokenId], sampling: &Sampling, uniform: f64) -> Result<TokenId, EngineError> {
        let (hidden, last) = self.read(context)?;
        let logits = self.model.next(&hidden, &self.seats);
        let draw = Draw { row: 0, sampler: &mut self.sampler, history: [context, &[]], uniform, drawn: None };
        let mut draws = [draw];
        drawing::draw(logits, self.model.config().vocab_size, sampling, &[], &mut draws)?;
        let drawn = draws[0].drawn.ok_or_else(|| EngineError::NotANumber { policy: ROLE.to_owned(), token: last })?;
        Ok(drawn.token)
    }

    /// Returns the state after the last token, which joins the context, so that the next call finds
    /// it in the cache.
    fn read(&mut self, context: &[TokenId]) -> Result<(Hidden, TokenId), EngineError> {
        self.prefill(context)?;
        proceed()?;
        let last = context[context.len() - 1];
        Ok((self.follower.advance(&self.model, &self.seats, last), last))
    }

    /// Appends up to `limit` tokens to `context` until one is in `end_of_text` (and stays) or
    /// `on_token` returns `false`.
    ///
    /// # Errors
    /// If the context outgrows the model, or the device fails. Tokens appended so far stay.
    pub fn decode(
        &mut self,
        context: &mut Vec<TokenId>,
        sampling: &Sampling,
        limit: usize,
        end_of_text: &[TokenId],
        rng: &mut dyn Rng,
        mut on_token: impl FnMut(TokenId) -> bool,
    ) -> Result<(), EngineError> {
        for _ in 0..limit {
            let token =
                if sampling.is_argmax() { self.argmax(context)? } else { self.draw(context, sampling, uniform(sampling, rng))? };
            context.push(token);
            if !on_token(token) || end_of_text.contains(&token) {
                break;
            }
        }
        Ok(())
    }
}
