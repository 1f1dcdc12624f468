//! Π_prop: the source of candidates.

use std::num::NonZeroUsize;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sk_core::{DraftModel, Drafting, Sampling, VocabularyHead};

use crate::choices::{Merge, Prior};

/// The `[proposal]` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ProposalSpec {
    /// Spans are sampled from the small model.
    Drafter(DraftSpec),
    /// Spans are sampled from the backbone itself.
    Backbone(DraftSpec),
    /// Spans are sampled from the backbone under the weighted average of the adapters.
    Soup(SoupSpec),
    /// The tokens of the vocabulary are the candidates, one each.
    Vocabulary(VocabularySpec),
}

/// How spans are sampled, in the order of transformers: repetition penalty, temperature, top-k,
/// top-p.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DraftSpec {
    /// N, candidates per step.
    pub candidates: usize,
    /// Temperature; 0 is greedy.
    pub temperature: f64,
    /// Probability mass kept; 1 keeps all.
    pub top_p: f64,
    /// Tokens kept; 0 keeps all.
    pub top_k: usize,
    /// Divides positive logits of tokens seen before, and multiplies negative ones; 1 is off.
    pub repetition_penalty: f64,
    /// Whether an end-of-text token stays in the candidate and ends the response.
    pub keep_end_of_text: bool,
}

/// How spans are sampled from a soup of adapters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SoupSpec {
    /// How the soup is made.
    pub merge: Merge,
    /// How spans are sampled.
    #[serde(flatten)]
    pub draft: DraftSpec,
}

/// Which tokens of the vocabulary are candidates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VocabularySpec {
    /// Whose log-probabilities the candidates carry, for the fluency and expert-amateur blades.
    pub prior: Prior,
    /// Keep this many of the most likely tokens under π_B; 0 keeps all.
    pub head_k: usize,
    /// Keep tokens with at least this fraction of the most likely token's probability under π_B.
    pub plausibility: f64,
}

impl ProposalSpec {
    /// Returns how spans are sampled; `None` for a vocabulary.
    pub fn draft(&self) -> Option<&DraftSpec> {
        match self {
            Self::Drafter(draft) | Self::Backbone(draft) | Self::Soup(SoupSpec { draft, .. }) => Some(draft),
            Self::Vocabulary(_) => None,
        }
    }

    /// Returns a mutable reference to [`draft`](Self::draft).
    pub fn draft_mut(&mut self) -> Option<&mut DraftSpec> {
        match self {
            Self::Drafter(draft) | Self::Backbone(draft) | Self::Soup(SoupSpec { draft, .. }) => Some(draft),
            Self::Vocabulary(_) => None,
        }
    }

    /// Returns whether the drafter keeps the context: it drafts, or its distribution is the prior.
    pub fn keeps_drafter(&self) -> bool {
        match self {
            Self::Drafter(_) => true,
            Self::Vocabulary(spec) => spec.prior == Prior::Drafter,
            Self::Backbone(_) | Self::Soup(_) => false,
        }
    }

    /// Returns whether every step computes the backbone's next-token distribution.
    pub(crate) fn reads_backbone(&self) -> bool {
        matches!(self, Self::Vocabulary(spec) if spec.prior == Prior::Backbone || spec.head_k > 0 || spec.plausibility > 0.0)
    }

    /// Returns the drafting parameters for an engine, with spans of at most `span_tokens`.
    ///
    /// # Errors
    /// If a number is out of range. The error names it.
    pub fn drafting(&self, span_tokens: Option<NonZeroUsize>) -> Result<Drafting, String> {
        let model = match self {
            Self::Drafter(_) => DraftModel::Drafter,
            Self::Backbone(_) => DraftModel::Backbone,
            Self::Soup(soup) => DraftModel::Soup(soup.merge.into()),
            Self::Vocabulary(spec) => {
                let head = VocabularyHead::new(spec.head_k, spec.plausibility as f32).map_err(|error| error.to_string())?;
                return Ok(Drafting::Vocabulary { prior: spec.prior.into(), head });
            }
        };
        let Some(draft) = self.draft() else { return Err("nothing is drafted".to_owned()) };
        let candidates = NonZeroUsize::new(draft.candidates).ok_or("candidates is 0; a step needs at least one")?;
        let numbers = (draft.temperature as f32, draft.top_p as f32, draft.repetition_penalty as f32);
        let sampling = Sampling::new(numbers.0, numbers.1, draft.top_k, numbers.2).map_err(|error| error.to_string())?;
        Ok(Drafting::Sampled { model, candidates, sampling, keep_end_of_text: draft.keep_end_of_text, span_tokens })
    }
}
