//! Schemes as data: each slot of 𝔸 = ⟨π_B, Π_prop, ρ, 𝓑, 𝓝, 𝓐, 𝓢⟩ by name and number.
//!
//! A [`SchemeConfig`] starts as a published operating point under a convention, takes what a TOML file says slot by slot, then what the
//! command line says, and is [built](SchemeConfig::build) on loaded models.

mod aggregator;
mod blades;
mod divergence;
pub(crate) mod document;
mod error;
mod gate;
mod granularity;
mod library;
mod normalizer;
mod proposal;
mod selector;
mod stability;
mod summary;
#[cfg(test)]
mod tests;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use sk_core::{AlignmentSpec, Arm, OperatingPoint, Scheme, Seat, Simplex, SpecHandle};
use sk_models::device::free_memory;
use sk_models::engine::{AdapterRack, SharedVerifier, Verifier};
use sk_models::head::{Head, HeadKind};
use sk_normalize::Propagation;

pub use aggregator::{AggregatorConfig, AggregatorKind, LinkKind};
pub use blades::{BladeConfig, BladeKind, Guidance};
pub use error::SchemeError;
pub use gate::GateConfig;
pub use granularity::{GranularityConfig, Rule};
pub use library::{SHIPPED, Shipped};
pub use normalizer::{NormalizerConfig, NormalizerKind};
pub use proposal::{PriorKind, ProposalConfig, ProposalKind};
pub use selector::{SelectorConfig, SelectorKind};
pub use stability::{Stability, Uncertified};
pub use summary::{Passes, Summary};

use crate::models::Models;
use crate::suggest;
use crate::weights::NamedWeights;
use document::Document;

/// Which behaviour fills in what the paper leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Convention {
    /// The paper's equations and operating point, without the accidents: no dependence on the order of candidates, σ divided by the spread
    /// of μ and not by its own, end-of-text kept, spans capped.
    #[default]
    Sound,
    /// What the published runs did.
    Paper,
}

impl Convention {
    pub(crate) const NAMES: [(&str, Self); 2] = [("sound", Self::Sound), ("paper", Self::Paper)];
}

/// What the blades of a text do to those that are there.
#[derive(Clone, Copy, PartialEq)]
enum Blades {
    /// Take their place.
    Listed,
    /// Change them field by field.
    Amended,
}

/// The slots a scheme file may name.
const SLOTS: [&str; 7] = ["about", "proposal", "granularity", "blades", "normalizer", "aggregator", "selector"];

/// The section of `[blades]` that stands for every adapter without one of its own.
const TEMPLATE: &str = "*";

/// The `[about]` section: what a scheme is called, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct About {
    /// The method.
    pub method: String,
    /// Who published it.
    pub source: String,
}

impl About {
    fn read(&mut self, mut section: document::Section<'_, '_>) -> Result<(), SchemeError> {
        self.method = section.string("method")?.unwrap_or_default();
        self.source = section.string("source")?.unwrap_or_default();
        section.finish()
    }
}

/// A scheme, slot by slot. π_B is the model it is built on.
#[derive(Debug, Clone, PartialEq)]
pub struct SchemeConfig {
    /// What it is called.
    pub about: About,
    /// Π_prop.
    pub proposal: ProposalConfig,
    /// ρ.
    pub granularity: GranularityConfig,
    /// 𝓑, in the order of their weights.
    pub blades: Vec<BladeConfig>,
    /// How adapters that no blade names are seated; `None` where a file lists its blades and no template is among them.
    pub template: Option<BladeConfig>,
    /// β of implicit rewards that do not say.
    pub beta: f64,
    /// Weights in place of those of the blades.
    pub weights: Option<NamedWeights>,
    /// 𝓝.
    pub normalizer: NormalizerConfig,
    /// 𝓐.
    pub aggregator: AggregatorConfig,
    /// 𝓢.
    pub selector: SelectorConfig,
}

impl SchemeConfig {
    /// The reference instantiation at an operating point.
    pub fn reference(convention: Convention, point: &OperatingPoint) -> Self {
        Self {
            about: About::default(),
            proposal: ProposalConfig::published(convention, point.candidates),
            granularity: GranularityConfig::published(convention),
            blades: vec![BladeConfig::fluency()],
            template: Some(BladeConfig::implicit_reward(TEMPLATE, point.beta)),
            beta: point.beta,
            weights: None,
            normalizer: NormalizerConfig::published(convention),
            aggregator: AggregatorConfig::published(convention, point),
            selector: SelectorConfig::published(convention, point),
        }
    }

    /// Takes what a TOML file says; slots and fields it leaves out stay as they are.
    ///
    /// # Errors
    /// When it cannot be read, or names a slot, kind or field that does not exist, or a value out of range: with the line.
    pub fn read(&mut self, path: &Path) -> Result<(), SchemeError> {
        let text = std::fs::read_to_string(path).map_err(|source| SchemeError::Read { path: path.to_owned(), source })?;
        let directory = path.parent().unwrap_or(Path::new(""));
        self.overlay(&path.display().to_string(), &text, directory)
    }

    /// [`read`](Self::read) from a text; `name` stands for it in errors, and paths in it are relative to `directory`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn overlay(&mut self, name: &str, text: &str, directory: &Path) -> Result<(), SchemeError> {
        self.take(name, text, directory, Blades::Listed)
    }

    /// [`overlay`](Self::overlay), but blades that the text names are changed where they stand, and the others stay. One that has no section
    /// of its own is seated after the template.
    ///
    /// # Errors
    /// As [`read`](Self::read), or when the template itself is named and there is none.
    pub fn amend(&mut self, name: &str, text: &str) -> Result<(), SchemeError> {
        self.take(name, text, Path::new(""), Blades::Amended)
    }

    fn take(&mut self, name: &str, text: &str, directory: &Path, mode: Blades) -> Result<(), SchemeError> {
        let document = if mode == Blades::Amended { Document::of_field(name, text) } else { Document::new(name, text) };
        for section in document.sections("slot")? {
            match section.name() {
                "about" => self.about.read(section)?,
                "proposal" => self.proposal.read(section)?,
                "granularity" => self.granularity.read(section)?,
                "normalizer" => self.normalizer.read(section)?,
                "aggregator" => self.aggregator.read(section)?,
                "selector" => self.selector.read(section)?,
                "blades" if mode == Blades::Amended => {
                    for section in section.sections("blade")? {
                        self.amend_blade(section, directory)?;
                    }
                }
                "blades" => {
                    let beta = self.beta;
                    let blades = section.sections("blade")?.into_iter().map(|s| BladeConfig::read(s, beta, directory));
                    let (templates, blades): (Vec<_>, Vec<_>) =
                        blades.collect::<Result<Vec<_>, _>>()?.into_iter().partition(|blade| blade.name == TEMPLATE);
                    (self.template, self.blades) = (templates.into_iter().next(), blades);
                }
                _ => return Err(section.refuse("slot", &SLOTS)),
            }
        }
        let mut fluency = self.blades.iter().filter(|blade| blade.kind == BladeKind::Fluency);
        match (fluency.next(), fluency.next()) {
            (Some(first), Some(second)) => {
                Err(SchemeError::TwoFluencyBlades { first: first.name.clone(), second: second.name.clone() })
            }
            _ => Ok(()),
        }
    }

    fn amend_blade(&mut self, section: document::Section<'_, '_>, directory: &Path) -> Result<(), SchemeError> {
        if section.name() == TEMPLATE {
            let Some(template) = &mut self.template else {
                return Err(section.fault("the scheme lists its blades, and has none for all others"));
            };
            return template.update(section, directory);
        }
        let name = section.name().to_owned();
        match (self.blades.iter_mut().find(|blade| blade.name == name), &self.template) {
            (Some(blade), _) => blade.update(section, directory),
            (None, Some(template)) => {
                let mut blade = BladeConfig { name, ..template.clone() };
                blade.update(section, directory)?;
                self.blades.push(blade);
                Ok(())
            }
            (None, None) => {
                let seated: Vec<&str> = self.blades.iter().map(|blade| blade.name.as_str()).collect();
                Err(section.refuse("blade", &seated))
            }
        }
    }

    /// Seats the adapter `name` after the template, or as an implicit reward where there is none, unless a blade of that name is there
    /// already.
    pub fn seat(&mut self, name: &str) {
        if !self.blades.iter().any(|blade| blade.name == name) {
            let template = self.template.as_ref().filter(|template| template.kind.head().is_none());
            let seated = template.map(|template| BladeConfig { name: name.to_owned(), ..template.clone() });
            self.blades.push(seated.unwrap_or_else(|| BladeConfig::implicit_reward(name, self.beta)));
        }
    }

    /// Seats the head `name` after the template where that reads heads of its kind, or as what its kind says, unless a blade of that name is
    /// there already.
    pub fn seat_head(&mut self, name: &str, kind: HeadKind) {
        if !self.blades.iter().any(|blade| blade.name == name) {
            let template = self.template.as_ref().filter(|template| template.kind.head() == Some(kind));
            let seated = template.map(|template| BladeConfig { name: name.to_owned(), ..template.clone() });
            self.blades.push(seated.unwrap_or_else(|| BladeConfig::of_head(name, kind)));
        }
    }

    /// The adapters that blades read with: the name the backbone knows each by, which is that of its blade, or followed by a number in an
    /// ensemble; and the directory where the file gives one.
    pub fn adapters(&self) -> impl Iterator<Item = (String, Option<&PathBuf>)> {
        self.blades.iter().flat_map(BladeConfig::adapters)
    }

    /// Ω: the seated blades with their weights, or with equal ones where none is given.
    ///
    /// # Errors
    /// When there is no blade, β is out of range, a weight is not one, weights, correlations or gates name no blade, or all weights are zero.
    pub fn spec(&self) -> Result<AlignmentSpec, SchemeError> {
        let weighed: Vec<&BladeConfig> = self.blades.iter().filter(|blade| blade.kind != BladeKind::Fluency).collect();
        if weighed.is_empty() {
            return Err(SchemeError::NoBlade);
        }
        if let Propagation::Correlated(correlation) = &self.normalizer.propagation {
            let seated: Vec<&str> = weighed.iter().map(|blade| blade.name.as_str()).collect();
            if let Some(name) = correlation.names().find(|name| !seated.contains(name)) {
                let hint = suggest::hint(name, &seated);
                let reason = format!("correlations name blade \"{name}\", which is not seated; {hint}");
                return Err(SchemeError::Parameter { slot: "normalizer", reason });
            }
        }
        let unseated = self.selector.gated_blades().find(|name| !weighed.iter().any(|blade| blade.name == *name));
        if let Some(name) = unseated {
            let seated = weighed.iter().map(|blade| blade.name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(SchemeError::Gate { name: name.to_owned(), seated });
        }
        let seat = |blade: &&BladeConfig| {
            blade.build().map(|built| Seat::new(blade.name.as_str(), built)).map_err(|e| parameter("blades", &e))
        };
        let seats: Vec<Seat> = weighed.iter().map(seat).collect::<Result<_, _>>()?;
        let weights = if weighed.iter().any(|blade| blade.weight.is_some()) {
            // A blade without a weight beside blades with one counts for nothing, as on the command line.
            Simplex::normalized(weighed.iter().map(|blade| blade.weight.unwrap_or(0.0)).collect::<Vec<_>>())
        } else {
            Simplex::uniform(seats.len())
        };
        let spec = AlignmentSpec::new(seats, weights.map_err(sk_core::SpecError::from)?)?;
        Ok(match &self.weights {
            Some(weights) => weights.apply(&spec)?,
            None => spec,
        })
    }

    /// The scheme on `models`, with the heads that its blades read, and the rack of its backbone's adapters, which is empty.
    ///
    /// # Errors
    /// When a parameter is out of range, or no blade is seated.
    pub fn build(&self, models: &Models, heads: &[(String, Head)]) -> Result<(Scheme, AdapterRack), SchemeError> {
        let spec = SpecHandle::new(self.spec()?);
        if let Some(model) = self.proposal.drafting(models) {
            let span = self.granularity.span_tokens.map_or(usize::MAX, NonZeroUsize::get);
            models.check_candidates(model, self.proposal.candidates, span, free_memory())?;
        }
        let verifier = Verifier::new(Arc::clone(&models.backbone));
        let adapters = verifier.adapters();
        heads.iter().for_each(|(name, head)| verifier.heads().insert(name.as_str(), head.clone()));
        let backbone = SharedVerifier::new(verifier);
        let arm = self.arm_of("", spec.clone())?;
        let scheme = Scheme {
            proposal: self.proposal.build(models, &backbone, adapters.clone(), spec)?,
            backbone: Box::new(backbone),
            granularity: self.granularity.build(&models.token_bytes()),
            arm,
            others: Vec::new(),
        };
        Ok((scheme, adapters))
    }

    /// The scheme as an arm of another, which makes and reads the candidates.
    ///
    /// # Errors
    /// When a parameter is out of range, or no blade is seated.
    pub fn arm(&self, name: &str) -> Result<Arm, SchemeError> {
        self.arm_of(name, SpecHandle::new(self.spec()?))
    }

    fn arm_of(&self, name: &str, spec: SpecHandle) -> Result<Arm, SchemeError> {
        let fluency = self.blades.iter().find(|blade| blade.kind == BladeKind::Fluency);
        Ok(Arm {
            name: name.into(),
            spec,
            fluency: fluency.map(BladeConfig::build).transpose().map_err(|e| parameter("blades", &e))?,
            normalizer: self.normalizer.build(),
            aggregator: self.aggregator.build().map_err(|e| parameter("aggregator", &e))?,
            selector: self.selector.build().map_err(|e| parameter("selector", &e))?,
        })
    }

    /// Forgets the weights in place of those of the blades if they name none of them: they are for other schemes.
    pub(crate) fn forget_foreign_weights(&mut self) {
        let named = |name: &str| self.blades.iter().any(|blade| blade.name == name && blade.kind != BladeKind::Fluency);
        if self.weights.as_ref().is_some_and(|weights| !weights.names().any(named)) {
            self.weights = None;
        }
    }

    /// Checks every number without a model at hand.
    ///
    /// # Errors
    /// Names the slot and the parameter out of range.
    pub fn check(&self) -> Result<(), SchemeError> {
        self.proposal.check()?;
        if !self.proposal.kind.draws() && self.granularity.rule != Rule::Token {
            let reason = format!(
                "is \"{}\", but the proposal \"vocabulary\" makes candidates of one token; use \"token\"",
                self.granularity.rule.name()
            );
            return Err(SchemeError::Parameter { slot: "granularity", reason });
        }
        for blade in self.blades.iter().chain(&self.template) {
            blade.build().map_err(|e| parameter("blades", &e))?;
        }
        BladeConfig::implicit_reward("", self.beta).build().map_err(|e| parameter("blades", &e))?;
        self.aggregator.build().map_err(|e| parameter("aggregator", &e))?;
        self.selector.build().map_err(|e| parameter("selector", &e))?;
        Ok(())
    }
}

fn parameter(slot: &'static str, error: &sk_core::ParameterError) -> SchemeError {
    SchemeError::Parameter { slot, reason: error.to_string() }
}
