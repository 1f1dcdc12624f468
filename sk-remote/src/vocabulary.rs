use std::sync::Arc;

use rand::Rng;
use sk_core::{BoxError, Candidate, Candidates, DraftRequest, Prior, Proposal, Sampling, SpanEnd, TokenId, VocabularyHead};

use crate::fleet::{Lease, Parse, Request};
use crate::reader::{Lane, Reader};
use crate::wire::{DraftParams, Prefix, draft_body, sglang, vllm};
use crate::{Kind, RemoteError};

/// The most tokens to request from a server: the limit of vLLM unless it is started with a larger
/// `--max-logprobs`.
const MOST: usize = 20;

/// Π_prop of token-level schemes: the most probable next tokens of π_B that a server returns, at
/// most 20.
///
/// The rest of the vocabulary is not available. The probabilities of these tokens are therefore
/// divided by their sum, and the candidates are [marked](Candidates::head). Nothing is sampled. A
/// step costs one request, and another one for the amateur of contrastive decoding.
pub(crate) struct RemoteVocabulary {
    pub(crate) backbone: Reader,
    pub(crate) prior: Prior,
    /// The model whose log-probabilities the candidates have, if it is the drafter.
    pub(crate) amateur: Option<Reader>,
    pub(crate) head: VocabularyHead,
    pub(crate) end_of_text: Arc<[TokenId]>,
    /// The server that has cached the context.
    pub(crate) home: Lease,
}

impl RemoteVocabulary {
    /// Returns the most probable next tokens with their log-probabilities, in descending order.
    fn most_likely(&mut self, prefix: &Prefix) -> Result<Vec<(TokenId, f32)>, RemoteError> {
        let tops = if self.head.top_k() == 0 { MOST } else { self.head.top_k().min(MOST) };
        let params = DraftParams { max_tokens: 1, sampling: Sampling::greedy(), stop: &[], not_first: false, tops };
        let fleet = &self.backbone.fleet;
        fleet.check_room(prefix.len() + 2)?;
        let (path, body) = draft_body((fleet.kind, fleet.model.as_deref()), prefix, &[(&[], 0)], &params);
        let parse: Parse<'_, Vec<(TokenId, f32)>> = match fleet.kind {
            Kind::Sglang => Box::new(move |body| sglang::top_answer(body, tops)),
            Kind::Vllm => Box::new(move |body| vllm::top_answer(body, tops)),
        };
        let task = format!("naming the {tops} most likely tokens");
        let request = Request { home: self.home.server(), pinned: false, task, path, body: Some(body), parse };
        let answer = fleet.ask(&request, &self.backbone.meter)?;
        self.home.move_to(answer.server);
        Ok(answer.value)
    }
}

impl Proposal for RemoteVocabulary {
    /// A span is one token, and no rule is asked before the first one.
    fn knows_entropy(&self) -> bool {
        true
    }

    fn propose(&mut self, DraftRequest { context, .. }: DraftRequest<'_>, _: &mut dyn Rng) -> Result<Candidates, BoxError> {
        if context.is_empty() {
            return Err(RemoteError::EmptyContext { policy: "the backbone".to_owned() }.into());
        }
        let prefix = Arc::new(context.to_vec());
        let mut kept = self.most_likely(&prefix)?;
        let floor = kept.first().map_or(0.0, |(_, most)| most + self.head.plausibility().ln());
        kept.retain(|(_, log_prob)| *log_prob >= floor);
        match (&mut self.amateur, self.prior) {
            (Some(amateur), _) => {
                let spans: Vec<[TokenId; 1]> = kept.iter().map(|(token, _)| [*token]).collect();
                let spans: Vec<&[TokenId]> = spans.iter().map(|span| &span[..]).collect();
                let lane = Lane { name: Arc::from(""), adapter: None, prefix };
                let readings = amateur.read(&[lane], &spans)?;
                for ((_, log_prob), reading) in kept.iter_mut().zip(readings.into_iter().flatten()) {
                    *log_prob = reading.log_probs.first().copied().unwrap_or(f32::NAN);
                }
            }
            (None, Prior::Uniform) => kept.iter_mut().for_each(|(_, log_prob)| *log_prob = 0.0),
            (None, _) => {}
        }
        let total = log_sum_exp(kept.iter().map(|(_, log_prob)| *log_prob));
        kept.sort_unstable_by_key(|(token, _)| *token);
        let candidate = |(token, log_prob): (TokenId, f32)| {
            let end = if self.end_of_text.contains(&token) { SpanEnd::EndOfText } else { SpanEnd::Complete };
            Candidate { tokens: vec![token], log_probs: vec![log_prob - total], end }
        };
        Ok(Candidates::new(kept.into_iter().map(candidate).collect())?.of_head())
    }
}

/// Returns ln Σ e^x.
fn log_sum_exp(values: impl Iterator<Item = f32> + Clone) -> f32 {
    let most = values.clone().fold(f32::NEG_INFINITY, f32::max);
    most + values.map(|value| (value - most).exp()).sum::<f32>().ln()
}
