//! 𝓑: the blades, which score candidates.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use sk_blades::{
    Ablated, Discriminator, DivergenceRatio, Ensemble, ExpertAmateur, Guided, ImplicitReward, Ingredient, Likelihood, RewardHead,
    arm_generator,
};
use sk_core::{Blade, HeadKind, ParameterError, Policy};
use toml::{Table, Value};

use crate::choices::{Dispersion, DispersionArm, LabelSpread, Length};
use crate::divergence::DivergenceSpec;
use crate::spec::text_of;

/// The seed of the permutations of shuffled dispersions. It is the same for all blades, so that a
/// step permutes the composite dispersion as a whole.
const SHUFFLE_SEED: u64 = 42;

/// A `[blades.NAME]` section as a file has it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum BladeSection {
    Fluency(FluencySection),
    Weighed(BladeSpec),
}

/// The kind decides, so that an error is that of the kind's fields.
impl<'de> Deserialize<'de> for BladeSection {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let table = Table::deserialize(from)?;
        let section = if table.get("kind").and_then(Value::as_str) == Some("fluency") {
            FluencySection::deserialize(table).map(Self::Fluency)
        } else {
            BladeSpec::deserialize(table).map(Self::Weighed)
        };
        section.map_err(|error| D::Error::custom(error.message()))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum FluencySection {
    /// b₀, the drafter's own log-probability. It has no weight: the aggregator gives it its
    /// coefficient.
    Fluency,
}

/// A blade with a weight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BladeSpec {
    /// The name users address it by.
    #[serde(skip)]
    pub name: String,
    /// The rule, and its own fields.
    #[serde(flatten)]
    pub rule: BladeRule,
    /// Its weight, scaled so that all sum to one. If any blade has a weight, those without one have
    /// zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// What an ablation makes of its σ.
    pub arm: DispersionArm,
}

/// The kinds of blades with a weight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum BladeRule {
    /// The implicit reward of an adapter against the backbone.
    ImplicitReward {
        /// Directory of the adapter.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        adapter: Option<PathBuf>,
        /// The model of the adapter, "drafter" or a directory, if it is not the backbone. The ratio
        /// is to that model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        on: Option<String>,
        /// β, scale of the log-ratio.
        beta: f64,
        /// Where σ comes from.
        dispersion: Dispersion,
        /// The backbone's log-probability beside the score.
        #[serde(flatten)]
        guidance: Option<Guidance>,
    },
    /// The implicit reward of the backbone under an instruction.
    Instruction {
        /// What the model is told before the dialogue: in the system turn of a chat template, else
        /// in front of the first turn.
        instruction: String,
        /// The opposite instruction. The backbone under it replaces the plain backbone in the
        /// ratio.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        against: Option<String>,
        /// Directory of an adapter under which the instruction is read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        adapter: Option<PathBuf>,
        /// β, scale of the log-ratio.
        beta: f64,
        /// Where σ comes from.
        dispersion: Dispersion,
        /// The backbone's log-probability beside the score.
        #[serde(flatten)]
        guidance: Option<Guidance>,
    },
    /// The mean implicit reward of several adapters, with their disagreement for σ.
    Ensemble {
        /// Directories of the adapters, at least two.
        #[schemars(length(min = 2))]
        adapters: Vec<PathBuf>,
        /// β, scale of the log-ratio.
        beta: f64,
    },
    /// The log-probability under an adapter, or under another model.
    Likelihood {
        /// Directory of the adapter. Another model needs none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        adapter: Option<PathBuf>,
        /// The model, "drafter" or a directory, if it is not the backbone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        on: Option<String>,
        /// Where σ comes from.
        dispersion: Dispersion,
    },
    /// The log-probability under the backbone.
    BackboneLikelihood {
        /// Where σ comes from.
        dispersion: Dispersion,
    },
    /// f′ of the ratio of an adapter and the backbone, under a divergence.
    DivergenceRatio {
        /// Directory of the adapter.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        adapter: Option<PathBuf>,
        /// The divergence.
        #[serde(flatten)]
        divergence: DivergenceSpec,
    },
    /// Zero: the adapter and its weight go into the soup that drafts.
    Ingredient {
        /// Directory of the adapter.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        adapter: Option<PathBuf>,
    },
    /// The log-probability of an attribute, by a discriminating head on the backbone.
    Discriminator {
        /// Directory of the head.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        head: Option<PathBuf>,
        /// Where σ comes from.
        dispersion: LabelSpread,
        /// The backbone's log-probability beside the score.
        #[serde(flatten)]
        guidance: Option<Guidance>,
    },
    /// The reward that a head on the backbone gives.
    RewardHead {
        /// Directory of the head.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        head: Option<PathBuf>,
        /// The backbone's log-probability beside the score.
        #[serde(flatten)]
        guidance: Option<Guidance>,
    },
    /// Backbone minus drafter.
    ExpertAmateur,
}

/// A backbone's log-probability beside a blade's own score: log π_B + λ μ.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Guidance {
    /// λ, the factor of the blade's score.
    #[serde(rename = "guided")]
    pub lambda: f64,
    /// How log π_B counts.
    pub likelihood: Length,
}

impl BladeRule {
    /// Returns its `kind` in a scheme file.
    pub fn kind(&self) -> String {
        text_of(self, "kind")
    }

    /// Returns the kind of head that it uses, if any.
    pub fn head_kind(&self) -> Option<HeadKind> {
        match self {
            Self::Discriminator { .. } => Some(HeadKind::Discriminator),
            Self::RewardHead { .. } => Some(HeadKind::Reward),
            _ => None,
        }
    }

    /// Returns the `kind` of a blade that uses this kind of head.
    pub fn kind_of_head(kind: HeadKind) -> String {
        BladeSpec::of_head("", kind).rule.kind()
    }

    /// Returns whether it reads the backbone under an adapter of its own name.
    pub(crate) fn reads_adapter(&self) -> bool {
        matches!(self, Self::Likelihood { on: None, .. } | Self::ImplicitReward { on: None, .. } | Self::DivergenceRatio { .. })
    }

    /// Returns whether it reads the backbone without adapter or instruction.
    pub(crate) fn reads_backbone(&self) -> bool {
        let guided = self.guidance().is_some();
        match self {
            Self::Likelihood { .. } | Self::Ingredient { .. } => false,
            // Its ratio is to its own model.
            Self::ImplicitReward { on: Some(_), .. } => guided,
            // The opposite instruction replaces the plain backbone in the ratio.
            Self::Instruction { against, .. } => against.is_none() || guided,
            Self::ImplicitReward { on: None, .. }
            | Self::Ensemble { .. }
            | Self::BackboneLikelihood { .. }
            | Self::DivergenceRatio { .. }
            | Self::Discriminator { .. }
            | Self::RewardHead { .. }
            | Self::ExpertAmateur => true,
        }
    }

    /// Returns the name of its source of σ; empty if its kind has only one.
    pub fn dispersion_name(&self) -> String {
        match self {
            Self::ImplicitReward { dispersion, .. }
            | Self::Instruction { dispersion, .. }
            | Self::Likelihood { dispersion, .. }
            | Self::BackboneLikelihood { dispersion } => dispersion.to_string(),
            Self::Discriminator { dispersion, .. } => dispersion.to_string(),
            Self::Ensemble { .. }
            | Self::DivergenceRatio { .. }
            | Self::Ingredient { .. }
            | Self::RewardHead { .. }
            | Self::ExpertAmateur => String::new(),
        }
    }

    /// Returns whether σ is zero where another source could be chosen.
    pub(crate) fn is_certain(&self) -> bool {
        self.dispersion_name() == Dispersion::Zero.to_string()
    }

    pub(crate) fn guidance(&self) -> Option<Guidance> {
        match self {
            Self::ImplicitReward { guidance, .. }
            | Self::Instruction { guidance, .. }
            | Self::Discriminator { guidance, .. }
            | Self::RewardHead { guidance, .. } => *guidance,
            Self::Ensemble { .. }
            | Self::Likelihood { .. }
            | Self::BackboneLikelihood { .. }
            | Self::DivergenceRatio { .. }
            | Self::Ingredient { .. }
            | Self::ExpertAmateur => None,
        }
    }
}

impl BladeSpec {
    /// Creates the implicit reward of the adapter called `name`.
    pub fn implicit_reward(name: &str, beta: f64) -> Self {
        let rule = BladeRule::ImplicitReward { adapter: None, on: None, beta, dispersion: Dispersion::default(), guidance: None };
        Self { name: name.to_owned(), rule, weight: None, arm: DispersionArm::default() }
    }

    /// Creates a blade with the numbers of this implicit reward or instruction, for the backbone
    /// under `instruction`. `None` if this is of another kind.
    pub(crate) fn instructed(&self, name: &str, instruction: &str) -> Option<Self> {
        let (against, beta, dispersion, guidance) = match &self.rule {
            BladeRule::ImplicitReward { beta, dispersion, guidance, .. } => (None, *beta, *dispersion, *guidance),
            BladeRule::Instruction { against, beta, dispersion, guidance, .. } => {
                (against.clone(), *beta, *dispersion, *guidance)
            }
            _ => return None,
        };
        let instruction = instruction.to_owned();
        let rule = BladeRule::Instruction { instruction, against, adapter: None, beta, dispersion, guidance };
        Some(Self { name: name.to_owned(), rule, ..self.clone() })
    }

    /// Creates a blade with the settings of this one, for another adapter. An instruction without
    /// an adapter becomes an implicit reward. `None` if this is of a kind without an adapter, or
    /// with several.
    pub(crate) fn adapted(&self, name: &str, adapter: &Path) -> Option<Self> {
        let mut blade = Self { name: name.to_owned(), ..self.clone() };
        let source = Some(adapter.to_owned());
        match &mut blade.rule {
            BladeRule::Instruction { adapter: None, beta, dispersion, guidance, .. } => {
                let (beta, dispersion, guidance) = (*beta, *dispersion, *guidance);
                blade.rule = BladeRule::ImplicitReward { adapter: source, on: None, beta, dispersion, guidance };
            }
            BladeRule::ImplicitReward { adapter, .. }
            | BladeRule::Instruction { adapter, .. }
            | BladeRule::Likelihood { adapter, .. }
            | BladeRule::DivergenceRatio { adapter, .. }
            | BladeRule::Ingredient { adapter } => *adapter = source,
            BladeRule::Ensemble { .. }
            | BladeRule::BackboneLikelihood { .. }
            | BladeRule::Discriminator { .. }
            | BladeRule::RewardHead { .. }
            | BladeRule::ExpertAmateur => return None,
        }
        Some(blade)
    }

    /// Creates the blade of the head called `name`.
    pub(crate) fn of_head(name: &str, kind: HeadKind) -> Self {
        let rule = match kind {
            HeadKind::Discriminator => {
                BladeRule::Discriminator { head: None, dispersion: LabelSpread::default(), guidance: None }
            }
            HeadKind::Reward => BladeRule::RewardHead { head: None, guidance: None },
        };
        Self { name: name.to_owned(), rule, weight: None, arm: DispersionArm::default() }
    }

    /// Returns the directory of its head, if it uses a head and the file gives one.
    pub fn head(&self) -> Option<&PathBuf> {
        match &self.rule {
            BladeRule::Discriminator { head, .. } | BladeRule::RewardHead { head, .. } => head.as_ref(),
            _ => None,
        }
    }

    /// Returns β, if its rule has one.
    pub(crate) fn beta_mut(&mut self) -> Option<&mut f64> {
        match &mut self.rule {
            BladeRule::ImplicitReward { beta, .. } | BladeRule::Instruction { beta, .. } | BladeRule::Ensemble { beta, .. } => {
                Some(beta)
            }
            BladeRule::Likelihood { .. }
            | BladeRule::BackboneLikelihood { .. }
            | BladeRule::DivergenceRatio { .. }
            | BladeRule::Ingredient { .. }
            | BladeRule::Discriminator { .. }
            | BladeRule::RewardHead { .. }
            | BladeRule::ExpertAmateur => None,
        }
    }

    /// Iterates over the directories that it names.
    pub(crate) fn paths_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let paths: &mut [PathBuf] = match &mut self.rule {
            BladeRule::ImplicitReward { adapter: Some(path), .. }
            | BladeRule::Instruction { adapter: Some(path), .. }
            | BladeRule::Likelihood { adapter: Some(path), .. }
            | BladeRule::DivergenceRatio { adapter: Some(path), .. }
            | BladeRule::Ingredient { adapter: Some(path) }
            | BladeRule::Discriminator { head: Some(path), .. }
            | BladeRule::RewardHead { head: Some(path), .. } => std::slice::from_mut(path),
            BladeRule::Ensemble { adapters, .. } => adapters,
            _ => &mut [],
        };
        paths.iter_mut()
    }

    /// Returns the directory of the model that it reads instead of the backbone or the drafter, if
    /// any.
    pub(crate) fn other_mut(&mut self) -> Option<&mut String> {
        match &mut self.rule {
            BladeRule::ImplicitReward { on, .. } | BladeRule::Likelihood { on, .. } => on.as_mut().filter(|on| *on != "drafter"),
            _ => None,
        }
    }

    /// Applies its ablation to the σ of a step, given as in a scheme without ablation. `position`
    /// is the number of tokens that the candidates continue; it determines the permutation of
    /// shuffled σ.
    pub fn ablated(&self, sigma: &[f64], position: u64) -> Vec<f64> {
        let arm = if self.is_certain() { sk_blades::DispersionArm::Zero } else { self.arm.into() };
        let mut sigma = sigma.to_vec();
        arm.apply(&mut sigma, &mut arm_generator(SHUFFLE_SEED, position));
        sigma
    }

    /// Returns whether an ablation changes its σ.
    pub fn is_ablated(&self) -> bool {
        self.arm != DispersionArm::Real || self.rule.is_certain()
    }

    /// Returns whether its σ is set to zero.
    pub fn is_certain(&self) -> bool {
        self.arm == DispersionArm::Zero || self.rule.is_certain()
    }

    /// Returns the adapters that it uses: the name by which the backbone knows each, and its
    /// directory if the file gives one.
    pub(crate) fn adapters(&self) -> Vec<(String, Option<&PathBuf>)> {
        match &self.rule {
            BladeRule::Likelihood { adapter: None, on: Some(_), .. } => Vec::new(),
            BladeRule::ImplicitReward { adapter, .. }
            | BladeRule::Likelihood { adapter, .. }
            | BladeRule::DivergenceRatio { adapter, .. }
            | BladeRule::Ingredient { adapter } => vec![(self.name.clone(), adapter.as_ref())],
            BladeRule::Instruction { adapter: Some(path), .. } => vec![(self.name.clone(), Some(path))],
            BladeRule::Ensemble { adapters, .. } => {
                (0..).zip(adapters).map(|(member, path): (usize, _)| (format!("{}/{member}", self.name), Some(path))).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the model that it reads instead of the backbone, if any: "drafter" or a directory.
    pub fn on(&self) -> Option<&str> {
        match &self.rule {
            BladeRule::ImplicitReward { on, .. } | BladeRule::Likelihood { on, .. } => on.as_deref(),
            _ => None,
        }
    }

    /// Returns the lanes that it reads on another model than the backbone: the name of each, and
    /// the model.
    pub(crate) fn readers(&self) -> Vec<(String, &str)> {
        match &self.rule {
            BladeRule::ImplicitReward { on: Some(on), .. } => vec![(self.name.clone(), on), (bare(&self.name), on)],
            BladeRule::Likelihood { on: Some(on), .. } => vec![(self.name.clone(), on)],
            _ => Vec::new(),
        }
    }

    /// Returns the instructions that it reads under: the lane name and the text of each.
    pub(crate) fn instructions(&self) -> Vec<(String, &str)> {
        match &self.rule {
            BladeRule::Instruction { instruction, against, .. } => {
                let against = against.iter().map(|against| (contrary(&self.name), against.as_str()));
                std::iter::once((self.name.clone(), instruction.as_str())).chain(against).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the names of the lanes that it alone reads: those of its adapters, of its
    /// instructions and on another model.
    pub fn lanes(&self) -> BTreeSet<String> {
        let adapters = self.adapters().into_iter().map(|(lane, _)| lane);
        let readers = self.readers().into_iter().map(|(lane, _)| lane);
        adapters.chain(readers).chain(self.instructions().into_iter().map(|(lane, _)| lane)).collect()
    }

    /// Builds the blade. The backbone knows its adapter or head, if any, by the blade's name.
    ///
    /// # Errors
    /// If β or the α of a divergence is not positive and finite, λ or the weight is negative or not
    /// finite, or an ensemble has fewer than two adapters.
    pub fn build(&self) -> Result<Arc<dyn Blade>, ParameterError> {
        if let Some(weight) = self.weight {
            ParameterError::not_negative("weight", weight)?;
        }
        let name = self.name.as_str();
        let blade: Arc<dyn Blade> = match &self.rule {
            BladeRule::ImplicitReward { beta, dispersion, on, .. } => {
                let reward = ImplicitReward::new(name, *beta, (*dispersion).into())?;
                Arc::new(if on.is_some() { reward.against(bare(name)) } else { reward })
            }
            BladeRule::Instruction { beta, dispersion, against, .. } => {
                let reward = ImplicitReward::new(name, *beta, (*dispersion).into())?;
                Arc::new(if against.is_some() { reward.against(contrary(name)) } else { reward })
            }
            BladeRule::Ensemble { beta, .. } => {
                Arc::new(Ensemble::new(self.adapters().into_iter().map(|(name, _)| name), *beta)?)
            }
            BladeRule::Likelihood { dispersion, .. } => {
                Arc::new(Likelihood::new(Policy::Variant(name.into()), (*dispersion).into()))
            }
            BladeRule::BackboneLikelihood { dispersion } => Arc::new(Likelihood::new(Policy::Backbone, (*dispersion).into())),
            BladeRule::DivergenceRatio { divergence, .. } => Arc::new(DivergenceRatio::new(name, divergence.build()?)),
            BladeRule::Discriminator { dispersion, .. } => Arc::new(Discriminator::new(name, (*dispersion).into())),
            BladeRule::RewardHead { .. } => Arc::new(RewardHead::new(name)),
            BladeRule::Ingredient { .. } => Arc::new(Ingredient),
            BladeRule::ExpertAmateur => Arc::new(ExpertAmateur),
        };
        let blade: Arc<dyn Blade> = match self.rule.guidance() {
            Some(Guidance { lambda, likelihood }) => {
                ParameterError::not_negative("guided", lambda)?;
                Arc::new(Guided::new(blade, lambda, likelihood.into())?)
            }
            None => blade,
        };
        Ok(match self.arm {
            DispersionArm::Real => blade,
            arm => Arc::new(Ablated { blade, arm: arm.into(), seed: SHUFFLE_SEED }),
        })
    }
}

/// Returns the name of the lane that reads the blade's model without its adapter.
fn bare(name: &str) -> String {
    format!("{name}/base")
}

/// Returns the name of the lane that reads under the opposite instruction.
fn contrary(name: &str) -> String {
    format!("{name}/against")
}
