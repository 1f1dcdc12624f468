use std::sync::Arc;

use rand::Rng;
use sk_core::{BoxError, Candidate, Candidates, DraftRequest, Proposal, SpanEnd, TokenId, VocabularyHead};

use super::sampling::log_softmax;
use super::{Frozen, SharedVerifier};
use crate::decoder::Decoder;

/// The model whose log-probabilities the candidates carry.
pub enum TokenPrior {
    /// The uniform distribution, −ln V. Nothing is computed.
    Uniform,
    /// π_B.
    Backbone,
    /// Another model of the same vocabulary, such as the amateur of contrastive decoding.
    Model(Box<Frozen>),
}

/// Returns the tokens of the head, sorted by id.
fn kept(head: VocabularyHead, log_probs: &[f32]) -> Vec<TokenId> {
    let max = log_probs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let floor = if head.plausibility() > 0.0 { max + head.plausibility().ln() } else { f32::NEG_INFINITY };
    let mut kept: Vec<TokenId> = (0..).zip(log_probs).filter(|(_, p)| **p >= floor).map(|(token, _)| token).collect();
    if head.top_k() > 0 && head.top_k() < kept.len() {
        // Among equals, the lower id is kept.
        let before = |a: &TokenId, b: &TokenId| log_probs[*b as usize].total_cmp(&log_probs[*a as usize]).then(a.cmp(b));
        kept.select_nth_unstable_by(head.top_k() - 1, before);
        kept.truncate(head.top_k());
        kept.sort_unstable();
    }
    kept
}

/// Π_prop of token-level schemes: every token of the vocabulary is a candidate, or those at the
/// head of π_B.
///
/// No token is sampled. If π_B is the prior or cuts the head, the proposal and the blades share one
/// pass. A step takes O(V) in addition.
pub struct Vocabulary {
    backbone: SharedVerifier,
    prior: TokenPrior,
    head: VocabularyHead,
    /// Rows of the model.
    vocab_size: usize,
    /// One more than the largest token that is proposed.
    limit: usize,
    end_of_text: Vec<TokenId>,
}

impl Vocabulary {
    /// Returns a proposal of the tokens of `model`, which `backbone` reads.
    #[must_use]
    pub fn new(
        model: &Arc<Decoder>,
        backbone: SharedVerifier,
        prior: TokenPrior,
        head: VocabularyHead,
        end_of_text: Vec<TokenId>,
    ) -> Self {
        let vocab_size = model.config().vocab_size;
        Self { backbone, prior, head, vocab_size, limit: vocab_size, end_of_text }
    }

    /// Returns the proposal with only the first `limit` tokens. Models with one tokenizer may embed
    /// different numbers of spare tokens, which others cannot read.
    #[must_use]
    pub fn with_vocab_size(self, limit: usize) -> Self {
        Self { limit: limit.min(self.vocab_size), ..self }
    }
}

impl Proposal for Vocabulary {
    /// A span is one token, and no rule is asked before the first one.
    fn knows_entropy(&self) -> bool {
        true
    }

    fn propose(&mut self, request: DraftRequest<'_>, _: &mut dyn Rng) -> Result<Candidates, BoxError> {
        let backbone = if matches!(self.prior, TokenPrior::Backbone) || !self.head.keeps_all() {
            Some(self.backbone.next_token(request.context)?)
        } else {
            None
        };
        let model = match &mut self.prior {
            TokenPrior::Model(model) => Some(log_softmax(&model.next_logits(request.context)?)),
            TokenPrior::Uniform | TokenPrior::Backbone => None,
        };
        let rows = model.as_ref().map_or(self.limit, |log_probs| log_probs.len().min(self.limit));
        let tokens = match &backbone {
            Some(log_probs) => kept(self.head, &log_probs[..rows.min(log_probs.len())]),
            None => (0..rows as TokenId).collect(),
        };
        let own = if matches!(self.prior, TokenPrior::Backbone) { backbone } else { model };
        let uniform = -(self.vocab_size as f32).ln();
        let candidate = |token: TokenId| {
            let log_prob = own.as_ref().map_or(uniform, |log_probs| log_probs[token as usize]);
            let end = if self.end_of_text.contains(&token) { SpanEnd::EndOfText } else { SpanEnd::Complete };
            Candidate { tokens: vec![token], log_probs: vec![log_prob], end }
        };
        Ok(Candidates::new(tokens.into_iter().map(candidate).collect())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG_PROBS: [f32; 5] = [-1.0, -0.5, -3.0, -0.5, -1.0];

    #[test]
    fn the_head_is_cut_by_count_and_plausibility() {
        assert_eq!(kept(VocabularyHead::ALL, &LOG_PROBS), [0, 1, 2, 3, 4]);
        assert_eq!(kept(VocabularyHead::new(3, 0.0).unwrap(), &LOG_PROBS), [0, 1, 3], "of equals the lower id");
        // e^(−1) / e^(−0.5) = 0.607.
        assert_eq!(kept(VocabularyHead::new(0, 0.6).unwrap(), &LOG_PROBS), [0, 1, 3, 4]);
        assert_eq!(kept(VocabularyHead::new(0, 0.61).unwrap(), &LOG_PROBS), [1, 3]);
        assert_eq!(kept(VocabularyHead::new(1, 1.0).unwrap(), &LOG_PROBS), [1]);
        assert_eq!(kept(VocabularyHead::new(9, 0.0).unwrap(), &LOG_PROBS).len(), 5);
    }
}
