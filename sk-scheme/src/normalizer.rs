//! 𝓝: the normaliser, which puts the blades of a batch on one scale.

use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sk_core::{Normalizer, Standardize};
use sk_normalize::{CandidateBatch, Correlation, Propagation, Rank, Raw, Robust};

use crate::choices::{Convention, Deviation, DispersionUnit};

/// The `[normalizer]` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NormalizerSpec {
    /// The rule, and its own numbers.
    #[serde(flatten)]
    pub rule: NormalizerRule,
    /// How dispersions combine.
    #[serde(flatten)]
    pub propagation: PropagationSpec,
}

/// The kinds of `[normalizer]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum NormalizerRule {
    /// Candidate-batch normalisation.
    #[schemars(transform = with_convention)]
    Cbn {
        /// The divisor of the variance.
        deviation: Deviation,
        /// ε, added to the standard deviation.
        epsilon: f64,
        /// What σ is divided by.
        dispersion_unit: DispersionUnit,
    },
    /// Weighted raw scores.
    Raw,
    /// Standardised ranks within the batch.
    Rank,
    /// Median and median absolute deviation.
    Robust,
}

/// Adds the field that abbreviates the others.
fn with_convention(schema: &mut Schema) {
    let convention = SchemaGenerator::default().into_root_schema_for::<Convention>();
    schema.ensure_object()["properties"]["convention"] = convention.into();
}

/// How the dispersions of the blades combine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum PropagationSpec {
    /// By the correlations between the errors of blades, by name.
    Correlated {
        /// Two blades and the correlation of their errors.
        #[schemars(schema_with = "correlations")]
        correlations: Vec<(String, String, f64)>,
    },
    /// By a rule.
    Rule {
        /// The rule.
        propagation: PropagationRule,
    },
}

fn correlations(_: &mut SchemaGenerator) -> Schema {
    let pair =
        [json!({ "type": "string" }), json!({ "type": "string" }), json!({ "type": "number", "minimum": -1, "maximum": 1 })];
    json_schema!({ "type": "array", "items": { "type": "array", "prefixItems": pair, "minItems": 3, "maxItems": 3 } })
}

/// The rules by which dispersions combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PropagationRule {
    /// Errors rise and fall together.
    Linear,
    /// Errors are independent.
    Independent,
}

impl NormalizerSpec {
    fn propagation(&self) -> Result<Propagation, String> {
        let pairs = match &self.propagation {
            PropagationSpec::Rule { propagation: PropagationRule::Linear } => return Ok(Propagation::Linear),
            PropagationSpec::Rule { propagation: PropagationRule::Independent } => return Ok(Propagation::Independent),
            PropagationSpec::Correlated { correlations } if correlations.is_empty() => return Ok(Propagation::Linear),
            PropagationSpec::Correlated { correlations } => correlations,
        };
        let pairs = pairs.iter().map(|(one, other, rho)| (one.as_str(), other.as_str(), *rho));
        Ok(Propagation::Correlated(Correlation::of_pairs(pairs).map_err(|error| error.to_string())?))
    }

    /// Returns the names of the blades that have correlations.
    pub(crate) fn correlated(&self) -> impl Iterator<Item = &str> {
        let pairs = match &self.propagation {
            PropagationSpec::Correlated { correlations } => correlations.as_slice(),
            PropagationSpec::Rule { .. } => &[],
        };
        pairs.iter().flat_map(|(one, other, _)| [one.as_str(), other.as_str()])
    }

    /// Builds the normaliser.
    ///
    /// # Errors
    /// If ε is negative or not finite, a correlation is outside [−1, 1], is given twice or pairs a
    /// blade with itself, or their matrix is not positive semidefinite.
    pub fn build(&self) -> Result<Arc<dyn Normalizer>, String> {
        let propagation = self.propagation()?;
        Ok(match self.rule {
            NormalizerRule::Cbn { deviation, epsilon, dispersion_unit } => {
                let standardize = Standardize::new(deviation.into(), epsilon, 0.0).map_err(|error| error.to_string())?;
                Arc::new(CandidateBatch { standardize, dispersion: dispersion_unit.into(), propagation })
            }
            NormalizerRule::Raw => Arc::new(Raw { propagation }),
            NormalizerRule::Rank => Arc::new(Rank { propagation }),
            NormalizerRule::Robust => Arc::new(Robust { propagation }),
        })
    }
}
