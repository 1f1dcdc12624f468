//! 𝓝: how the blades of a batch are put on one scale.

use std::sync::Arc;

use sk_core::{Deviation, Normalizer, Standardize};
use sk_normalize::{CandidateBatch, Correlation, DispersionUnit, Propagation, Rank, Raw, Robust};

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
    /// Divisor of the variance and ε of candidate-batch normalisation.
    pub standardize: Standardize,
    /// What candidate-batch normalisation divides σ by.
    pub unit: DispersionUnit,
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

const DEVIATIONS: [(&str, Deviation); 2] = [("sample", Deviation::Sample), ("population", Deviation::Population)];

const UNITS: [(&str, DispersionUnit); 2] = [("score", DispersionUnit::Score), ("own", DispersionUnit::Own)];

impl NormalizerConfig {
    pub(super) fn published(convention: Convention) -> Self {
        let CandidateBatch { standardize, dispersion, propagation } = match convention {
            Convention::Paper => CandidateBatch::paper(),
            Convention::Sound => CandidateBatch::sound(),
        };
        Self { kind: NormalizerKind::CandidateBatch, standardize, unit: dispersion, propagation }
    }

    pub(super) fn read(&mut self, mut section: Section<'_, '_>) -> Result<(), SchemeError> {
        self.kind = section.choice("kind", "normalizer", &KINDS)?.unwrap_or(self.kind);
        if self.kind == NormalizerKind::CandidateBatch {
            if let Some(convention) = section.choice("convention", "convention", &Convention::NAMES)? {
                let Self { standardize, unit, .. } = Self::published(convention);
                (self.standardize, self.unit) = (standardize, unit);
            }
            let deviation = section.choice("deviation", "deviation", &DEVIATIONS)?.unwrap_or(self.standardize.deviation());
            let epsilon = section.number("epsilon")?.unwrap_or(self.standardize.epsilon());
            self.standardize = Standardize::new(deviation, epsilon, 0.0).map_err(|error| section.fault(error))?;
            self.unit = section.choice("dispersion_unit", "dispersion unit", &UNITS)?.unwrap_or(self.unit);
        }
        if let Some(rule) = section.choice("propagation", "propagation", &PROPAGATIONS)? {
            self.propagation = match rule {
                Rule::Linear => Propagation::Linear,
                Rule::Independent => Propagation::Independent,
            };
        }
        if let Some(pairs) = section.pairs("correlations")? {
            if let Some((one, other, value)) = pairs.iter().find(|(_, _, value)| !(-1.0..=1.0).contains(value)) {
                let reason = format!("the correlation of \"{one}\" and \"{other}\" is {value}; it must be in [-1, 1]");
                return Err(section.fault(reason));
            }
            let pairs = pairs.iter().map(|(a, b, rho)| (a.as_str(), b.as_str(), *rho));
            self.propagation = Propagation::Correlated(Correlation::of_pairs(pairs).map_err(|error| section.fault(error))?);
        }
        section.finish()
    }

    pub(crate) fn build(&self) -> Arc<dyn Normalizer> {
        let propagation = self.propagation.clone();
        match self.kind {
            NormalizerKind::CandidateBatch => {
                Arc::new(CandidateBatch { standardize: self.standardize, dispersion: self.unit, propagation })
            }
            NormalizerKind::Raw => Arc::new(Raw { propagation }),
            NormalizerKind::Rank => Arc::new(Rank { propagation }),
            NormalizerKind::Robust => Arc::new(Robust { propagation }),
        }
    }
}
