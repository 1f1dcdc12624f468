//! 𝓑: what scores a candidate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sk_blades::{
    Ablated, Discriminator, Dispersion, DispersionArm, DivergenceRatio, Ensemble, ExpertAmateur, Fluency, Guided, ImplicitReward,
    Ingredient, LabelSpread, Length, Likelihood, RewardHead, arm_generator,
};
use sk_core::{Blade, Divergence, ParameterError, Policy};
use sk_models::head::HeadKind;

use super::document::Section;
use super::{SchemeError, divergence};

/// What a blade computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BladeKind {
    /// The implicit reward of an adapter against the backbone.
    ImplicitReward,
    /// The mean implicit reward of several adapters, with their disagreement for σ.
    Ensemble,
    /// The log-probability under an adapter.
    Likelihood,
    /// The log-probability under the backbone.
    BackboneLikelihood,
    /// f′ of the ratio of an adapter and the backbone, under a divergence.
    DivergenceRatio,
    /// Nothing: its adapter and weight go into the soup that drafts.
    Ingredient,
    /// The log-probability of an attribute, by a discriminating head on the backbone.
    Discriminator,
    /// The reward that a head on the backbone gives.
    RewardHead,
    /// Backbone minus drafter.
    ExpertAmateur,
    /// b₀, the drafter's own log-probability. It has no weight: the aggregator gives it its coefficient.
    Fluency,
}

impl BladeKind {
    /// Its name in a scheme file.
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// Whether it reads with an adapter of its own name.
    pub fn needs_adapter(self) -> bool {
        matches!(self, Self::ImplicitReward | Self::Likelihood | Self::DivergenceRatio | Self::Ingredient)
    }

    /// Whether it has a scale β.
    pub fn has_beta(self) -> bool {
        matches!(self, Self::ImplicitReward | Self::Ensemble)
    }

    /// Whether it has a dispersion to choose.
    fn has_dispersion(self) -> bool {
        matches!(self, Self::ImplicitReward | Self::Likelihood | Self::BackboneLikelihood)
    }

    /// Which kind of head it reads with, if with any.
    pub fn head(self) -> Option<HeadKind> {
        match self {
            Self::Discriminator => Some(HeadKind::Discriminator),
            Self::RewardHead => Some(HeadKind::Reward),
            _ => None,
        }
    }

    /// The blade that a head of this kind is.
    pub fn of_head(kind: HeadKind) -> Self {
        match kind {
            HeadKind::Discriminator => Self::Discriminator,
            HeadKind::Reward => Self::RewardHead,
        }
    }
}

/// A backbone's log-probability beside a blade's own score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guidance {
    /// λ, what the blade's score counts.
    pub lambda: f64,
    /// How the log-probability counts.
    pub likelihood: Length,
}

/// A `[blades.NAME]` section.
#[derive(Debug, Clone, PartialEq)]
pub struct BladeConfig {
    /// The name users address it by.
    pub name: String,
    /// What it computes.
    pub kind: BladeKind,
    /// Directory of its adapter, where the file gives one.
    pub adapter: Option<PathBuf>,
    /// Directories of the adapters of an ensemble.
    pub members: Vec<PathBuf>,
    /// Directory of its head, where the file gives one.
    pub head: Option<PathBuf>,
    /// The backbone's log-probability beside the score, where there is one.
    pub guided: Option<Guidance>,
    /// Where the σ of a discriminator comes from.
    pub spread: LabelSpread,
    /// Its weight, where the file gives one.
    pub weight: Option<f64>,
    /// β of an implicit reward.
    pub beta: f64,
    /// Where its σ comes from.
    pub dispersion: Dispersion,
    /// What an ablation makes of its σ.
    pub arm: DispersionArm,
    /// The divergence of a ratio.
    pub divergence: Divergence,
}

/// Seeds the draws that shuffle the dispersions of an ablation, for all blades alike: a step permutes the composite dispersion.
const SHUFFLE_SEED: u64 = 42;

const KINDS: [(&str, BladeKind); 10] = [
    ("implicit-reward", BladeKind::ImplicitReward),
    ("ensemble", BladeKind::Ensemble),
    ("likelihood", BladeKind::Likelihood),
    ("backbone-likelihood", BladeKind::BackboneLikelihood),
    ("divergence-ratio", BladeKind::DivergenceRatio),
    ("ingredient", BladeKind::Ingredient),
    ("discriminator", BladeKind::Discriminator),
    ("reward-head", BladeKind::RewardHead),
    ("expert-amateur", BladeKind::ExpertAmateur),
    ("fluency", BladeKind::Fluency),
];

const DISPERSIONS: [(&str, Dispersion); 3] =
    [("min-entropy", Dispersion::MinEntropy), ("standard-error", Dispersion::StandardError), ("zero", Dispersion::ZERO)];

const ARMS: [(&str, DispersionArm); 3] =
    [("real", DispersionArm::Real), ("shuffled", DispersionArm::Shuffled), ("zero", DispersionArm::Zero)];

const SPREADS: [(&str, LabelSpread); 2] = [("zero", LabelSpread::ZERO), ("bernoulli", LabelSpread::Bernoulli)];

const LIKELIHOODS: [(&str, Length); 2] = [("summed", Length::Summed), ("per-token", Length::PerToken)];

impl BladeConfig {
    /// The implicit reward of the adapter called `name`.
    pub fn implicit_reward(name: &str, beta: f64) -> Self {
        Self {
            name: name.to_owned(),
            kind: BladeKind::ImplicitReward,
            adapter: None,
            members: Vec::new(),
            head: None,
            guided: None,
            spread: LabelSpread::ZERO,
            weight: None,
            beta,
            dispersion: Dispersion::MinEntropy,
            arm: DispersionArm::Real,
            divergence: Divergence::ReverseKl,
        }
    }

    /// The blade that the head called `name` is.
    pub(super) fn of_head(name: &str, kind: HeadKind) -> Self {
        Self { kind: BladeKind::of_head(kind), ..Self::implicit_reward(name, 1.0) }
    }

    /// b₀.
    pub(super) fn fluency() -> Self {
        Self { kind: BladeKind::Fluency, ..Self::implicit_reward("fluency", 1.0) }
    }

    /// Reads a section; paths in it are relative to `directory`.
    pub(super) fn read(section: Section<'_, '_>, beta: f64, directory: &Path) -> Result<Self, SchemeError> {
        let mut blade = Self::implicit_reward(section.name(), beta);
        blade.update(section, directory)?;
        Ok(blade)
    }

    /// Takes what a section says and keeps the rest; paths in it are relative to `directory`.
    pub(super) fn update(&mut self, mut section: Section<'_, '_>, directory: &Path) -> Result<(), SchemeError> {
        let located = |path: Option<String>| path.map(|path| directory.join(path));
        self.kind = section.choice("kind", "blade", &KINDS)?.unwrap_or(self.kind);
        if self.kind.needs_adapter() {
            self.adapter = located(section.string("adapter")?).or(self.adapter.take());
        }
        if self.kind == BladeKind::Ensemble
            && let Some(members) = section.strings("adapters")?
        {
            self.members = members.into_iter().map(|path| directory.join(path)).collect();
        }
        if matches!(self.kind, BladeKind::ImplicitReward | BladeKind::Ensemble) {
            self.beta = section.number("beta")?.unwrap_or(self.beta);
        }
        if self.kind != BladeKind::Fluency {
            self.weight = section.number("weight")?.or(self.weight);
            self.arm = section.choice("arm", "arm", &ARMS)?.unwrap_or(self.arm);
            if self.kind == BladeKind::Discriminator {
                self.spread = section.choice("dispersion", "dispersion", &SPREADS)?.unwrap_or(self.spread);
            } else if self.kind.has_dispersion() {
                self.dispersion = section.choice("dispersion", "dispersion", &DISPERSIONS)?.unwrap_or(self.dispersion);
            }
        }
        if self.kind == BladeKind::DivergenceRatio {
            self.divergence = divergence::read(&mut section, self.divergence)?;
        }
        if self.kind.head().is_some() {
            self.head = located(section.string("head")?).or(self.head.take());
        }
        if self.kind == BladeKind::ImplicitReward || self.kind.head().is_some() {
            self.guided = Guidance::read(&mut section, self.guided)?;
        }
        if let Some(weight) = self.weight.filter(|w| !w.is_finite() || *w < 0.0) {
            return Err(section.fault(format!("weight is {weight}; it must be finite and not negative")));
        }
        self.build().map_err(|error| section.fault(error))?;
        section.finish()
    }

    /// The fields that its μ follows from, by name and as a scheme file has them.
    pub(crate) fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = vec![("kind", format!("{:?}", self.kind.name()))];
        if matches!(self.kind, BladeKind::ImplicitReward | BladeKind::Ensemble) {
            fields.push(("beta", self.beta.to_string()));
        }
        if self.kind == BladeKind::Ensemble {
            fields.push(("adapters", format!("{:?}", self.members)));
        }
        if self.kind == BladeKind::DivergenceRatio {
            fields.push(("divergence", format!("{:?}", self.divergence)));
        }
        if self.kind == BladeKind::ImplicitReward || self.kind.head().is_some() {
            let guided = self.guided.map(|guidance| (guidance.lambda.to_string(), format!("{:?}", guidance.likelihood)));
            let (lambda, likelihood) = guided.unwrap_or_else(|| ("off".to_owned(), "off".to_owned()));
            fields.extend([("guided", lambda), ("likelihood", likelihood)]);
        }
        fields
    }

    /// Its σ of a step, of those that it has in a scheme without ablation; `position` is how many tokens the candidates continue, which
    /// decides how they are dealt out.
    pub(crate) fn ablated(&self, sigma: &[f64], position: u64) -> Vec<f64> {
        let arm = if self.is_certain() { DispersionArm::Zero } else { self.arm };
        let mut sigma = sigma.to_vec();
        arm.apply(&mut sigma, &mut arm_generator(SHUFFLE_SEED, position));
        sigma
    }

    /// Whether an ablation changes its σ.
    pub(crate) fn is_ablated(&self) -> bool {
        self.arm != DispersionArm::Real || (self.kind.has_dispersion() && self.dispersion == Dispersion::ZERO)
    }

    /// Whether its σ is zero by its own doing.
    pub(crate) fn is_certain(&self) -> bool {
        self.arm == DispersionArm::Zero || (self.kind.has_dispersion() && self.dispersion == Dispersion::ZERO)
    }

    /// The adapters it reads with: the name under which the backbone knows each, and its directory where the file gives one.
    pub(super) fn adapters(&self) -> Vec<(String, Option<&PathBuf>)> {
        if self.kind.needs_adapter() {
            return vec![(self.name.clone(), self.adapter.as_ref())];
        }
        self.members.iter().enumerate().map(|(m, path)| (format!("{}/{m}", self.name), Some(path))).collect()
    }

    /// The blade; its adapter or head, if it has one, is known to the backbone by the blade's name.
    ///
    /// # Errors
    /// When β is not positive and finite, λ negative or not finite, or an ensemble has fewer than two
    /// adapters.
    pub fn build(&self) -> Result<Arc<dyn Blade>, ParameterError> {
        let variant = || Policy::Variant(self.name.as_str().into());
        let blade: Arc<dyn Blade> = match self.kind {
            BladeKind::ImplicitReward => Arc::new(ImplicitReward::new(self.name.as_str(), self.beta, self.dispersion)?),
            BladeKind::Ensemble => Arc::new(Ensemble::new(self.adapters().into_iter().map(|(name, _)| name), self.beta)?),
            BladeKind::Likelihood => Arc::new(Likelihood::new(variant(), self.dispersion)?),
            BladeKind::BackboneLikelihood => Arc::new(Likelihood::new(Policy::Backbone, self.dispersion)?),
            BladeKind::DivergenceRatio => Arc::new(DivergenceRatio::new(self.name.as_str(), self.divergence)),
            BladeKind::Discriminator => Arc::new(Discriminator::new(self.name.as_str(), self.spread)?),
            BladeKind::RewardHead => Arc::new(RewardHead::new(self.name.as_str())),
            BladeKind::Ingredient => Arc::new(Ingredient),
            BladeKind::ExpertAmateur => Arc::new(ExpertAmateur),
            BladeKind::Fluency => Arc::new(Fluency),
        };
        let blade: Arc<dyn Blade> = match self.guided {
            Some(Guidance { lambda, likelihood }) => Arc::new(Guided::new(blade, lambda, likelihood)?),
            None => blade,
        };
        Ok(match self.arm {
            DispersionArm::Real => blade,
            arm => Arc::new(Ablated::new(blade, arm, SHUFFLE_SEED)),
        })
    }
}

impl Guidance {
    /// The fields `guided = λ` and `likelihood`, over what is there; the second means nothing without the first, and is then refused.
    fn read(section: &mut Section<'_, '_>, before: Option<Self>) -> Result<Option<Self>, SchemeError> {
        let lambda = section.number("guided")?.or(before.map(|guidance| guidance.lambda));
        let Some(lambda) = lambda else { return Ok(None) };
        let known = before.map(|guidance| guidance.likelihood).unwrap_or_default();
        let likelihood = section.choice("likelihood", "likelihood", &LIKELIHOODS)?.unwrap_or(known);
        Ok(Some(Self { lambda, likelihood }))
    }
}
