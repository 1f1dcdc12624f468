//! Π_prop: where candidates come from.

use std::sync::Arc;

use sk_core::{ParameterError, Proposal, SpecHandle};
use sk_models::decoder::Decoder;
use sk_models::engine::{
    AdapterRack, Drafter, DrafterConfig, Frozen, Sampling, SamplingError, SharedVerifier, Soup, TokenPrior, Vocabulary,
    VocabularyHead,
};
use sk_models::lora::Merge;

use super::document::Section;
use super::{Convention, SchemeError};
use crate::models::Models;

/// How candidates are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProposalKind {
    /// Drawn from the small model.
    Drafter,
    /// Drawn from the backbone itself.
    Backbone,
    /// Drawn from the backbone under the weighted average of the adapters.
    Soup,
    /// The tokens of the vocabulary, one candidate each.
    Vocabulary,
}

impl ProposalKind {
    /// Its name in a scheme file.
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// Whether candidates are drawn, so that their number and the sampling settings apply.
    pub fn draws(self) -> bool {
        self != Self::Vocabulary
    }
}

/// Whose log-probabilities single-token candidates carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriorKind {
    /// All tokens alike.
    Uniform,
    /// The backbone's.
    Backbone,
    /// The drafter's.
    Drafter,
}

/// The `[proposal]` section.
#[derive(Debug, Clone, PartialEq)]
pub struct ProposalConfig {
    /// How candidates are made.
    pub kind: ProposalKind,
    /// N, candidates per step, where they are drawn.
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
    /// How a soup is made of the adapters.
    pub merge: Merge,
    /// Whose log-probabilities the tokens of a vocabulary carry.
    pub prior: PriorKind,
    /// Tokens of the vocabulary that are candidates, the likeliest under the backbone; 0 for all.
    pub head_k: usize,
    /// Least share of the likeliest token's probability under the backbone that a candidate must have.
    pub plausibility: f32,
}

const KINDS: [(&str, ProposalKind); 4] = [
    ("drafter", ProposalKind::Drafter),
    ("backbone", ProposalKind::Backbone),
    ("soup", ProposalKind::Soup),
    ("vocabulary", ProposalKind::Vocabulary),
];

const PRIORS: [(&str, PriorKind); 3] =
    [("uniform", PriorKind::Uniform), ("backbone", PriorKind::Backbone), ("drafter", PriorKind::Drafter)];

const MERGES: [(&str, Merge); 2] = [("exact", Merge::Exact), ("peft-linear", Merge::PeftLinear)];

impl ProposalConfig {
    pub(super) fn published(convention: Convention, candidates: usize) -> Self {
        let paper = convention == Convention::Paper;
        Self {
            kind: ProposalKind::Drafter,
            candidates,
            temperature: 1.0,
            top_p: 0.95,
            top_k: if paper { 50 } else { 0 },
            repetition_penalty: if paper { 1.05 } else { 1.0 },
            keep_end_of_text: !paper,
            merge: Merge::Exact,
            prior: PriorKind::Backbone,
            head_k: 0,
            plausibility: 0.0,
        }
    }

    pub(super) fn read(&mut self, mut section: Section<'_, '_>) -> Result<(), SchemeError> {
        let number = |value: Option<f64>, default: f32| value.map_or(default, |v| v as f32);
        self.kind = section.choice("kind", "proposal", &KINDS)?.unwrap_or(self.kind);
        if self.kind.draws() {
            self.candidates = section.count("candidates")?.unwrap_or(self.candidates);
            self.temperature = number(section.number("temperature")?, self.temperature);
            self.top_p = number(section.number("top_p")?, self.top_p);
            self.top_k = section.count("top_k")?.unwrap_or(self.top_k);
            self.repetition_penalty = number(section.number("repetition_penalty")?, self.repetition_penalty);
            self.keep_end_of_text = section.flag("keep_end_of_text")?.unwrap_or(self.keep_end_of_text);
        } else {
            self.prior = section.choice("prior", "prior", &PRIORS)?.unwrap_or(self.prior);
            self.head_k = section.count("head_k")?.unwrap_or(self.head_k);
            self.plausibility = number(section.number("plausibility")?, self.plausibility);
        }
        if self.kind == ProposalKind::Soup {
            self.merge = section.choice("merge", "merge", &MERGES)?.unwrap_or(self.merge);
        }
        if self.candidates == 0 {
            return Err(section.fault("candidates is 0; a step needs at least one"));
        }
        self.sampling().map_err(|error| section.fault(error))?;
        self.head().map_err(|error| section.fault(error))?;
        section.finish()
    }

    /// The fields that apply, by name and as a scheme file has them: two proposals that agree in all of them make the same candidates.
    pub(crate) fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = vec![("kind", format!("{:?}", self.kind.name()))];
        if self.kind.draws() {
            fields.extend([
                ("candidates", self.candidates.to_string()),
                ("temperature", self.temperature.to_string()),
                ("top_p", self.top_p.to_string()),
                ("top_k", self.top_k.to_string()),
                ("repetition_penalty", self.repetition_penalty.to_string()),
                ("keep_end_of_text", self.keep_end_of_text.to_string()),
            ]);
        } else {
            let prior = PRIORS.iter().find(|(_, prior)| *prior == self.prior).map_or("", |(name, _)| name);
            fields.extend([
                ("prior", format!("{prior:?}")),
                ("head_k", self.head_k.to_string()),
                ("plausibility", self.plausibility.to_string()),
            ]);
        }
        if self.kind == ProposalKind::Soup {
            let merge = MERGES.iter().find(|(_, merge)| *merge == self.merge).map_or("", |(name, _)| name);
            fields.push(("merge", format!("{merge:?}")));
        }
        fields
    }

    fn sampling(&self) -> Result<Sampling, SamplingError> {
        Sampling::new(self.temperature, self.top_p, self.top_k, self.repetition_penalty)
    }

    fn head(&self) -> Result<VocabularyHead, ParameterError> {
        VocabularyHead::new(self.head_k, self.plausibility)
    }

    /// Whether candidates are looked up in a distribution of the backbone, which a step then computes in any case.
    pub(super) fn looks_at_backbone(&self) -> bool {
        !self.kind.draws() && (self.prior == PriorKind::Backbone || self.head_k > 0 || self.plausibility > 0.0)
    }

    pub(super) fn check(&self) -> Result<(), SchemeError> {
        let refuse = |reason: String| SchemeError::Parameter { slot: "proposal", reason };
        self.sampling().map_err(|e| refuse(e.to_string()))?;
        self.head().map(drop).map_err(|e| refuse(e.to_string()))
    }

    /// The proposal beside `backbone`, whose adapters are in `rack` and weighed by `spec`.
    /// The model that draws candidates, where one does.
    pub(super) fn drafting<'m>(&self, models: &'m Models) -> Option<&'m Decoder> {
        match self.kind {
            ProposalKind::Drafter => Some(&models.drafter),
            ProposalKind::Backbone | ProposalKind::Soup => Some(&models.backbone),
            ProposalKind::Vocabulary => None,
        }
    }

    pub(super) fn build(
        &self,
        models: &Models,
        backbone: &SharedVerifier,
        rack: AdapterRack,
        spec: SpecHandle,
    ) -> Result<Box<dyn Proposal>, SchemeError> {
        self.check()?;
        let refuse = |reason: String| SchemeError::Parameter { slot: "proposal", reason };
        let sampling = self.sampling().map_err(|e| refuse(e.to_string()))?;
        let config = DrafterConfig {
            candidates: self.candidates,
            sampling,
            end_of_text: models.end_of_text.clone(),
            keep_end_of_text: self.keep_end_of_text,
        };
        let (large, small) = (&models.backbone, &models.drafter);
        Ok(match self.kind {
            ProposalKind::Drafter => Box::new(Drafter::new(Arc::clone(small), config)),
            ProposalKind::Backbone => Box::new(Drafter::new(Arc::clone(large), config)),
            ProposalKind::Soup => {
                Box::new(Drafter::new(Arc::clone(large), config).with_policy(Soup::new(rack, spec, self.merge)))
            }
            ProposalKind::Vocabulary => {
                let prior = match self.prior {
                    PriorKind::Uniform => TokenPrior::Uniform,
                    PriorKind::Backbone => TokenPrior::Backbone,
                    PriorKind::Drafter => TokenPrior::Model(Box::new(Frozen::new(Arc::clone(small)))),
                };
                let head = self.head().map_err(|e| refuse(e.to_string()))?;
                Box::new(Vocabulary::new(large, backbone.clone(), prior, head, models.end_of_text.clone()))
            }
        })
    }
}
