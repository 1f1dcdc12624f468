//! Verification of servers: a known span is scored in two ways before a server is used.

use std::sync::Arc;

use sk_core::{Reading, Sampling, TokenId};

use crate::drafter;
use crate::fleet::{Control, Fleet, Request};
use crate::reader::{policy_name, request};
use crate::tolerance::{mean, mean_difference};
use crate::wire::{DraftParams, Drafted, Prefix, Row, sglang, tokenize_answer, tokenize_body, vllm};
use crate::{Kind, Meter, RemoteError};

/// The fewest tokens of a probe. The first half is the context, and the rest is scored.
const LEAST: usize = 8;
/// The most tokens of the context, and the most that are scored after it. The control rows of each
/// step are as long. The rest of a longer probe serves only to compare tokenizers.
const MOST: usize = 24;
/// The number of times that the mixed batch is scored, since the server's batching varies.
const ROUNDS: usize = 2;
/// The number of tokens that are drafted and then read.
const DRAFTED: usize = 8;

/// A text to check servers with.
#[derive(Debug, Clone, Copy)]
pub struct Probe<'a> {
    /// Its tokens by the caller's tokenizer, at least 8. The text should be one on which the
    /// adapters differ from the base model.
    pub tokens: &'a [TokenId],
    /// The text itself, to compare tokenizers with.
    pub text: &'a str,
}

/// The results of a check that passed.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckReport {
    /// The results for each server: those of the backbone, then those of the drafter if it has its
    /// own.
    pub servers: Vec<ServerReport>,
    /// The name of each adapter on the servers, with the mean distance of its log-probabilities
    /// from those of the base model, in nats per token.
    pub adapters: Vec<(Arc<str>, f32)>,
}

/// The results for a server.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerReport {
    /// Its role: `backbone` or `drafter`.
    pub role: &'static str,
    /// Its address.
    pub address: String,
    /// Whether it has a tokenizer endpoint, so that its tokenizer was compared.
    pub tokenizes: bool,
    /// The most tokens of a context with its continuation, if the server reports it.
    pub limit: Option<usize>,
    /// The largest mean distance between the scores of a span in a mixed batch and alone, in nats
    /// per token.
    pub noise: f32,
}

/// Checks the servers of a role, and stores the expected values of the control rows.
pub(crate) struct Checker<'a> {
    pub(crate) fleet: &'a Fleet,
    pub(crate) adapters: &'a [Arc<str>],
    pub(crate) probe: Probe<'a>,
    pub(crate) meter: &'a Meter,
}

impl Checker<'_> {
    /// Checks the servers and the adapters of the role.
    pub(crate) fn run(&self) -> Result<CheckReport, RemoteError> {
        let tokens = self.probe.tokens;
        if tokens.len() < LEAST {
            return Err(RemoteError::ShortProbe { tokens: tokens.len(), least: LEAST });
        }
        let scored = (tokens.len() / 2).min(MOST);
        let (context, rest) = tokens.split_at((tokens.len() - scored).min(MOST));
        let (prefix, span) = (context.to_vec(), &rest[..scored]);
        let mut reports = Vec::new();
        let mut first: Option<Vec<Reading>> = None;
        let mut untempered = true;
        for server in 0..self.fleet.len() {
            let limit = self.limit(server)?;
            let tokenizes = self.tokenizer(server)?;
            let alone = self.alone(server, &prefix, span)?;
            if let Some(first) = &first {
                let reference = format!("{} alone", self.fleet.address(0));
                for (policy, (expected, got)) in self.policies().zip(first.iter().zip(&alone)) {
                    self.compare(server, "alone", (policy, span), (&reference, &expected.log_probs), &got.log_probs)?;
                }
            }
            self.compare_adapters(server, &alone)?;
            let noise = self.mixed(server, &prefix, span, &alone)?;
            untempered &= self.drafts(server, &prefix)?;
            let address = self.fleet.address(server).to_owned();
            reports.push(ServerReport { role: self.fleet.role, address, tokenizes, limit, noise });
            first.get_or_insert(alone);
        }
        self.fleet.learn_untempered(untempered);
        let read = first.unwrap_or_default();
        for (adapter, reading) in self.policies().zip(&read) {
            let control = Control { prefix: context.to_vec(), span: span.to_vec(), log_probs: reading.log_probs.clone() };
            self.fleet.controls.insert(adapter.map_or("", |name| &**name), control);
        }
        let distance = |(adapter, reading): (&Arc<str>, &Reading)| {
            (Arc::clone(adapter), mean_difference(&reading.log_probs, &read[0].log_probs))
        };
        let adapters = self.adapters.iter().zip(read.iter().skip(1)).map(distance).collect();
        Ok(CheckReport { servers: reports, adapters })
    }

    /// Iterates over the base model and the adapters.
    fn policies(&self) -> impl Iterator<Item = Option<&Arc<str>>> {
        std::iter::once(None).chain(self.adapters.iter().map(Some))
    }

    /// Reads the span under each policy, with one request after the other.
    fn alone(&self, server: usize, prefix: &Prefix, span: &[TokenId]) -> Result<Vec<Reading>, RemoteError> {
        let mut readings = Vec::new();
        for adapter in self.policies() {
            let rows = [Row { adapter: adapter.map(|name| &**name), prefix, span }];
            let request = request(self.fleet, (server, true), &rows, |_| Ok(()));
            readings.extend(self.fleet.ask(&request, self.meter)?.value);
        }
        Ok(readings)
    }

    /// Scores spans of several lengths under all policies at once. Returns the largest distance
    /// from `alone`.
    fn mixed(&self, server: usize, prefix: &Prefix, span: &[TokenId], alone: &[Reading]) -> Result<f32, RemoteError> {
        let half = &span[..span.len() / 2];
        let policies: Vec<Option<&Arc<str>>> = self.policies().collect();
        // Rows of one request share a policy on vLLM, and alternate between policies on SGLang.
        let places: Vec<(usize, &[TokenId])> =
            [span, half, span].into_iter().flat_map(|span| (0..policies.len()).map(move |policy| (policy, span))).collect();
        let batches: Vec<Vec<(usize, &[TokenId])>> = match self.fleet.kind {
            Kind::Sglang => vec![places],
            Kind::Vllm => {
                let of = |policy| places.iter().copied().filter(|place| place.0 == policy).collect();
                (0..policies.len()).map(of).collect()
            }
        };
        let row = |&(policy, span): &(usize, _)| Row { adapter: policies[policy].map(|name| &**name), prefix, span };
        let rows: Vec<Vec<Row<'_>>> = batches.iter().map(|batch| batch.iter().map(row).collect()).collect();
        let mut noise = 0.0_f32;
        for _ in 0..ROUNDS {
            let requests: Vec<_> = rows.iter().map(|rows| request(self.fleet, (server, true), rows, |_| Ok(()))).collect();
            for (batch, answer) in batches.iter().zip(self.fleet.all(&requests, self.meter)?) {
                for (&(policy, span), reading) in batch.iter().zip(&answer.value) {
                    let expected = &alone[policy].log_probs[..span.len()];
                    let got = &reading.log_probs;
                    self.compare(server, "in a mixed batch", (policies[policy], span), ("alone", expected), got)?;
                    noise = noise.max(mean_difference(expected, got));
                }
            }
        }
        Ok(noise)
    }

    /// Checks that a span has the same log-probabilities in two scorings.
    fn compare(
        &self,
        server: usize,
        way: &'static str,
        (policy, span): (Option<&Arc<str>>, &[TokenId]),
        (reference, expected): (&str, &[f32]),
        got: &[f32],
    ) -> Result<(), RemoteError> {
        let Some(position) = self.fleet.tolerance.violation(expected, got) else { return Ok(()) };
        Err(RemoteError::Mismatch {
            server: self.fleet.address(server).to_owned(),
            way,
            policy: policy_name(policy.map(|name| &**name)),
            position,
            token: span[position],
            reference: reference.to_owned(),
            expected: expected[position],
            got: got[position],
            tolerance: self.fleet.tolerance.mean,
        })
    }

    /// Checks that each adapter differs from the base model by more than the tolerance.
    fn compare_adapters(&self, server: usize, alone: &[Reading]) -> Result<(), RemoteError> {
        let base = &alone[0].log_probs;
        for (adapter, reading) in self.adapters.iter().zip(&alone[1..]) {
            if mean_difference(base, &reading.log_probs) <= self.fleet.tolerance.mean {
                return Err(RemoteError::SameAsBase {
                    server: self.fleet.address(server).to_owned(),
                    adapter: adapter.to_string(),
                    got: mean(&reading.log_probs),
                    base: mean(base),
                });
            }
        }
        Ok(())
    }

    /// Drafts at temperature 1, where the log-probabilities must equal those of reading, and at
    /// other settings. Returns whether they are equal there too.
    fn drafts(&self, server: usize, prefix: &Prefix) -> Result<bool, RemoteError> {
        let plain = Sampling::new(1.0, 1.0, 0, 1.0);
        let altered = Sampling::new(0.5, 0.9, 10, 1.2);
        let (Ok(plain), Ok(altered)) = (plain, altered) else { return Ok(false) };
        if let Some((token, returned, read)) = self.draft_and_read(server, prefix, plain)? {
            let server = self.fleet.address(server).to_owned();
            return Err(RemoteError::Drafted { server, token, returned, read });
        }
        Ok(self.draft_and_read(server, prefix, altered)?.is_none())
    }

    /// Drafts a few tokens and reads them. Returns a token with both log-probabilities if they
    /// differ by more than the tolerance.
    fn draft_and_read(
        &self,
        server: usize,
        prefix: &Prefix,
        sampling: Sampling,
    ) -> Result<Option<(TokenId, f32, f32)>, RemoteError> {
        let params = DraftParams { max_tokens: DRAFTED, sampling, stop: &[], not_first: false, tops: 0 };
        let task = format!("drafting a span with the {}", self.fleet.role);
        let asked = Request { task, ..drafter::request(self.fleet, (server, true), prefix, &[(&[], 1)], &params) };
        let drafted = self.fleet.ask(&asked, self.meter)?.value.pop();
        let Some(Drafted { tokens, log_probs }) = drafted else { return Ok(None) };
        let rows = [Row { adapter: None, prefix, span: &tokens }];
        let again = request(self.fleet, (server, true), &rows, |_| Ok(()));
        let read = self.fleet.ask(&again, self.meter)?.value.pop().unwrap_or_default();
        let apart = self.fleet.tolerance.violation(&read.log_probs, &log_probs);
        Ok(apart.map(|place| (tokens[place], log_probs[place], read.log_probs[place])))
    }

    /// Compares the tokenizer of a server. Returns whether the server offers this.
    fn tokenizer(&self, server: usize) -> Result<bool, RemoteError> {
        let body = tokenize_body(self.fleet.model.as_deref(), self.probe.text);
        let parse = Box::new(tokenize_answer);
        let task = "tokenizing".to_owned();
        let request = Request { home: server, pinned: true, task, path: "/tokenize", body: Some(body), parse };
        let Some(theirs) = self.offered(&request)? else { return Ok(false) };
        let ours = self.probe.tokens;
        let at = |tokens: &[TokenId], place: usize| tokens.get(place).map_or_else(|| "the end".to_owned(), ToString::to_string);
        match (0..ours.len().max(theirs.len())).find(|&place| ours.get(place) != theirs.get(place)) {
            None => Ok(true),
            Some(position) => Err(RemoteError::Tokenizer {
                server: self.fleet.address(server).to_owned(),
                position,
                ours: at(ours, position),
                theirs: at(&theirs, position),
            }),
        }
    }

    fn limit(&self, server: usize) -> Result<Option<usize>, RemoteError> {
        let (paths, parse): (&[&'static str], fn(&[u8]) -> _) = match self.fleet.kind {
            Kind::Vllm => (&["/v1/models"], vllm::limit_answer),
            Kind::Sglang => (&["/server_info", "/get_server_info"], sglang::limit_answer),
        };
        for &path in paths {
            let task = "describing the model".to_owned();
            let request = Request { home: server, pinned: true, task, path, body: None, parse: Box::new(parse) };
            if let Some(limit) = self.offered(&request)?.flatten() {
                self.fleet.learn_limit(limit);
                return Ok(Some(limit));
            }
        }
        Ok(None)
    }

    /// Sends a request that some servers do not support; `None` if it is not supported.
    fn offered<T>(&self, request: &Request<'_, T>) -> Result<Option<T>, RemoteError> {
        match self.fleet.ask(request, self.meter) {
            Ok(answer) => Ok(Some(answer.value)),
            Err(RemoteError::Refused { status: 404 | 405, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
