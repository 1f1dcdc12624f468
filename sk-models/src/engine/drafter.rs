use std::sync::Arc;

use rand::Rng;
use sk_core::{BoxError, Candidate, Candidates, DraftRequest, Proposal, SpanEnd, TokenId};

use super::EngineError;
use super::follower::{Follower, check_context};
use super::sampling::{Sampler, Sampling, uniform};
use crate::decoder::{Decoder, Seats, Suffix};
use crate::kernels::logits::are_numbers;
use crate::lora::LoraAdapter;
use crate::packed::team::for_each_mut;

const ROLE: &str = "drafter";

/// Room for tokens in a new suffix; it doubles as needed.
pub const SPAN_CAPACITY: usize = 32;

/// How a [`Drafter`] draws its candidates.
#[derive(Debug, Clone, PartialEq)]
pub struct DrafterConfig {
    /// N ≥ 1, candidates per step.
    pub candidates: usize,
    /// How each token is drawn.
    pub sampling: Sampling,
    /// Tokens that end a response.
    pub end_of_text: Vec<TokenId>,
    /// Whether an end-of-text token stays in the candidate and ends the response.
    ///
    /// The reference runs lost it: their spans were decoded and encoded again. Where it is dropped it cannot come first, since a
    /// span needs a token.
    pub keep_end_of_text: bool,
}

/// The adapter that a [`Drafter`] draws under, which may change from step to step.
pub trait DraftPolicy: Send {
    /// The adapter of the next step. Another allocation is another adapter: the context is then read again.
    ///
    /// # Errors
    /// When there is none.
    fn adapter(&mut self) -> Result<Arc<LoraAdapter>, BoxError>;
}

/// Π_prop: N spans sampled from a small model, side by side.
///
/// One forward pass of N rows per token, over one copy of the context's keys and values; what the winner computed is kept.
pub struct Drafter {
    model: Arc<Decoder>,
    policy: Option<Box<dyn DraftPolicy>>,
    adapter: Option<Arc<LoraAdapter>>,
    seats: Seats,
    config: DrafterConfig,
    follower: Follower,
    last: Option<(Suffix, Vec<Vec<TokenId>>)>,
}

impl Drafter {
    /// A drafter on `model`.
    #[must_use]
    pub fn new(model: Arc<Decoder>, config: DrafterConfig) -> Self {
        let (seats, follower) = (model.alone(), Follower::new(&model, 1));
        Self { model, policy: None, adapter: None, seats, config, follower, last: None }
    }

    /// The same drafter under an adapter.
    #[must_use]
    pub fn with_policy(self, policy: impl DraftPolicy + 'static) -> Self {
        Self { policy: Some(Box::new(policy)), ..self }
    }

    /// Makes the lane that of the policy's adapter. The cache of another adapter is of no use.
    fn seat(&mut self) -> Result<(), BoxError> {
        let Some(policy) = &mut self.policy else { return Ok(()) };
        let adapter = policy.adapter()?;
        if !self.adapter.as_ref().is_some_and(|seated| Arc::ptr_eq(seated, &adapter)) {
            self.seats = self.model.seat(&[Some(Arc::clone(&adapter))])?;
            self.adapter = Some(adapter);
            self.follower = Follower::new(&self.model, 1);
        }
        Ok(())
    }

    /// How candidates are drawn. Changes take effect at the next step.
    pub fn config_mut(&mut self) -> &mut DrafterConfig {
        &mut self.config
    }

    fn draft(&mut self, request: DraftRequest<'_>, rng: &mut dyn Rng) -> Result<Candidates, BoxError> {
        self.last = None;
        let context = request.context;
        check_context(&self.model, ROLE, context, 1)?;
        let limit = request.limit.min(self.model.config().max_position_embeddings - context.len()).max(1);
        self.seat()?;
        self.follower.follow(&self.model, &self.seats, context);

        let rows = self.config.candidates.max(1);
        let mut suffix = self.model.suffix(1, rows, SPAN_CAPACITY.min(limit));
        let mut spans: Vec<Span> = (0..rows).map(|_| Span::default()).collect();
        let last = context[context.len() - 1];
        while spans.iter().any(|span| span.end.is_none()) {
            // A row that has ended reads on and is ignored.
            let inputs: Vec<[TokenId; 1]> = spans.iter().map(|span| [span.tokens.last().copied().unwrap_or(last)]).collect();
            let hidden = self.model.extend(&inputs, &self.seats, self.follower.prefix(), &mut suffix);
            let mut logits = self.model.logits(&hidden, &self.seats)?;
            let rows = logits.chunks_exact_mut(self.model.config().vocab_size);
            // The numbers are taken in the order of the rows, whatever thread draws with them.
            let mut draws: Vec<Draw<'_>> = spans
                .iter_mut()
                .zip(rows)
                .zip(&inputs)
                .filter(|((span, _), _)| span.end.is_none())
                .map(|((span, logits), input)| Draw {
                    span,
                    logits,
                    input: input[0],
                    uniform: uniform(&self.config.sampling, rng),
                })
                .collect();
            let config = &self.config;
            for_each_mut(&mut draws, |_, draw| {
                if are_numbers(draw.logits) {
                    config.extend(draw.span, draw.logits, draw.uniform, &request, limit);
                } else {
                    draw.span.broken = true;
                }
            });
            if let Some(draw) = draws.iter().find(|draw| draw.span.broken) {
                return Err(EngineError::NotANumber { policy: "model that drafts".to_owned(), token: draw.input }.into());
            }
        }

        let inputs = spans.iter().map(|span| inputs_of(last, &span.tokens)).collect();
        self.last = Some((suffix, inputs));
        let candidates = spans
            .into_iter()
            .map(|span| Candidate { tokens: span.tokens, log_probs: span.log_probs, end: span.end.unwrap_or(SpanEnd::Limit) })
            .collect();
        Ok(Candidates::new(candidates)?)
    }
}

impl Proposal for Drafter {
    fn propose(&mut self, request: DraftRequest<'_>, rng: &mut dyn Rng) -> Result<Candidates, BoxError> {
        self.draft(request, rng)
    }

    fn commit(&mut self, chosen: usize) -> Result<(), BoxError> {
        if let Some((suffix, inputs)) = self.last.take() {
            self.follower.adopt(&suffix, chosen, &inputs[chosen]);
        }
        Ok(())
    }
}

/// A candidate being drawn.
#[derive(Default)]
struct Span {
    tokens: Vec<TokenId>,
    log_probs: Vec<f32>,
    end: Option<SpanEnd>,
    sampler: Sampler,
    /// Whether the model returned what is no number.
    broken: bool,
}

/// One row's next token.
struct Draw<'a> {
    span: &'a mut Span,
    logits: &'a mut [f32],
    /// The token that was read.
    input: TokenId,
    uniform: f64,
}

impl DrafterConfig {
    /// Draws one more token of a span, and says so where that ends it.
    fn extend(&self, span: &mut Span, logits: &mut [f32], uniform: f64, request: &DraftRequest<'_>, limit: usize) {
        if !self.keep_end_of_text && span.tokens.is_empty() {
            for &end in &self.end_of_text {
                if let Some(logit) = logits.get_mut(end as usize) {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
        let history = request.context.iter().chain(&span.tokens).copied();
        let drawn = span.sampler.draw(logits, history, &self.sampling, uniform);
        if self.end_of_text.contains(&drawn.token) {
            if !self.keep_end_of_text {
                span.end = Some(SpanEnd::Complete);
                return;
            }
            span.end = Some(SpanEnd::EndOfText);
        }
        span.tokens.push(drawn.token);
        span.log_probs.push(drawn.log_prob);
        if span.end.is_none() {
            if request.granularity.completes(&span.tokens) {
                span.end = Some(SpanEnd::Complete);
            } else if span.tokens.len() >= limit {
                span.end = Some(SpanEnd::Limit);
            }
        }
    }
}

/// The tokens a model reads to predict `span`: the last one of the context, then all of the span but its last.
pub(super) fn inputs_of(last: TokenId, span: &[TokenId]) -> Vec<TokenId> {
    std::iter::once(last).chain(span[..span.len() - 1].iter().copied()).collect()
}
