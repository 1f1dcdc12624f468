//! A scheme as data, slot by slot.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sk_core::{
    AlignmentSpec, Arm, Drafting, Engine, Fallback, Generation, HeadKind, OperatingPoint, Operators, Scheme, Seat, Simplex,
    SpecError, SpecHandle,
};
use toml::Table;

use crate::choices::Convention;
use crate::weights::NamedWeights;
use crate::{
    AggregatorSpec, BladeRule, BladeSpec, FallbackSpec, GateOn, GranularitySpec, NormalizerSpec, ProposalSpec, SchemeError,
    SearchSpec, SelectorSpec, WeightingSpec, suggest,
};

/// The section of `[blades]` that serves as a template for adapters without a section.
pub(crate) const TEMPLATE: &str = "*";

/// The `[about]` section: the name of the method, and its source. It changes nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct About {
    /// The method.
    pub method: String,
    /// Who published it.
    pub source: String,
}

/// The defaults for fields that a scheme file leaves out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Base {
    /// The convention.
    pub convention: Convention,
    /// The operating point.
    pub point: OperatingPoint,
    /// The drafter temperature, which is not part of an operating point.
    pub draft_temperature: f64,
}

impl Base {
    /// Creates a base from an operating point and a convention.
    pub fn new(convention: Convention, point: &OperatingPoint) -> Self {
        Self { convention, point: *point, draft_temperature: 1.0 }
    }
}

impl Default for Base {
    /// Returns the convention `sound` at the published point [`OperatingPoint::HHH`], T = 8. The
    /// program's default point is [`OperatingPoint::RESPONSIVE`].
    fn default() -> Self {
        Self::new(Convention::Sound, &OperatingPoint::HHH)
    }
}

/// A scheme, slot by slot. Its backbone π_B is that of the [`Engine`] on which it is
/// [built](Self::build).
///
/// # Panics
/// `check`, `summary` and methods that return a part as it is in a scheme file panic if a count of
/// that part is above `i64::MAX`, or a path is not UTF-8. No scheme that is read has such values.
#[derive(Debug, Clone, PartialEq)]
pub struct SchemeSpec {
    /// The name and source of the method.
    pub about: About,
    /// The defaults for fields that no file sets.
    pub base: Base,
    /// Weights that override those of the blades.
    pub weights: Option<NamedWeights>,
    /// Π_prop.
    pub proposal: ProposalSpec,
    /// ρ.
    pub granularity: GranularitySpec,
    /// How many of the drafted tokens are scored.
    pub search: SearchSpec,
    /// What drafts if no candidate is good enough.
    pub fallback: FallbackSpec,
    /// 𝓑, in the order of the weight vector.
    pub blades: Vec<BladeSpec>,
    /// The template for adapters that no blade names; `None` if a file lists its blades without a
    /// template.
    pub template: Option<BladeSpec>,
    /// The name of the fluency blade b₀, if it is seated.
    pub fluency: Option<String>,
    /// The rule for **w**.
    pub weighting: WeightingSpec,
    /// 𝓝.
    pub normalizer: NormalizerSpec,
    /// 𝓐.
    pub aggregator: AggregatorSpec,
    /// 𝓢.
    pub selector: SelectorSpec,
}

impl SchemeSpec {
    /// Returns a slot as a table; `None` for sections with several parts.
    pub(crate) fn section(&self, name: &str) -> Option<Table> {
        match name {
            "proposal" => Some(table_of(&self.proposal)),
            "granularity" => Some(table_of(&self.granularity)),
            "search" => Some(table_of(&self.search)),
            "fallback" => Some(table_of(&self.fallback)),
            "weighting" => Some(table_of(&self.weighting)),
            "normalizer" => Some(table_of(&self.normalizer)),
            "aggregator" => Some(table_of(&self.aggregator)),
            "selector" => Some(table_of(&self.selector)),
            _ => None,
        }
    }

    /// Sets β in all blades that have one, and in those seated later.
    ///
    /// # Errors
    /// If it is not positive and finite. The scheme is then unchanged.
    pub(crate) fn set_beta(&mut self, beta: f64) -> Result<(), SchemeError> {
        BladeSpec::implicit_reward("", beta).build().map_err(|error| parameter("blades", error))?;
        self.base.point.beta = beta;
        self.blades.iter_mut().chain(&mut self.template).filter_map(BladeSpec::beta_mut).for_each(|own| *own = beta);
        Ok(())
    }

    /// Seats the adapter `name`, unless a blade of that name exists. The blade is a copy of the
    /// template, or an implicit reward if there is none or it uses a head.
    pub fn seat(&mut self, name: &str) {
        self.seat_plain(BladeSpec::implicit_reward(name, self.base.point.beta));
    }

    /// Seats the head `name`, unless a blade of that name exists. The blade is a copy of the
    /// template if that uses the same kind of head, or else the default for the head's kind.
    pub fn seat_head(&mut self, name: &str, kind: HeadKind) {
        self.seat_plain(BladeSpec::of_head(name, kind));
    }

    fn seat_plain(&mut self, plain: BladeSpec) {
        if !self.is_named(&plain.name) {
            self.blades.push(self.templated(plain));
        }
    }

    /// Returns a copy of the template if it uses the same kind of head as `plain` or none, or else
    /// `plain`.
    fn templated(&self, plain: BladeSpec) -> BladeSpec {
        let template = self.template.clone().filter(|template| template.rule.head_kind() == plain.rule.head_kind());
        let name = plain.name.clone();
        BladeSpec { name, ..template.unwrap_or(plain) }
    }

    /// Seats an instruction blade, unless it exists already. It takes its numbers from the template
    /// if that is an implicit reward.
    ///
    /// # Errors
    /// If another blade of this name exists, or if the template is of another kind.
    pub fn seat_instruction(&mut self, name: &str, instruction: &str) -> Result<(), SchemeError> {
        if self.instructions().any(|(lane, text)| lane == name && text == instruction) {
            return Ok(());
        }
        if self.is_named(name) {
            return Err(SchemeError::GivenTwice { option: "blade", name: name.to_owned() });
        }
        self.blades.push(self.instruction(name, instruction)?);
        Ok(())
    }

    fn instruction(&self, name: &str, instruction: &str) -> Result<BladeSpec, SchemeError> {
        let plain = BladeSpec::implicit_reward(name, self.base.point.beta);
        let template = self.template.as_ref().unwrap_or(&plain);
        template.instructed(name, instruction).ok_or_else(|| {
            let kind = template.rule.kind();
            let reason = format!("\"{name}\" is an instruction, and the blades of this scheme are of kind \"{kind}\"");
            parameter("blades", reason)
        })
    }

    /// Seats the adapter `name` in place of the blade `old`, and keeps the settings of `old`. If
    /// `old` is of a kind without an adapter of its own, the blade is that of
    /// [`seat`](Self::seat).
    ///
    /// # Errors
    /// If `old` is not seated, or another blade of this name exists.
    pub fn swap(&mut self, old: &str, name: &str, adapter: &Path) -> Result<(), SchemeError> {
        let place = self.place_for(old, name)?;
        let kept = self.blades[place].adapted(name, adapter);
        let blade = kept.unwrap_or_else(|| self.templated(BladeSpec::implicit_reward(name, self.base.point.beta)));
        self.blades[place] = blade;
        Ok(())
    }

    /// Seats an instruction in place of the blade `old`, and keeps the settings of `old`. If `old`
    /// is neither an implicit reward nor an instruction, the blade is that of
    /// [`seat_instruction`](Self::seat_instruction).
    ///
    /// # Errors
    /// If `old` is not seated, if another blade of this name exists, or if the template is of
    /// another kind.
    pub fn swap_instruction(&mut self, old: &str, name: &str, instruction: &str) -> Result<(), SchemeError> {
        let place = self.place_for(old, name)?;
        let kept = self.blades[place].instructed(name, instruction);
        self.blades[place] = kept.map_or_else(|| self.instruction(name, instruction), Ok)?;
        Ok(())
    }

    /// Returns the place of the blade `old`, if `name` can take it.
    fn place_for(&self, old: &str, name: &str) -> Result<usize, SpecError> {
        let unknown = || SpecError::Unknown { name: old.to_owned(), seated: self.seated().join(", ") };
        let place = self.blades.iter().position(|blade| blade.name == old).ok_or_else(unknown)?;
        if name != old && self.is_named(name) {
            return Err(SpecError::Duplicate { name: name.to_owned() });
        }
        Ok(place)
    }

    /// Returns whether a blade of this name exists, with or without a weight.
    pub fn is_named(&self, name: &str) -> bool {
        self.blades.iter().any(|blade| blade.name == name) || self.fluency.as_deref() == Some(name)
    }

    /// Returns the adapters that blades use: the name by which the backbone knows each, and the
    /// directory if the file gives one. The name is that of the blade, followed by a number in an
    /// ensemble.
    pub fn adapters(&self) -> impl Iterator<Item = (String, Option<&PathBuf>)> {
        self.blades.iter().flat_map(BladeSpec::adapters)
    }

    /// Returns the lanes that read another model than the backbone: the name of each, and the
    /// model, "drafter" or a directory.
    pub fn readers(&self) -> impl Iterator<Item = (String, &str)> {
        self.blades.iter().flat_map(BladeSpec::readers)
    }

    /// Returns the instructions that blades read under: the lane name and the text of each.
    pub fn instructions(&self) -> impl Iterator<Item = (String, &str)> {
        self.blades.iter().flat_map(BladeSpec::instructions)
    }

    /// Returns the number of contexts that are kept for scoring and for drafting on the backbone:
    /// its own, one for each lane of a blade, one if it drafts, and one if it is the fallback.
    pub fn lanes(&self) -> usize {
        let lanes: BTreeSet<String> = self.blades.iter().flat_map(BladeSpec::lanes).collect();
        let drafts = matches!(self.proposal, ProposalSpec::Backbone(_) | ProposalSpec::Soup(_));
        let falls_back = self.fallback != FallbackSpec::None;
        lanes.len() + 1 + usize::from(drafts) + usize::from(falls_back)
    }

    /// Returns Ω of a scheme with which a generation begins: a scheme of heads has a head, and the
    /// correlations name seated blades. Later edits may unseat these blades.
    ///
    /// # Errors
    /// If the template is a blade with a head and no blade with such a head is seated, if
    /// correlations name a missing blade, or as [`alignment`](Self::alignment).
    pub fn check_start(&self) -> Result<AlignmentSpec, SchemeError> {
        self.check_correlations()?;
        match self.template.as_ref().and_then(|template| template.rule.head_kind()) {
            Some(kind) if self.blades.iter().all(|blade| blade.rule.head_kind() != Some(kind)) => {
                Err(SchemeError::NoHead { kind: BladeRule::kind_of_head(kind) })
            }
            _ => self.alignment(),
        }
    }

    /// Checks that the correlations of the normaliser name seated blades.
    ///
    /// # Errors
    /// If they name a missing blade.
    pub fn check_correlations(&self) -> Result<(), SchemeError> {
        let seated = self.seated();
        let Some(name) = self.normalizer.correlated().find(|name| !seated.contains(name)) else { return Ok(()) };
        let hint = suggest::hint(name, &seated);
        Err(parameter("normalizer", format!("correlations name blade \"{name}\", which is not seated; {hint}")))
    }

    /// Checks that no gate is on the blade `name`, so that it can be unseated.
    ///
    /// # Errors
    /// If a gate is on the blade.
    pub fn check_unseat(&self, name: &str) -> Result<(), SchemeError> {
        match self.selector.thresholds().find(|(gated, _)| *gated == name) {
            Some(_) => Err(SchemeError::Gated { name: name.to_owned() }),
            None => Ok(()),
        }
    }

    /// Returns the names of the blades.
    fn seated(&self) -> Vec<&str> {
        self.blades.iter().map(|blade| blade.name.as_str()).collect()
    }

    /// Returns Ω: the seated blades with their weights, or with equal weights if none is given.
    ///
    /// # Errors
    /// If there is no blade, if a number is out of range, if weights or gates name a missing blade,
    /// if two blades would read one lane, or if all weights are zero.
    pub fn alignment(&self) -> Result<AlignmentSpec, SchemeError> {
        if self.blades.is_empty() {
            return Err(SchemeError::NoBlade);
        }
        let seated = self.seated();
        if let Some((name, _)) = self.selector.thresholds().find(|(name, _)| !seated.contains(name)) {
            return Err(SchemeError::Gate { name: name.to_owned(), seated: seated.join(", ") });
        }
        let on_fluency = self.selector.gates.iter().find(|gate| gate.on == GateOn::Fluency);
        if let (Some(gate), None) = (on_fluency, &self.fluency) {
            return Err(SchemeError::FluencyGate { name: gate.name.clone() });
        }
        let seat = |blade: &BladeSpec| {
            blade.build().map(|built| Seat::new(blade.name.as_str(), built)).map_err(|error| parameter("blades", error))
        };
        let seats: Vec<Seat> = self.blades.iter().map(seat).collect::<Result<_, _>>()?;
        let weights = if self.blades.iter().any(|blade| blade.weight.is_some()) {
            // As on the command line, a blade without a weight gets zero if another blade has a
            // weight.
            Simplex::normalized(self.blades.iter().map(|blade| blade.weight.unwrap_or(0.0)).collect::<Vec<_>>())
        } else {
            Simplex::uniform(seats.len())
        };
        let spec = AlignmentSpec::new(seats, weights.map_err(SpecError::from)?)?;
        let mut readers = BTreeMap::new();
        for blade in &self.blades {
            for lane in blade.lanes() {
                if let Some(first) = readers.insert(lane.clone(), &blade.name) {
                    return Err(SchemeError::SharedLane { first: first.clone(), second: blade.name.clone(), lane });
                }
            }
        }
        Ok(match &self.weights {
            Some(weights) => weights.apply(&spec)?,
            None => spec,
        })
    }

    /// Builds the scheme on an engine. Call [`check_start`](Self::check_start) first, if the scheme
    /// starts here.
    ///
    /// # Errors
    /// As [`check`](Self::check) and [`alignment`](Self::alignment), or if the engine returns an
    /// error.
    pub fn build(&self, engine: &dyn Engine) -> Result<Scheme, SchemeError> {
        self.check()?;
        let spec = SpecHandle::new(self.alignment()?);
        let drafting = self.proposal.drafting(self.granularity.span_tokens()).map_err(|reason| parameter("proposal", reason))?;
        let start = |drafting: &Drafting| engine.start(drafting, &spec).map_err(SchemeError::Engine);
        let Generation { backbone, proposal } = start(&drafting)?;
        let fallback = self.fallback.drafting(&drafting).map(|(drafting, threshold)| {
            let Generation { proposal, .. } = start(&drafting)?;
            Ok::<_, SchemeError>(Fallback { proposal, threshold })
        });
        Ok(Scheme {
            proposal,
            backbone,
            granularity: self.granularity.build(&engine.token_bytes()),
            search: self.search.build().map_err(|error| parameter("search", error))?,
            fallback: fallback.transpose()?,
            arm: self.arm_of("", spec.clone())?,
            others: Vec::new(),
        })
    }

    /// Builds the scheme as an arm of another scheme, whose candidates and readings it uses.
    ///
    /// # Errors
    /// As [`alignment`](Self::alignment) and [`operators`](Self::operators).
    pub fn arm(&self, name: &str) -> Result<Arm, SchemeError> {
        self.arm_of(name, SpecHandle::new(self.alignment()?))
    }

    fn arm_of(&self, name: &str, spec: SpecHandle) -> Result<Arm, SchemeError> {
        Ok(Arm {
            name: name.into(),
            spec,
            fluency: self.fluency.as_ref().map(|_| Arc::new(sk_blades::Fluency) as _),
            operators: self.operators()?,
        })
    }

    /// Builds the rule for **w** and ⟨𝓝, 𝓐, 𝓢⟩.
    ///
    /// # Errors
    /// If a number is out of range, or the rule for **w** has multipliers and no blade has a gate.
    pub fn operators(&self) -> Result<Operators, SchemeError> {
        Ok(Operators {
            weighting: self.weighting.build(&self.selector).map_err(|reason| parameter("weighting", reason))?,
            normalizer: self.normalizer.build().map_err(|reason| parameter("normalizer", reason))?,
            aggregator: self.aggregator.build().map_err(|error| parameter("aggregator", error))?,
            selector: self.selector.build().map_err(|error| parameter("selector", error))?,
        })
    }

    /// Drops the override weights if they name none of the scheme's blades, since they then belong
    /// to another scheme.
    pub fn forget_foreign_weights(&mut self) {
        let weights = self.weights.take();
        self.weights = weights.filter(|weights| weights.names().any(|name| self.seated().contains(&name)));
    }

    /// Checks every number, and that the slots are compatible.
    ///
    /// # Errors
    /// If a number is out of range, or if a slot does not fit another. The error names the slot.
    pub fn check(&self) -> Result<(), SchemeError> {
        self.proposal.drafting(None).map_err(|reason| parameter("proposal", reason))?;
        self.granularity.check().map_err(|reason| parameter("granularity", reason))?;
        if self.proposal.draft().is_none() && self.granularity != GranularitySpec::Token {
            let kind = text_of(&self.granularity, "kind");
            let reason = format!("is \"{kind}\", but the proposal \"vocabulary\" makes candidates of one token; use \"token\"");
            return Err(parameter("granularity", reason));
        }
        self.search.build().map_err(|error| parameter("search", error))?;
        self.fallback.check().map_err(|error| parameter("fallback", error))?;
        for (slot, kind, is_set) in [
            ("search", text_of(&self.search, "kind"), self.search != SearchSpec::Full),
            ("fallback", text_of(&self.fallback, "kind"), self.fallback != FallbackSpec::None),
        ] {
            if is_set && self.proposal.draft().is_none() {
                let reason = format!("kind \"{kind}\" needs a proposal that drafts spans, and this one is \"vocabulary\"");
                return Err(parameter(slot, reason));
            }
        }
        for blade in self.blades.iter().chain(&self.template) {
            blade.build().map_err(|error| parameter("blades", error))?;
        }
        BladeSpec::implicit_reward("", self.base.point.beta).build().map_err(|error| parameter("blades", error))?;
        self.operators()?;
        if let AggregatorSpec::DivergenceMixture(mixture) = &self.aggregator {
            // The mixture inverts the derivative that the blades apply.
            for BladeSpec { name, rule, .. } in self.blades.iter().chain(&self.template) {
                if let BladeRule::DivergenceRatio { divergence, .. } = rule
                    && divergence != mixture
                {
                    let reason = format!(
                        "the divergence is {mixture}, but that of blade \"{name}\" is {divergence}; give both the same one"
                    );
                    return Err(parameter("aggregator", reason));
                }
            }
        }
        Ok(())
    }
}

/// Converts a part of a scheme into a TOML table.
pub(crate) fn table_of(part: &impl Serialize) -> Table {
    Table::try_from(part).expect("the parts of a scheme are tables")
}

/// Returns a text field of a part as a scheme file has it, such as its `kind`.
pub(crate) fn text_of(part: &impl Serialize, field: &str) -> String {
    table_of(part)[field].as_str().unwrap_or_default().to_owned()
}

pub(crate) fn parameter(slot: &'static str, reason: impl Display) -> SchemeError {
    SchemeError::Parameter { slot, reason: reason.to_string() }
}
