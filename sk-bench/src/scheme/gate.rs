//! Gates before 𝓢: what a candidate must reach before it can be selected.

use std::sync::Arc;

use sk_core::{ParameterError, Selector};
use sk_select::{Criterion, Fallback, Gate};

use super::SchemeError;
use super::document::Section;

/// A `[selector.gates.NAME]` section.
#[derive(Debug, Clone, PartialEq)]
pub struct GateConfig {
    /// What is held against the threshold.
    pub criterion: Criterion,
    /// The least value that passes.
    pub threshold: f64,
    /// What happens where nobody passes.
    pub fallback: Fallback,
}

#[derive(Clone, Copy)]
enum On {
    Blade,
    Score,
    Fluency,
    Rating,
}

const CRITERIA: [(&str, On); 4] = [("blade", On::Blade), ("score", On::Score), ("fluency", On::Fluency), ("rating", On::Rating)];

const FALLBACKS: [(&str, Fallback); 2] = [("best", Fallback::Best), ("open", Fallback::Open)];

impl GateConfig {
    /// Reads a section. A gate without a criterion is one on the blade whose name it has.
    pub(super) fn read(mut section: Section<'_, '_>) -> Result<Self, SchemeError> {
        let on = section.choice("on", "criterion", &CRITERIA)?.unwrap_or(On::Blade);
        let kappa = match on {
            On::Blade | On::Score => section.number("kappa")?.unwrap_or(0.0),
            On::Fluency | On::Rating => 0.0,
        };
        let criterion = match on {
            On::Blade => Criterion::Blade { name: section.name().into(), kappa },
            On::Score => Criterion::LowerBound { kappa },
            On::Fluency => Criterion::Fluency,
            On::Rating => Criterion::Rating,
        };
        let Some(threshold) = section.number("threshold")? else {
            return Err(section.fault("a gate needs a threshold"));
        };
        let fallback = section.choice("fallback", "fallback", &FALLBACKS)?.unwrap_or_default();
        section.finish()?;
        Ok(Self { criterion, threshold, fallback })
    }

    /// The gate before `inner`.
    pub(super) fn build(&self, inner: Arc<dyn Selector>) -> Result<Arc<dyn Selector>, ParameterError> {
        Ok(Arc::new(Gate::new(self.criterion.clone(), self.threshold, self.fallback, inner)?))
    }
}
