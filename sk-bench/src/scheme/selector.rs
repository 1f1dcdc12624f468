//! 𝓢: from ratings to a choice.

use std::sync::Arc;

use sk_core::{OperatingPoint, ParameterError, Selector, Standardize};
use sk_select::{Argmax, Champion, Criterion, EpsilonArgmax, Nucleus, Softmax, TopK, Uniform};

use super::document::Section;
use super::gate::GateConfig;
use super::{Convention, SchemeError};
use crate::suggest;

/// The kinds of `[selector]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SelectorKind {
    /// Softmax over rating, score and dispersion, each standardised.
    Champion,
    /// Softmax over ratings.
    Softmax,
    /// The highest rating.
    Argmax,
    /// The highest rating, and any candidate alike with probability ε.
    EpsilonArgmax,
    /// Any candidate alike: the control arm.
    Uniform,
}

impl SelectorKind {
    /// The kind of that name in a scheme file.
    ///
    /// # Errors
    /// Names the closest kind there is.
    pub fn named(name: &str) -> Result<Self, String> {
        suggest::choice("selector", name, &KINDS)
    }

    /// Its name in a scheme file.
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// Whether it has a temperature.
    pub fn has_temperature(self) -> bool {
        matches!(self, Self::Champion | Self::Softmax)
    }
}

/// The `[selector]` section.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectorConfig {
    /// Which one.
    pub kind: SelectorKind,
    /// How the champion rule standardises.
    pub convention: Convention,
    /// Whether the champion rule standardises at all: the third of the three standardisations.
    pub standardize: bool,
    /// ε of the rule that explores.
    pub epsilon: f64,
    /// T.
    pub temperature: f64,
    /// Weight of the rating in the champion logit.
    pub w_tour: f64,
    /// Weight of the composite score in the champion logit.
    pub w_blade: f64,
    /// λ.
    pub lambda: f64,
    /// Keep this many candidates of the highest rating.
    pub top_k: Option<usize>,
    /// Keep the likeliest candidates that hold this mass.
    pub top_p: Option<f64>,
    /// What a candidate must pass before it can be selected, the first to be applied first.
    pub gates: Vec<GateConfig>,
}

const KINDS: [(&str, SelectorKind); 5] = [
    ("champion", SelectorKind::Champion),
    ("softmax", SelectorKind::Softmax),
    ("argmax", SelectorKind::Argmax),
    ("epsilon-argmax", SelectorKind::EpsilonArgmax),
    ("uniform", SelectorKind::Uniform),
];

impl SelectorConfig {
    pub(super) fn published(convention: Convention, point: &OperatingPoint) -> Self {
        Self {
            kind: SelectorKind::Champion,
            convention,
            standardize: true,
            epsilon: 0.1,
            temperature: point.temperature,
            w_tour: point.w_tour,
            w_blade: point.w_blade,
            lambda: point.lambda,
            top_k: None,
            top_p: None,
            gates: Vec::new(),
        }
    }

    pub(super) fn read(&mut self, mut section: Section<'_, '_>) -> Result<(), SchemeError> {
        let before = self.kind;
        self.kind = section.choice("kind", "selector", &KINDS)?.unwrap_or(self.kind);
        if self.kind == SelectorKind::Softmax && before != self.kind {
            // The champion's temperature is on the scale of standardised logits.
            self.temperature = 1.0;
        }
        if self.kind.has_temperature() {
            self.temperature = section.number("temperature")?.unwrap_or(self.temperature);
        }
        if self.kind == SelectorKind::Champion {
            self.convention = section.choice("convention", "convention", &Convention::NAMES)?.unwrap_or(self.convention);
            self.standardize = section.flag("standardize")?.unwrap_or(self.standardize);
            self.w_tour = section.number("w_tour")?.unwrap_or(self.w_tour);
            self.w_blade = section.number("w_blade")?.unwrap_or(self.w_blade);
            self.lambda = section.number("lambda")?.unwrap_or(self.lambda);
        }
        if self.kind == SelectorKind::EpsilonArgmax {
            self.epsilon = section.number("epsilon")?.unwrap_or(self.epsilon);
        }
        if let Some(gates) = section.nested("gates", "gate")? {
            self.gates = gates.into_iter().map(GateConfig::read).collect::<Result<_, _>>()?;
        }
        self.top_k = section.count("top_k")?.or(self.top_k);
        self.top_p = section.number("top_p")?.or(self.top_p);
        if self.top_k == Some(0) {
            return Err(section.fault("top_k is 0; it must be at least 1"));
        }
        self.build().map_err(|error| section.fault(error))?;
        section.finish()
    }

    /// The blades that gates look at.
    pub(super) fn gated_blades(&self) -> impl Iterator<Item = &str> {
        self.gates.iter().filter_map(|gate| match &gate.criterion {
            Criterion::Blade { name, .. } => Some(&**name),
            _ => None,
        })
    }

    pub(crate) fn build(&self) -> Result<Arc<dyn Selector>, ParameterError> {
        let mut selector: Arc<dyn Selector> = match self.kind {
            SelectorKind::Champion => {
                let Self { temperature, w_tour, w_blade, lambda, .. } = *self;
                let point = OperatingPoint { temperature, w_tour, w_blade, lambda, ..OperatingPoint::HHH };
                let standardize = match self.convention {
                    Convention::Paper => Standardize::PAPER,
                    Convention::Sound => Standardize::EXACT,
                };
                Arc::new(Champion::new(&point, self.standardize.then_some(standardize))?)
            }
            SelectorKind::Softmax => Arc::new(Softmax::new(self.temperature)?),
            SelectorKind::Argmax => Arc::new(Argmax),
            SelectorKind::EpsilonArgmax => Arc::new(EpsilonArgmax::new(self.epsilon)?),
            SelectorKind::Uniform => Arc::new(Uniform),
        };
        if let Some(k) = self.top_k {
            selector = Arc::new(TopK::new(k, selector)?);
        }
        if let Some(mass) = self.top_p {
            selector = Arc::new(Nucleus::new(mass, selector)?);
        }
        for gate in self.gates.iter().rev() {
            selector = gate.build(selector)?;
        }
        Ok(selector)
    }
}
