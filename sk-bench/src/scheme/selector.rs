//! 𝓢: from ratings to a choice.

use std::sync::Arc;

use sk_core::{OperatingPoint, ParameterError, Selector};
use sk_select::{Argmax, Champion, Nucleus, Softmax, TopK, Uniform};

use super::document::Section;
use super::{Convention, SchemeError};

/// The kinds of `[selector]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SelectorKind {
    /// Softmax over rating, score and dispersion, each standardised.
    Champion,
    /// Softmax over ratings.
    Softmax,
    /// The highest rating.
    Argmax,
    /// Any candidate alike: the control arm.
    Uniform,
}

impl SelectorKind {
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
}

const KINDS: [(&str, SelectorKind); 4] = [
    ("champion", SelectorKind::Champion),
    ("softmax", SelectorKind::Softmax),
    ("argmax", SelectorKind::Argmax),
    ("uniform", SelectorKind::Uniform),
];

impl SelectorConfig {
    pub(super) fn published(convention: Convention, point: &OperatingPoint) -> Self {
        Self {
            kind: SelectorKind::Champion,
            convention,
            temperature: point.temperature,
            w_tour: point.w_tour,
            w_blade: point.w_blade,
            lambda: point.lambda,
            top_k: None,
            top_p: None,
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
            self.w_tour = section.number("w_tour")?.unwrap_or(self.w_tour);
            self.w_blade = section.number("w_blade")?.unwrap_or(self.w_blade);
            self.lambda = section.number("lambda")?.unwrap_or(self.lambda);
        }
        self.top_k = section.count("top_k")?.or(self.top_k);
        self.top_p = section.number("top_p")?.or(self.top_p);
        self.build().map_err(|error| section.fault(error))?;
        section.finish()
    }

    pub(super) fn build(&self) -> Result<Arc<dyn Selector>, ParameterError> {
        let mut selector: Arc<dyn Selector> = match self.kind {
            SelectorKind::Champion => {
                let Self { temperature, w_tour, w_blade, lambda, .. } = *self;
                let point = OperatingPoint { temperature, w_tour, w_blade, lambda, ..OperatingPoint::HHH };
                Arc::new(match self.convention {
                    Convention::Paper => Champion::paper(&point)?,
                    Convention::Sound => Champion::sound(&point)?,
                })
            }
            SelectorKind::Softmax => Arc::new(Softmax::new(self.temperature)?),
            SelectorKind::Argmax => Arc::new(Argmax),
            SelectorKind::Uniform => Arc::new(Uniform),
        };
        if let Some(k) = self.top_k {
            selector = Arc::new(TopK::new(k, selector)?);
        }
        if let Some(mass) = self.top_p {
            selector = Arc::new(Nucleus::new(mass, selector)?);
        }
        Ok(selector)
    }
}
