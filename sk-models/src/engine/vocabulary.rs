use std::sync::Arc;

use rand::Rng;
use sk_core::{BoxError, Candidate, Candidates, DraftRequest, ParameterError, Proposal, SpanEnd, TokenId};

use super::sampling::log_softmax;
use super::{Frozen, SharedVerifier};
use crate::decoder::Decoder;

/// Whose log-probabilities the candidates carry.
pub enum TokenPrior {
    /// Every token alike, −ln V: nothing is computed.
    Uniform,
    /// π_B.
    Backbone,
    /// Another model of the same vocabulary, such as the amateur of contrastive decoding.
    Model(Box<Frozen>),
}

/// Which tokens a [`Vocabulary`] proposes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VocabularyHead {
    top_k: usize,
    plausibility: f32,
}

impl VocabularyHead {
    /// Every token.
    pub const ALL: Self = Self { top_k: 0, plausibility: 0.0 };

    /// The `top_k` likeliest tokens under π_B (0 for all), of those whose probability is at least `plausibility` times that of the
    /// likeliest: 𝓥_head = {y : π_B(y) ≥ α·max π_B}, the constraint of contrastive decoding (Li et al. 2023, eq. 3).
    ///
    /// # Errors
    /// When `plausibility` is not in [0, 1].
    pub fn new(top_k: usize, plausibility: f32) -> Result<Self, ParameterError> {
        let value = f64::from(plausibility);
        ParameterError::check((0.0..=1.0).contains(&plausibility), "plausibility", value, "between 0 and 1")?;
        Ok(Self { top_k, plausibility })
    }

    fn keeps_all(self) -> bool {
        self == Self::ALL
    }

    /// The tokens kept, by id.
    fn of(self, log_probs: &[f32]) -> Vec<TokenId> {
        let max = log_probs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let floor = if self.plausibility > 0.0 { max + self.plausibility.ln() } else { f32::NEG_INFINITY };
        let mut kept: Vec<TokenId> = (0..).zip(log_probs).filter(|(_, p)| **p >= floor).map(|(token, _)| token).collect();
        if self.top_k > 0 && self.top_k < kept.len() {
            // Of equals the lower id stays, whatever the order they are met in.
            let before = |a: &TokenId, b: &TokenId| log_probs[*b as usize].total_cmp(&log_probs[*a as usize]).then(a.cmp(b));
            kept.select_nth_unstable_by(self.top_k - 1, before);
            kept.truncate(self.top_k);
            kept.sort_unstable();
        }
        kept
    }
}

/// Π_prop of token-level schemes: every token of the vocabulary is a candidate, or those at the head of π_B.
///
/// Nothing is drawn. With the backbone as prior, or with a head that is cut, a step costs no pass of its own: π_B is read once for
/// the proposal and the blades, O(V) besides.
pub struct Vocabulary {
    backbone: SharedVerifier,
    prior: TokenPrior,
    head: VocabularyHead,
    vocab_size: usize,
    end_of_text: Vec<TokenId>,
}

impl Vocabulary {
    /// Tokens of `model`, which `backbone` reads.
    #[must_use]
    pub fn new(
        model: &Arc<Decoder>,
        backbone: SharedVerifier,
        prior: TokenPrior,
        head: VocabularyHead,
        end_of_text: Vec<TokenId>,
    ) -> Self {
        Self { backbone, prior, head, vocab_size: model.config().vocab_size, end_of_text }
    }
}

impl Proposal for Vocabulary {
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
        // Its embedding may have fewer rows than the backbone's: spare ones, where the two share a tokenizer.
        let rows = model.as_ref().map_or(self.vocab_size, |log_probs| log_probs.len().min(self.vocab_size));
        let tokens = match &backbone {
            Some(log_probs) => self.head.of(&log_probs[..rows.min(log_probs.len())]),
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
    fn the_head_is_what_is_plausible_and_likely() {
        assert_eq!(VocabularyHead::ALL.of(&LOG_PROBS), [0, 1, 2, 3, 4]);
        assert_eq!(VocabularyHead::new(3, 0.0).unwrap().of(&LOG_PROBS), [0, 1, 3], "of equals the lower id");
        // e^(−1) / e^(−0.5) = 0.607.
        assert_eq!(VocabularyHead::new(0, 0.6).unwrap().of(&LOG_PROBS), [0, 1, 3, 4]);
        assert_eq!(VocabularyHead::new(0, 0.61).unwrap().of(&LOG_PROBS), [1, 3]);
        assert_eq!(VocabularyHead::new(1, 1.0).unwrap().of(&LOG_PROBS), [1]);
        assert_eq!(VocabularyHead::new(9, 0.0).unwrap().of(&LOG_PROBS).len(), 5);
    }

    #[test]
    fn a_share_is_a_share() {
        for plausibility in [-0.1, 1.1, f32::NAN] {
            assert!(VocabularyHead::new(0, plausibility).unwrap_err().to_string().contains("plausibility"));
        }
    }
}
