//! Π_prop: where candidates come from.

use std::sync::Arc;

use sk_core::{Proposal, TokenId};
use sk_models::engine::{Drafter, DrafterConfig, Sampling, SamplingError};
use sk_models::model::Qwen2;

use super::document::Section;
use super::{Convention, SchemeError};

/// Which model drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DraftModel {
    /// The small one.
    Drafter,
    /// The backbone itself.
    Backbone,
}

/// The `[proposal]` section.
#[derive(Debug, Clone, PartialEq)]
pub struct ProposalConfig {
    /// Which model drafts.
    pub model: DraftModel,
    /// N, candidates per step.
    pub candidates: usize,
    /// Temperature; 0 is greedy.
    pub temperature: f32,
    /// Mass of the nucleus; 1 keeps all.
    pub top_p: f32,
    /// Tokens kept; 0 keeps all.
    pub top_k: usize,
    /// Divides the logits of tokens seen before; 1 is off.
    pub repetition_penalty: f32,
    /// Whether an end-of-text token stays in the candidate and ends the response.
    pub keep_end_of_text: bool,
}

const KINDS: [(&str, DraftModel); 2] = [("drafter", DraftModel::Drafter), ("backbone", DraftModel::Backbone)];

impl ProposalConfig {
    pub(super) fn published(convention: Convention, candidates: usize) -> Self {
        let paper = convention == Convention::Paper;
        Self {
            model: DraftModel::Drafter,
            candidates,
            temperature: 1.0,
            top_p: 0.95,
            top_k: if paper { 50 } else { 0 },
            repetition_penalty: if paper { 1.05 } else { 1.0 },
            keep_end_of_text: !paper,
        }
    }

    pub(super) fn read(&mut self, mut section: Section<'_, '_>) -> Result<(), SchemeError> {
        let number = |value: Option<f64>, default: f32| value.map_or(default, |v| v as f32);
        self.model = section.choice("kind", "proposal", &KINDS)?.unwrap_or(self.model);
        self.candidates = section.count("candidates")?.unwrap_or(self.candidates);
        self.temperature = number(section.number("temperature")?, self.temperature);
        self.top_p = number(section.number("top_p")?, self.top_p);
        self.top_k = section.count("top_k")?.unwrap_or(self.top_k);
        self.repetition_penalty = number(section.number("repetition_penalty")?, self.repetition_penalty);
        self.keep_end_of_text = section.flag("keep_end_of_text")?.unwrap_or(self.keep_end_of_text);
        if self.candidates == 0 {
            return Err(section.fault("candidates is 0; a step needs at least one"));
        }
        self.sampling().map_err(|error| section.fault(error))?;
        section.finish()
    }

    fn sampling(&self) -> Result<Sampling, SamplingError> {
        Sampling::new(self.temperature, self.top_p, self.top_k, self.repetition_penalty)
    }

    pub(super) fn check(&self) -> Result<(), SchemeError> {
        self.sampling().map(drop).map_err(|e| SchemeError::Parameter { slot: "proposal", reason: e.to_string() })
    }

    pub(super) fn build(
        &self,
        drafter: &Arc<Qwen2>,
        backbone: &Arc<Qwen2>,
        end_of_text: Vec<TokenId>,
    ) -> Result<Box<dyn Proposal>, SchemeError> {
        let sampling = self.sampling().map_err(|e| SchemeError::Parameter { slot: "proposal", reason: e.to_string() })?;
        let model = match self.model {
            DraftModel::Drafter => drafter,
            DraftModel::Backbone => backbone,
        };
        let config =
            DrafterConfig { candidates: self.candidates, sampling, end_of_text, keep_end_of_text: self.keep_end_of_text };
        Ok(Box::new(Drafter::new(Arc::clone(model), config)))
    }
}
