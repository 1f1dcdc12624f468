//! 𝓝: how the blades of a batch are put on one scale.

use std::sync::Arc;

use sk_core::Normalizer;
use sk_normalize::{CandidateBatch, Propagation, Rank, Raw, Robust};

use super::document::Section;
use super::{Convention, SchemeError};

/// The kinds of `[normalizer]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormalizerKind {
    /// Candidate-batch normalisation.
    CandidateBatch,
    /// Weighted raw scores.
    Raw,
    /// Ranks within the batch.
    Rank,
    /// Median and median absolute deviation.
    Robust,
}

/// The `[normalizer]` section.
#[derive(Debug, Clone, PartialEq)]
pub struct NormalizerConfig {
    /// Which one.
    pub kind: NormalizerKind,
    /// Which details of candidate-batch normalisation.
    pub convention: Convention,
    /// How dispersions combine.
    pub propagation: Propagation,
}

const KINDS: [(&str, NormalizerKind); 4] = [
    ("cbn", NormalizerKind::CandidateBatch),
    ("raw", NormalizerKind::Raw),
    ("rank", NormalizerKind::Rank),
    ("robust", NormalizerKind::Robust),
];

#[derive(Clone, Copy)]
enum Rule {
    Linear,
    Independent,
}

const PROPAGATIONS: [(&str, Rule); 2] = [("linear", Rule::Linear), ("independent", Rule::Independent)];

impl NormalizerConfig {
    pub(super) fn published(convention: Convention) -> Self {
        Self { kind: NormalizerKind::CandidateBatch, convention, propagation: Propagation::Linear }
    }

    pub(super) fn read(&mut self, mut section: Section<'_, '_>) -> Result<(), SchemeError> {
        self.kind = section.choice("kind", "normalizer", &KINDS)?.unwrap_or(self.kind);
        if self.kind == NormalizerKind::CandidateBatch {
            self.convention = section.choice("convention", "convention", &Convention::NAMES)?.unwrap_or(self.convention);
        }
        if let Some(rule) = section.choice("propagation", "propagation", &PROPAGATIONS)? {
            self.propagation = match rule {
                Rule::Linear => Propagation::Linear,
                Rule::Independent => Propagation::Independent,
            };
        }
        section.finish()
    }

    pub(super) fn build(&self) -> Arc<dyn Normalizer> {
        let propagation = self.propagation.clone();
        match self.kind {
            NormalizerKind::CandidateBatch => {
                let published = match self.convention {
                    Convention::Paper => CandidateBatch::paper(),
                    Convention::Sound => CandidateBatch::sound(),
                };
                Arc::new(published.with_propagation(propagation))
            }
            NormalizerKind::Raw => Arc::new(Raw { propagation }),
            NormalizerKind::Rank => Arc::new(Rank { propagation }),
            NormalizerKind::Robust => Arc::new(Robust { propagation }),
        }
    }
}
