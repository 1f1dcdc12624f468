use std::sync::Arc;

use rand::Rng;
use sk_core::{BoxError, Candidate, Candidates, DraftRequest, Prior, Proposal, SpanEnd, TokenId, VocabularyHead};

use crate::fleet::Request;
use crate::reader::{Lane, Reader};
use crate::wire::{Prefix, sglang, vllm};
use crate::{AnswerError, Fault, Kind, RemoteError};

/// The most next tokens that a server returns unless it is told to return more.
pub(crate) const MOST_TOKENS: usize = 20;

/// Π_prop of token-level schemes: the tokens at the head of π_B, among the 20 that a server
/// returns.
///
/// Nothing is drawn. A step asks for the likeliest next tokens, and once more for what the drafter
/// thinks of them if it is the prior.
pub struct RemoteVocabulary {
    backbone: Reader,
    prior: Beliefs,
    head: VocabularyHead,
    end_of_text: Arc<[TokenId]>,
    home: usize,
}

/// The model whose log-probabilities the candidates carry.
enum Beliefs {
    /// −ln V.
    Uniform {
        log_prob: f32,
    },
    Backbone,
    Drafter(Box<Reader>),
}

impl RemoteVocabulary {
    /// Returns the head of the model that `backbone` reads.
    ///
    /// # Errors
    /// When the head can be larger than what a server returns.
    pub(crate) fn new(
        backbone: Reader,
        drafter: Reader,
        (prior, head): (Prior, VocabularyHead),
        vocabulary: usize,
        end_of_text: Arc<[TokenId]>,
    ) -> Result<Self, RemoteError> {
        if head.top_k() > MOST_TOKENS || (head.top_k() == 0 && head.plausibility() == 0.0) {
            return Err(too_wide());
        }
        let prior = match prior {
            Prior::Uniform => Beliefs::Uniform { log_prob: -(vocabulary.max(1) as f32).ln() },
            Prior::Backbone => Beliefs::Backbone,
            Prior::Drafter => Beliefs::Drafter(Box::new(drafter)),
        };
        let home = backbone.fleet.settle();
        Ok(Self { backbone, prior, head, end_of_text, home })
    }

    /// The likeliest next tokens with their log-probabilities, the likeliest first; of equals the
    /// lower id.
    fn likeliest(&mut self, prefix: &Prefix) -> Result<Vec<(TokenId, f32)>, RemoteError> {
        let fleet = &self.backbone.fleet;
        fleet.check_room(prefix.len() + 1)?;
        let (path, body, answer): (_, _, fn(&[u8]) -> Result<Vec<(TokenId, f32)>, Fault>) = match fleet.kind {
            Kind::Sglang => (sglang::PATH, sglang::top_body(None, prefix, MOST_TOKENS), sglang::top_answer),
            Kind::Vllm => (vllm::PATH, vllm::top_body(fleet.model.as_deref(), prefix, MOST_TOKENS), vllm::top_answer),
        };
        let parse = Box::new(move |body: &[u8]| checked(answer(body)?));
        let request = Request { home: self.home, pinned: false, path, body: Some(body), parse };
        let answer = fleet.all(&[request], &self.backbone.meter)?.pop();
        let Some(answer) = answer else { return Ok(Vec::new()) };
        if answer.server != self.home {
            fleet.resettle(self.home, answer.server);
            self.home = answer.server;
        }
        Ok(answer.value)
    }
}

fn too_wide() -> RemoteError {
    RemoteError::Unsupported {
        what: "every token of the vocabulary as a candidate".to_owned(),
        reason: "servers return the 20 likeliest; set top_k to 20 at most, or a higher plausibility",
    }
}

/// Checks the likeliest tokens and sorts them.
fn checked(mut tokens: Vec<(TokenId, f32)>) -> Result<Vec<(TokenId, f32)>, Fault> {
    if let Some(position) = tokens.iter().position(|(_, value)| !value.is_finite() || *value > 1e-3) {
        return Err(AnswerError::Value { row: 0, position, value: tokens[position].1 }.into());
    }
    tokens.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    tokens.dedup_by_key(|entry| entry.0);
    if tokens.len() < MOST_TOKENS {
        return Err(AnswerError::Positions { row: 0, expected: MOST_TOKENS, got: tokens.len() }.into());
    }
    tokens.truncate(MOST_TOKENS);
    Ok(tokens)
}

/// The tokens of a head, by id. `None` if it may hold more than the likeliest that are known.
fn kept(head: VocabularyHead, likeliest: &[(TokenId, f32)]) -> Option<Vec<(TokenId, f32)>> {
    let max = likeliest.first()?.1;
    let floor = if head.plausibility() > 0.0 { max + head.plausibility().ln() } else { f32::NEG_INFINITY };
    let mut kept: Vec<(TokenId, f32)> = likeliest.iter().copied().filter(|(_, value)| *value >= floor).collect();
    if head.top_k() == 0 && kept.len() == likeliest.len() {
        return None;
    }
    if head.top_k() > 0 {
        kept.truncate(head.top_k());
    }
    kept.sort_unstable_by_key(|entry| entry.0);
    Some(kept)
}

impl Proposal for RemoteVocabulary {
    fn propose(&mut self, request: DraftRequest<'_>, _: &mut dyn Rng) -> Result<Candidates, BoxError> {
        let prefix = Arc::new(Prefix::new(request.context.to_vec()));
        let likeliest = self.likeliest(&prefix)?;
        let mut tokens = kept(self.head, &likeliest).ok_or_else(too_wide)?;
        match &mut self.prior {
            Beliefs::Backbone => {}
            Beliefs::Uniform { log_prob } => tokens.iter_mut().for_each(|entry| entry.1 = *log_prob),
            Beliefs::Drafter(reader) => {
                let spans: Vec<[TokenId; 1]> = tokens.iter().map(|entry| [entry.0]).collect();
                let spans: Vec<&[TokenId]> = spans.iter().map(|span| &span[..]).collect();
                let readings = reader.read(&[Lane { name: Arc::from(""), adapter: None, prefix }], &spans)?;
                for (entry, reading) in tokens.iter_mut().zip(readings.iter().flatten()) {
                    entry.1 = reading.log_probs[0];
                }
            }
        }
        let candidate = |(token, log_prob): (TokenId, f32)| {
            let end = if self.end_of_text.contains(&token) { SpanEnd::EndOfText } else { SpanEnd::Complete };
            Candidate { tokens: vec![token], log_probs: vec![log_prob], end }
        };
        Ok(Candidates::new(tokens.into_iter().map(candidate).collect())?)
    }
}

impl Drop for RemoteVocabulary {
    fn drop(&mut self) {
        self.backbone.fleet.leave(self.home);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_kept_whole_or_not_at_all() {
        let likeliest = [(7, -0.5), (3, -1.0), (5, -1.0), (1, -3.0)];
        let kept = |top_k, plausibility| kept(VocabularyHead::new(top_k, plausibility).unwrap(), &likeliest);
        assert_eq!(kept(2, 0.0).unwrap(), [(3, -1.0), (7, -0.5)]);
        assert_eq!(kept(0, 0.6).unwrap(), [(3, -1.0), (5, -1.0), (7, -0.5)]);
        assert_eq!(kept(4, 0.0).unwrap().len(), 4);
        // A fifth token may be plausible too.
        assert_eq!(kept(0, 0.01), None);
    }
}
