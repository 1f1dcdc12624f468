//! The divergence under which policies are mixed.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sk_core::{Divergence, ParameterError};

use crate::spec::text_of;

/// The fields `divergence` and, for the α-divergence, `divergence_alpha`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "divergence", rename_all = "kebab-case")]
pub enum DivergenceSpec {
    /// The weighted geometric mean.
    ReverseKl,
    /// The weighted harmonic mean.
    ForwardKl,
    /// The Jensen–Shannon divergence.
    JensenShannon,
    /// The weighted power mean of order −α.
    Alpha {
        /// α.
        divergence_alpha: f64,
    },
}

impl DivergenceSpec {
    /// Builds the divergence.
    ///
    /// # Errors
    /// If α is not positive and finite.
    pub fn build(self) -> Result<Divergence, ParameterError> {
        Ok(match self {
            Self::ReverseKl => Divergence::ReverseKl,
            Self::ForwardKl => Divergence::ForwardKl,
            Self::JensenShannon => Divergence::JensenShannon,
            Self::Alpha { divergence_alpha } => Divergence::alpha(divergence_alpha)?,
        })
    }
}

impl fmt::Display for DivergenceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alpha { divergence_alpha } => write!(f, "alpha {divergence_alpha}"),
            named => f.write_str(&text_of(named, "divergence")),
        }
    }
}
