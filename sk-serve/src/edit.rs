//! Edits of the Ω of an answer in progress.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde_json::{Map, Value};
use sk_scheme::{BladeRule, BladeSpec, NamedWeights, SchemeError, SchemeSpec};

use crate::ApiError;
use crate::live::{Live, lock};
use crate::request::{Fields, instruction_of};
use crate::service::Service;

/// The source of a blade whose adapter the server has loaded under the blade's name.
const ADAPTER: &str = "adapter";

/// An edit of Ω. It takes effect at the next step, completely or not at all.
#[derive(Debug)]
pub(crate) struct Edit {
    /// Weights, by blade name.
    weights: Option<BTreeMap<String, f64>>,
    /// Blades to seat ([`ADAPTER`] or `instruction:TEXT`) or to unseat (null), by name.
    blades: BTreeMap<String, Option<String>>,
}

impl Edit {
    /// Parses the body of an edit.
    pub(crate) fn read(body: Map<String, Value>) -> Result<Self, ApiError> {
        let mut fields = Fields::new("", body);
        let edit = Self { weights: fields.take("weights")?, blades: fields.take("blades")?.unwrap_or_default() };
        fields.end()?;
        Ok(edit)
    }
}

impl Live {
    /// Edits Ω.
    pub(crate) fn edit(&self, edit: Edit, service: &Service) -> Result<(), ApiError> {
        // Before any work is done for them.
        service.check_blades("blades", edit.blades.values().flatten().count())?;
        let mut seats = lock(&self.seats);
        let mut config = seats.config.clone();
        // The initial weights may name blades that are no longer seated.
        config.weights = None;
        let (mut added, mut adapters) = (Vec::new(), Vec::new());
        for (name, source) in edit.blades.iter().filter_map(|(name, source)| Some((name.as_str(), source.as_deref()?))) {
            // A blade that is seated with this source keeps its seat.
            if !config.blades.iter().any(|blade| blade.name == name) {
                added.push(name);
            }
            if source == ADAPTER {
                adapters.push(name);
            }
            self.seat_blade(&mut config, &seats.first, (name, source), service)?;
        }
        let removed: Vec<&str> =
            edit.blades.iter().filter(|(_, source)| source.is_none()).map(|(name, _)| name.as_str()).collect();
        removed.iter().try_for_each(|name| config.check_unseat(name)).map_err(wrong_blade)?;
        let built = config.alignment().map_err(wrong_blade)?;
        // An adapter may take the seat back that the scheme gave it.
        let is_own = |name: &&str| adapters.contains(name) && seats.first.iter().any(|blade| blade.name == **name);
        if config.template.is_none() && !added.iter().all(is_own) {
            return Err(ApiError::fixed_blades("blades"));
        }
        service.check_blades("blades", built.seats().len().saturating_sub(removed.len()))?;
        let mut openings = Vec::new();
        for (lane, text) in config.instructions().filter(|(lane, _)| added.iter().any(|name| belongs(lane, name))) {
            let opening = service.instruction(&seats.asked, text).map_err(wrong_blade)?;
            if seats.reach + opening.extra() > service.parts.host.context_limit() {
                let message =
                    format!("the instruction of \"{lane}\" leaves no room for the tokens that were asked for; shorten it");
                return Err(ApiError::invalid("blades", message));
            }
            if self.instructed.get(&lane).is_some_and(|known| *known != opening) {
                return Err(taken_name(&lane, "another instruction"));
            }
            openings.push((lane, opening));
        }
        // An adapter may be unloaded at any time.
        let taken = service.parts.rack.only(adapters.iter().map(|name| (*name).to_owned()));
        if let Some(name) = adapters.iter().find(|name| !taken.contains(name)) {
            return Err(ApiError::no_adapter("blades", name, &service.adapters()));
        }
        if let Some(name) = adapters.iter().find(|name| self.adapters.differs(name, &taken)) {
            return Err(taken_name(name, "another adapter"));
        }
        let read = |name: &str| {
            let extra = openings.iter().filter(|(lane, _)| belongs(lane, name)).map(|(_, opening)| opening.extra());
            seats.reach + extra.max().unwrap_or(0)
        };
        let reserve = |name: &&str| {
            let own = taken.only([(*name).to_owned()]);
            Ok(((*name).to_owned(), service.reserve(&config, &own, name, read(name), seats.new)?))
        };
        let reserved = added.iter().map(reserve).collect::<Result<Vec<_>, ApiError>>()?;
        let weights: Option<NamedWeights> = edit.weights.map(|weights| weights.into_iter().collect());
        self.spec.edit(|spec| -> Result<_, ApiError> {
            let news = built.seats().iter().filter(|seat| added.contains(&&**seat.name()));
            let seated = news.cloned().try_fold(spec.clone(), |spec, seat| spec.seat(seat, 0.0));
            let mut spec = seated.map_err(wrong_blade)?;
            if let Some(weights) = &weights {
                spec = weights.apply(&spec).map_err(|error| ApiError::invalid("weights", error.to_string()))?;
            }
            let left = removed.iter().try_fold(spec, |spec, name| spec.unseat(name));
            let spec = left.map_err(wrong_blade)?;
            // No step sees the new seats without what they read, or what a refused edit would have
            // read.
            openings.into_iter().for_each(|(lane, opening)| self.instructed.insert(lane, opening));
            adapters.iter().for_each(|name| self.adapters.take(name, &taken));
            Ok(spec)
        })?;
        config.blades.retain(|blade| !removed.contains(&blade.name.as_str()));
        seats.config = config;
        seats.reserved.retain(|name, _| !removed.contains(&name.as_str()));
        seats.reserved.extend(reserved);
        metrics::counter!("swiss_knife_edits_total").increment(1);
        Ok(())
    }

    /// Seats a blade of an edit in `config`. `first` are the blades at the start of the answer.
    fn seat_blade(
        &self,
        config: &mut SchemeSpec,
        first: &[BladeSpec],
        (name, source): (&str, &str),
        service: &Service,
    ) -> Result<(), ApiError> {
        if source == ADAPTER {
            // A lane with both an adapter and an instruction is read under both, which only a blade
            // of the scheme can ask for.
            let asks_for_both =
                |blade: &BladeSpec| blade.name == name && matches!(blade.rule, BladeRule::Instruction { adapter: Some(_), .. });
            if self.instructed.get(name).is_some() && !first.iter().any(asks_for_both) {
                return Err(taken_name(name, "an instruction"));
            }
            return seat_adapter(config, first, name, service);
        }
        if self.adapters.contains(name) {
            return Err(taken_name(name, "an adapter"));
        }
        config.seat_instruction(name, instruction_of("blades", name, source)?).map_err(|error| match error {
            SchemeError::GivenTwice { .. } => taken_name(name, "another blade"),
            error => wrong_blade(error),
        })
    }
}

/// Returns the error for a name under which the answer reads something else, or has read it. A step
/// in progress may still read it.
fn taken_name(name: &str, other: &str) -> ApiError {
    ApiError::invalid("blades", format!("\"{name}\" is the name of {other} of this answer; use another name"))
}

/// Returns the error for a blade that cannot be seated or unseated.
fn wrong_blade(error: impl Display) -> ApiError {
    ApiError::invalid("blades", error.to_string())
}

/// Seats the adapter `name`. If the answer started with this blade, it gets its initial settings.
fn seat_adapter(config: &mut SchemeSpec, first: &[BladeSpec], name: &str, service: &Service) -> Result<(), ApiError> {
    let adapters = service.adapters();
    if !adapters.iter().any(|known| known == name) {
        return Err(ApiError::no_adapter("blades", name, &adapters));
    }
    let is_seated = config.blades.iter().any(|blade| blade.name == name);
    match first.iter().find(|blade| blade.name == name).filter(|_| !is_seated) {
        Some(blade) => config.blades.push(blade.clone()),
        None => config.seat(name),
    }
    if config.adapters().any(|(lane, _)| lane == name) { Ok(()) } else { Err(taken_name(name, "a blade without an adapter")) }
}

/// Returns whether a lane belongs to a blade: as its own lane, or as the lane that it is contrasted
/// with.
fn belongs(lane: &str, blade: &str) -> bool {
    lane.strip_prefix(blade).is_some_and(|rest| rest.is_empty() || rest == "/against")
}
