use std::sync::Arc;

use rand::Rng;
use sk_core::TokenId;

use super::EngineError;
use super::Sampling;
use super::drawing::{self, RowDraw};
use super::error::proceed;
use super::follower::{Follower, check_context};
use super::sampling::{Sampler, log_sum_exp, uniform};
use crate::decoder::{Decoder, Hidden, HostWork, Seats};
use crate::kernels::logits::are_numbers;

const ROLE: &str = "model";

/// Tokens whose logits are in memory at a time while a text is scored.
const SCORED: usize = 32;

/// The score of a token of a text under the model.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenScore {
    /// log π(y_t | y_<t), in nats.
    pub log_prob: f32,
    /// The most probable tokens at its place with their log-probabilities, in descending order.
    /// Among equals, the lower id comes first.
    pub top: Vec<(TokenId, f32)>,
}

/// A frozen model that decodes without steering: the baseline of every steered measurement.
pub struct Frozen {
    model: Arc<Decoder>,
    seats: Seats,
    follower: Follower,
    sampler: Sampler,
}

impl TokenScore {
    fn of(logits: &[f32], target: TokenId, top: usize) -> Self {
        let normalizer = log_sum_exp(logits);
        let mut ids: Vec<TokenId> = (0..logits.len() as TokenId).collect();
        let falling = |a: &TokenId, b: &TokenId| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
        if top < ids.len() {
            ids.select_nth_unstable_by(top, falling);
            ids.truncate(top);
        }
        ids.sort_unstable_by(falling);
        let log_prob = |id: TokenId| logits[id as usize] - normalizer;
        Self { log_prob: log_prob(target), top: ids.into_iter().map(|id| (id, log_prob(id))).collect() }
    }
}

impl Frozen {
    /// Returns a decoder on `model`.
    #[must_use]
    pub fn new(model: Arc<Decoder>) -> Self {
        let (seats, follower) = (model.alone(), Follower::new(&model, 1));
        Self { model, seats, follower, sampler: Sampler::default() }
    }

    /// Prefills the cache with `context` except for its last token.
    ///
    /// # Errors
    /// If the context is empty, does not fit the model or has a token that the model lacks, or the
    /// request was stopped.
    pub fn prefill(&mut self, context: &[TokenId]) -> Result<(), EngineError> {
        check_context(&self.model, ROLE, context, 1)?;
        self.follower.follow(&self.model, &self.seats, context)
    }

    /// Returns the logits of the next token, one per entry of the vocabulary.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill), or if the device fails or the model returns NaN or infinity.
    pub fn next_logits(&mut self, context: &[TokenId]) -> Result<Vec<f32>, EngineError> {
        let (hidden, last) = self.read(context)?;
        let logits = self.model.logits(&hidden, &self.seats)?;
        if !are_numbers(&logits) {
            return Err(not_a_number(last));
        }
        Ok(logits)
    }

    /// Returns the argmax of the next-token logits. Among equal logits, the first wins.
    ///
    /// # Errors
    /// As [`next_logits`](Self::next_logits).
    pub fn argmax(&mut self, context: &[TokenId]) -> Result<TokenId, EngineError> {
        let (hidden, last) = self.read(context)?;
        let token = self.model.argmax(&hidden, &self.seats)?.pop().flatten();
        token.ok_or_else(|| not_a_number(last))
    }

    /// Returns the scores of the tokens of `text` from index `from` on, each with the `top` most
    /// probable tokens. Takes one pass over the text and O(V log V) per token.
    ///
    /// # Errors
    /// As [`next_logits`](Self::next_logits), for the text.
    ///
    /// # Panics
    /// If `from` is 0: nothing precedes the first token.
    pub fn score(&mut self, text: &[TokenId], from: usize, top: usize) -> Result<Vec<TokenScore>, EngineError> {
        assert!(from > 0, "nothing precedes the first token of a text");
        check_context(&self.model, ROLE, text, 0)?;
        let (model, seats) = (&self.model, &self.seats);
        self.follower.follow(model, seats, text.get(..from).unwrap_or(text))?;
        let mut scores = Vec::new();
        let mut place = from;
        while place < text.len() {
            proceed()?;
            let targets = &text[place..text.len().min(place + SCORED)];
            let inputs = &text[place - 1..place - 1 + targets.len()];
            let mut suffix = model.suffix(1, 1);
            let hidden = model.extend(&[inputs], seats, &mut self.follower.prefix, &mut suffix);
            let logits = model.logits(&hidden, seats)?;
            for (row, (&input, &target)) in logits.chunks_exact(model.config().vocab_size).zip(inputs.iter().zip(targets)) {
                if !are_numbers(row) {
                    return Err(not_a_number(input));
                }
                scores.push(TokenScore::of(row, target, top));
            }
            self.follower.adopt(model, seats, (&suffix, 0), inputs);
            place += targets.len();
        }
        Ok(scores)
    }

    /// Draws a token by `uniform`, a number in [0, 1).
    fn draw(&mut self, context: &[TokenId], sampling: &Sampling, uniform: f64) -> Result<TokenId, EngineError> {
        let (hidden, last) = self.read(context)?;
        let logits = self.model.logits_in_place(&hidden, &self.seats);
        let mut draws = [RowDraw { row: 0, sampler: &mut self.sampler, history: [context, &[]], uniform, drawn: None }];
        self.model.in_turn(HostWork::Draw, 1, || drawing::draw(logits, sampling, &[], &mut draws))?;
        let drawn = draws[0].drawn.ok_or_else(|| not_a_number(last))?;
        Ok(drawn.token)
    }

    /// Prefills the cache with the whole context. Returns the state after the last token, and that
    /// token.
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
    /// As [`next_logits`](Self::next_logits), or if the context outgrows the model. Tokens appended so
    /// far stay.
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

/// Returns the error of a model that returned NaN or infinity after `token`.
fn not_a_number(token: TokenId) -> EngineError {
    EngineError::NotANumber { policy: ROLE.to_owned(), token }
}
