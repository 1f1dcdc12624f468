use std::num::NonZeroUsize;
use std::sync::Arc;

use rand::{Rng, RngExt};
use sk_core::{BoxError, Candidates, DraftRequest, PartialSpan, Proposal, Sampling, TokenId};

use crate::error::counted;
use crate::fleet::{Answered, Fleet, Lease, Request};
use crate::reader::{Lane, Reader};
use crate::wire::{DraftParams, Drafted, Prefix, draft_body, sglang, vllm};
use crate::{Kind, RemoteError};

/// The number of tokens to request at first, before the length of spans is known.
const FIRST_PIECE: usize = 32;

/// The drafting parameters.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DrafterConfig {
    /// N.
    pub(crate) candidates: NonZeroUsize,
    pub(crate) sampling: Sampling,
    /// The tokens that end a response.
    pub(crate) end_of_text: Arc<[TokenId]>,
    /// Whether an end-of-text token stays in the candidate and ends the response. Otherwise it
    /// cannot be the first token, since a span needs at least one.
    pub(crate) keep_end_of_text: bool,
    /// The most tokens of a span.
    pub(crate) span_tokens: Option<NonZeroUsize>,
}

/// Π_prop: N spans sampled from the model behind servers.
///
/// A server does not know ρ, so spans are drafted in pieces and cut where ρ ends them. The length
/// of the first piece is that of the longest span of the last step. Each further piece, for the
/// rows that are not complete yet, is twice as long. A piece costs one round trip.
///
/// The log-probabilities of a candidate are those of the model before temperature, top-k, top-p,
/// penalty and masks. If one of these is on, the candidates are read again under the drafting
/// model, which costs a round trip. This is skipped if [`check`](crate::RemoteEngine::check) has
/// found that the servers return the unmodified log-probabilities, as vLLM does by default. On
/// SGLang, candidates are always read again if a span may not start with an end-of-text token.
pub(crate) struct RemoteDrafter {
    reader: Reader,
    config: DrafterConfig,
    /// The server that has cached the context.
    home: Lease,
    piece: usize,
}

impl RemoteDrafter {
    pub(crate) fn new(reader: Reader, config: DrafterConfig) -> Self {
        let home = Lease::new(&reader.fleet);
        Self { reader, config, home, piece: FIRST_PIECE }
    }

    fn fleet(&self) -> &Fleet {
        &self.reader.fleet
    }

    /// Drafts the next piece of each row. Also returns the server that answered.
    fn pieces(
        &self,
        prefix: &Prefix,
        tails: &[&[TokenId]],
        seeds: &[u32],
        params: &DraftParams<'_>,
    ) -> Result<(Vec<Drafted>, usize), RemoteError> {
        let fleet = self.fleet();
        let rows: Vec<(&[TokenId], u32)> = tails.iter().copied().zip(seeds.iter().copied()).collect();
        let size = match fleet.kind {
            // One prompt serves all rows until they differ.
            Kind::Vllm if tails.iter().any(|tail| !tail.is_empty()) => 1,
            Kind::Vllm | Kind::Sglang => rows.len(),
        };
        let place = (self.home.server(), false);
        let requests: Vec<_> = rows.chunks(size).map(|rows| request(fleet, place, prefix, rows, params)).collect();
        let answers = fleet.all(&requests, &self.reader.meter)?;
        let server = answers.last().map_or(place.0, |Answered { server, .. }| *server);
        Ok((answers.into_iter().flat_map(|answer| answer.value).collect(), server))
    }

    /// Returns whether the returned log-probabilities may be those of a modified distribution.
    fn is_altered(&self) -> bool {
        // Tokens that may not come first are masked.
        let is_masked = !self.config.keep_end_of_text;
        let is_altered = (is_masked || !self.config.sampling.is_plain()) && !self.fleet().is_untempered();
        match self.fleet().kind {
            // It returns the log-probability of a first token after masking, whatever the check has
            // found.
            Kind::Sglang => is_masked || is_altered,
            Kind::Vllm => is_altered,
        }
    }

    /// Replaces the log-probabilities by those of the unmodified model.
    fn read_back(&mut self, prefix: Arc<Prefix>, spans: &mut [PartialSpan]) -> Result<(), RemoteError> {
        let lane = Lane { name: Arc::from(""), adapter: None, prefix };
        let tokens: Vec<&[TokenId]> = spans.iter().map(|span| &span.tokens[..]).collect();
        let readings = self.reader.read(&[lane], &tokens)?;
        for (span, reading) in spans.iter_mut().zip(readings.into_iter().flatten()) {
            span.log_probs = reading.log_probs;
        }
        Ok(())
    }
}

impl Proposal for RemoteDrafter {
    fn propose(&mut self, request: DraftRequest<'_>, rng: &mut dyn Rng) -> Result<Candidates, BoxError> {
        if request.context.is_empty() {
            return Err(RemoteError::EmptyContext { policy: format!("the {}", self.fleet().role) }.into());
        }
        let prefix = Arc::new(request.context.to_vec());
        let cap = self.config.span_tokens.map_or(usize::MAX, NonZeroUsize::get);
        // The prefix must leave room for a drafted token, and for one that a reading requests in
        // addition.
        self.fleet().check_room(prefix.len() + 2)?;
        let room = self.fleet().room(prefix.len() + 1).unwrap_or(usize::MAX);
        let limit = request.limit.min(cap).min(room).max(1);
        let request = DraftRequest { limit, ..request };
        let rows = self.config.candidates.get();
        // All greedy rows are equal, and vLLM rejects several of them.
        let drawn = if self.config.sampling.is_greedy() { 1 } else { rows };
        let mut spans = vec![PartialSpan::default(); drawn];
        let mut piece = self.piece;
        loop {
            let open: Vec<usize> = (0..drawn).filter(|&row| spans[row].end.is_none()).collect();
            let Some(&first) = open.first() else { break };
            // Incomplete rows have received all pieces, so they have the same length.
            let done = spans[first].tokens.len();
            let params = DraftParams {
                max_tokens: piece.min(limit - done),
                sampling: self.config.sampling,
                stop: &self.config.end_of_text,
                not_first: done == 0 && !self.config.keep_end_of_text,
                tops: 0,
            };
            let tails: Vec<&[TokenId]> = open.iter().map(|&row| &spans[row].tokens[..]).collect();
            let seeds: Vec<u32> = open.iter().map(|_| rng.random::<u32>() >> 1).collect();
            let (pieces, server) = self.pieces(&prefix, &tails, &seeds, &params)?;
            self.home.move_to(server);
            for (row, Drafted { tokens, log_probs }) in open.into_iter().zip(pieces) {
                for (token, log_prob) in tokens.into_iter().zip(log_probs) {
                    spans[row].push(token, log_prob, &request, &self.config.end_of_text, self.config.keep_end_of_text);
                }
            }
            piece = piece.saturating_mul(2);
        }
        self.piece = spans.iter().map(|span| span.tokens.len()).max().unwrap_or(FIRST_PIECE).max(1);
        if self.is_altered() {
            self.read_back(prefix, &mut spans)?;
        }
        let candidates = spans.iter().cycle().take(rows).cloned().map(PartialSpan::into_candidate);
        Ok(Candidates::new(candidates.collect())?)
    }
}

/// Creates a request that samples one continuation of each row at a server, and nowhere else if
/// `pinned`. A row is the prefix with its tail, and a seed. On vLLM all rows must have the same
/// tail.
pub(crate) fn request<'a>(
    fleet: &Fleet,
    (home, pinned): (usize, bool),
    prefix: &Prefix,
    rows: &[(&[TokenId], u32)],
    params: &'a DraftParams<'_>,
) -> Request<'a, Vec<Drafted>> {
    let (kind, count) = (fleet.kind, rows.len());
    let (path, body) = draft_body((kind, fleet.model.as_deref()), prefix, rows, params);
    let parse = move |body: &[u8]| match kind {
        Kind::Sglang => sglang::draft_answer(body, count, params),
        Kind::Vllm => vllm::draft_answer(body, count, params),
    };
    let task = format!("drafting {} with the {}", counted(count, "span"), fleet.role);
    Request { home, pinned, task, path, body: Some(body), parse: Box::new(parse) }
}
