use std::ops::Range;
use std::sync::Arc;

use rand::Rng;
use sk_core::{BoxError, Candidates, DraftRequest, PartialSpan, Proposal, SpanEnd, TokenId};

use super::EngineError;
use super::Sampling;
use super::Soup;
use super::drawing::{RowDraw, draw};
use super::error::proceed;
use super::follower::{Follower, check_context};
use super::sampling::{Drawn, Sampler, entropy, uniform};
use crate::decoder::{Decoder, HostWork, Logits, Seats, Suffix};
use crate::lora::LoraAdapter;

const ROLE: &str = "drafter";

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
    /// The reference runs dropped it, because they decoded spans and encoded them again. A dropped
    /// token cannot be the first of a candidate, since a candidate needs at least one token.
    pub keep_end_of_text: bool,
}

/// Π_prop: N spans sampled from a small model in parallel.
///
/// Each token takes one forward pass of N rows over one copy of the context's keys and values. The
/// chosen row's keys and values are kept.
pub struct Drafter {
    model: Arc<Decoder>,
    soup: Option<Soup>,
    adapter: Option<Arc<LoraAdapter>>,
    seats: Seats,
    config: DrafterConfig,
    /// Tokens that are never drawn.
    foreign: Range<TokenId>,
    follower: Follower,
    last: Option<(Suffix, Vec<Vec<TokenId>>)>,
}

impl Drafter {
    /// Returns a drafter on `model`.
    #[must_use]
    pub fn new(model: Arc<Decoder>, config: DrafterConfig) -> Self {
        let (seats, follower) = (model.alone(), Follower::new(&model, 1));
        Self { model, soup: None, adapter: None, seats, config, foreign: 0..0, follower, last: None }
    }

    /// Returns the drafter with only the first `vocab_size` tokens. Models with one tokenizer may
    /// embed different numbers of spare tokens, which others cannot read.
    #[must_use]
    pub fn with_vocab_size(self, vocab_size: usize) -> Self {
        let all = self.model.config().vocab_size;
        Self { foreign: vocab_size.min(all) as TokenId..all as TokenId, ..self }
    }

    /// Returns the drafter under the merged adapter of a soup.
    #[must_use]
    pub fn with_soup(self, soup: Soup) -> Self {
        Self { soup: Some(soup), ..self }
    }

    /// Seats the adapter of the soup. A new adapter invalidates the cache.
    fn seat(&mut self) -> Result<(), BoxError> {
        let Some(soup) = &mut self.soup else { return Ok(()) };
        let adapter = soup.adapter()?;
        if !self.adapter.as_ref().is_some_and(|seated| Arc::ptr_eq(seated, &adapter)) {
            self.seats = self.model.seat(&[Some(Arc::clone(&adapter))])?;
            self.adapter = Some(adapter);
            self.follower = Follower::new(&self.model, 1);
        }
        Ok(())
    }
}

impl Proposal for Drafter {
    fn knows_entropy(&self) -> bool {
        true
    }

    fn propose(&mut self, request: DraftRequest<'_>, rng: &mut dyn Rng) -> Result<Candidates, BoxError> {
        self.last = None;
        let context = request.context;
        check_context(&self.model, ROLE, context, 1)?;
        let limit = request.limit.min(self.model.config().max_position_embeddings - context.len()).max(1);
        let request = DraftRequest { limit, ..request };
        self.seat()?;
        self.follower.follow(&self.model, &self.seats, context)?;

        let rows = self.config.candidates.max(1);
        let mut suffix = self.model.suffix(1, rows);
        let mut spans = vec![PartialSpan::default(); rows];
        let mut samplers: Vec<Sampler> = (0..rows).map(|_| Sampler::default()).collect();
        let last = context[context.len() - 1];
        while spans.iter().any(|span| span.end.is_none()) {
            proceed()?;
            // Rows that have ended are still read, but their results are ignored.
            let inputs: Vec<[TokenId; 1]> = spans.iter().map(|span| [span.tokens.last().copied().unwrap_or(last)]).collect();
            let hidden = self.model.extend(&inputs, &self.seats, &mut self.follower.prefix, &mut suffix);
            let mut logits = self.model.logits_in_place(&hidden, &self.seats);
            let first = suffix.len() == 1;
            if request.granularity.needs_entropy() && !first {
                let host = logits.into_host(self.model.config().vocab_size)?;
                for (row, span) in spans.iter_mut().enumerate().filter(|(_, span)| span.end.is_none()) {
                    if request.granularity.ends_before(&span.tokens, entropy(host.row(row))) {
                        span.end = Some(SpanEnd::Complete);
                    }
                }
                logits = Logits::Host(host);
            }
            let ends: &[TokenId] = if first && !self.config.keep_end_of_text { &self.config.end_of_text } else { &[] };
            let forbidden: Vec<TokenId> = ends.iter().copied().chain(self.foreign.clone()).collect();
            // Uniform numbers are drawn in the order of the rows, so the results do not depend on
            // threads.
            let mut draws: Vec<RowDraw<'_>> = spans
                .iter()
                .zip(&mut samplers)
                .enumerate()
                .filter(|(_, (span, _))| span.end.is_none())
                .map(|(row, (span, sampler))| RowDraw {
                    row,
                    sampler,
                    history: [context, &span.tokens],
                    uniform: uniform(&self.config.sampling, rng),
                    drawn: None,
                })
                .collect();
            let sampling = &self.config.sampling;
            self.model.in_turn(HostWork::Draw, 1, || draw(logits, sampling, &forbidden, &mut draws))?;
            let drawn: Vec<(usize, Option<Drawn>)> = draws.into_iter().map(|draw| (draw.row, draw.drawn)).collect();
            for (row, drawn) in drawn {
                let Some(Drawn { token, log_prob }) = drawn else {
                    let (policy, [token]) = ("model that drafts".to_owned(), inputs[row]);
                    return Err(EngineError::NotANumber { policy, token }.into());
                };
                spans[row].push(token, log_prob, &request, &self.config.end_of_text, self.config.keep_end_of_text);
            }
        }

        let inputs = spans.iter().map(|span| inputs_of(last, &span.tokens)).collect();
        self.last = Some((suffix, inputs));
        Ok(Candidates::new(spans.into_iter().map(PartialSpan::into_candidate).collect())?)
    }

    fn commit(&mut self, chosen: usize) -> Result<(), BoxError> {
        if let Some((suffix, inputs)) = self.last.take() {
            self.follower.adopt(&self.model, &self.seats, (&suffix, chosen), &inputs[chosen]);
        }
        Ok(())
    }
}

/// Returns the tokens that predict `span`: the last token of the context, then all tokens of the
/// span but the last.
pub(super) fn inputs_of(last: TokenId, span: &[TokenId]) -> Vec<TokenId> {
    std::iter::once(last).chain(span[..span.len() - 1].iter().copied()).collect()
}
