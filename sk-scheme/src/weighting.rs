//! The rule for **w**, the weights of a step.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sk_core::{Fixed, ParameterError, Weighting};
use sk_normalize::{Dual, MaxMin};

use crate::selector::SelectorSpec;

/// The `[weighting]` section.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum WeightingSpec {
    /// The weights that are asked for.
    #[default]
    Fixed,
    /// The weights under which the batch does worst, so that the worst-served objective counts.
    MaxMin {
        /// T, in the unit of the scores.
        temperature: f64,
    },
    /// The requested weights; a blade with a gate has the least multiplier, up to `limit`, that keeps
    /// its expected score at or above the threshold.
    Dual {
        /// T, in the unit of the scores.
        temperature: f64,
        /// The most that a multiplier may be.
        limit: f64,
    },
}

impl WeightingSpec {
    /// Checks the numbers of the rule, which may be read before the gates.
    pub(crate) fn check(&self) -> Result<(), ParameterError> {
        match *self {
            Self::Fixed => Ok(()),
            Self::MaxMin { temperature } => MaxMin::new(temperature).map(drop),
            Self::Dual { temperature, limit } => Dual::new(temperature, limit, Vec::new()).map(drop),
        }
    }

    /// Builds the rule. The gates of `selector` provide the thresholds of constraints.
    ///
    /// # Errors
    /// If a number is out of range, or if there are no constraints.
    pub fn build(&self, selector: &SelectorSpec) -> Result<Arc<dyn Weighting>, String> {
        match *self {
            Self::Fixed => Ok(Arc::new(Fixed)),
            Self::MaxMin { temperature } => Ok(Arc::new(MaxMin::new(temperature).map_err(|error| error.to_string())?)),
            Self::Dual { temperature, limit } => {
                let thresholds: Vec<(Arc<str>, f64)> = selector.thresholds().map(|(name, least)| (name.into(), least)).collect();
                if thresholds.is_empty() {
                    return Err("kind \"dual\" needs a threshold: add a gate such as [selector.gates.harmless]".to_owned());
                }
                Ok(Arc::new(Dual::new(temperature, limit, thresholds).map_err(|error| error.to_string())?))
            }
        }
    }
}
