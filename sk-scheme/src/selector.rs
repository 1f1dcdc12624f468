//! 𝓢: the selection of a candidate from the ratings.

use std::sync::Arc;

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sk_core::{OperatingPoint, ParameterError, Selector};
use sk_select::{Argmax, Champion, Criterion, EpsilonArgmax, Gate, Nucleus, Softmax, TopK, Uniform};

use crate::choices::{Convention, GateFallback};
use crate::number;
use crate::spec::text_of;

/// The `[selector]` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = with_gates)]
pub struct SelectorSpec {
    /// The rule, and its own numbers.
    #[serde(flatten)]
    pub rule: SelectorRule,
    /// Keep this many of the most probable candidates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_k: Option<usize>,
    /// Keep the most likely candidates that together have this probability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// The gates that a candidate must pass before it can be selected, the first to be applied
    /// first.
    #[serde(skip)]
    pub gates: Vec<GateSpec>,
}

/// Adds the sections `[selector.gates.NAME]`, which are read one by one.
fn with_gates(schema: &mut Schema) {
    schema.ensure_object()["properties"]["gates"] = json!({ "type": "object" });
}

/// The kinds of `[selector]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum SelectorRule {
    /// Softmax over rating, score and dispersion, each standardised.
    Champion(ChampionSpec),
    /// Softmax over ratings.
    Softmax {
        /// T.
        temperature: f64,
    },
    /// The highest rating, the first among equals.
    Argmax,
    /// The highest rating, and any candidate with equal probability a share of the time.
    EpsilonArgmax {
        /// ε, the share.
        epsilon: f64,
    },
    /// All candidates are equally likely: the control.
    Uniform,
}

/// The champion rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChampionSpec {
    /// T, temperature of the softmax; 0 takes the best.
    pub temperature: f64,
    /// Weight of the rating.
    pub w_tour: f64,
    /// Weight of the composite score.
    pub w_blade: f64,
    /// λ, penalty on the composite dispersion.
    pub lambda: f64,
    /// How the rule standardises.
    pub convention: Convention,
    /// Whether the rule standardises at all: the third of the three standardisations.
    pub standardize: bool,
}

/// A `[selector.gates.NAME]` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateSpec {
    /// Its name; that of its blade for a gate on a blade.
    #[serde(skip)]
    pub name: String,
    /// The quantity that is compared with the threshold.
    #[serde(flatten)]
    pub on: GateOn,
    /// The least value that passes.
    #[serde(with = "number")]
    #[schemars(schema_with = "number::or_infinite")]
    pub threshold: f64,
    /// The rule if no candidate passes.
    pub fallback: GateFallback,
}

/// What a gate compares with its threshold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "on", rename_all = "kebab-case")]
pub enum GateOn {
    /// μ − κ·σ of the blade that the gate is named after, before normalisation.
    Blade {
        /// κ.
        kappa: f64,
    },
    /// μ − κ·σ of the composite.
    Score {
        /// κ.
        kappa: f64,
    },
    /// The fluency.
    Fluency,
    /// The rating.
    Rating,
}

impl GateSpec {
    fn criterion(&self) -> Criterion {
        match self.on {
            GateOn::Blade { kappa } => Criterion::Blade { name: self.name.as_str().into(), kappa },
            GateOn::Score { kappa } => Criterion::LowerBound { kappa },
            GateOn::Fluency => Criterion::Fluency,
            GateOn::Rating => Criterion::Rating,
        }
    }
}

impl SelectorRule {
    /// Returns its `kind` in a scheme file.
    pub fn kind(&self) -> String {
        text_of(self, "kind")
    }

    /// Returns T, if the rule has one.
    pub fn temperature(&self) -> Option<f64> {
        match self {
            Self::Champion(ChampionSpec { temperature, .. }) | Self::Softmax { temperature } => Some(*temperature),
            Self::Argmax | Self::EpsilonArgmax { .. } | Self::Uniform => None,
        }
    }
}

impl SelectorSpec {
    /// Returns the name and the threshold of each gate on a blade. The name is that of the blade.
    pub(crate) fn thresholds(&self) -> impl Iterator<Item = (&str, f64)> {
        let gates = self.gates.iter().filter(|gate| matches!(gate.on, GateOn::Blade { .. }));
        gates.map(|gate| (gate.name.as_str(), gate.threshold))
    }

    /// Builds the selector.
    ///
    /// # Errors
    /// If a number is out of range. The error names it.
    pub fn build(&self) -> Result<Arc<dyn Selector>, ParameterError> {
        let mut selector: Arc<dyn Selector> = match self.rule {
            SelectorRule::Champion(ChampionSpec { temperature, w_tour, w_blade, lambda, convention, standardize }) => {
                let point = OperatingPoint { temperature, w_tour, w_blade, lambda, ..OperatingPoint::HHH };
                Arc::new(Champion::new(&point, standardize.then_some(convention.into()))?)
            }
            SelectorRule::Softmax { temperature } => Arc::new(Softmax::new(temperature)?),
            SelectorRule::Argmax => Arc::new(Argmax),
            SelectorRule::EpsilonArgmax { epsilon } => Arc::new(EpsilonArgmax::new(epsilon)?),
            SelectorRule::Uniform => Arc::new(Uniform),
        };
        if let Some(k) = self.top_k {
            selector = Arc::new(TopK::new(k, selector)?);
        }
        if let Some(mass) = self.top_p {
            selector = Arc::new(Nucleus::new(mass, selector)?);
        }
        for gate in self.gates.iter().rev() {
            selector = Arc::new(Gate::new(gate.criterion(), gate.threshold, gate.fallback.into(), selector)?);
        }
        Ok(selector)
    }
}
