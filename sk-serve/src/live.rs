//! Answers under way, and edits of their Ω.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use serde_json::{Value, json};
use sk_core::{InstructionRack, SpecError, SpecHandle};
use sk_scheme::{BladeSpec, NamedWeights, SchemeSpec};
use tokio::sync::OwnedSemaphorePermit;

use crate::ApiError;
use crate::generation::{Asked, Work, instruction};
use crate::request::instruction_of;
use crate::service::Service;

/// An answer under way.
#[derive(Clone)]
pub(crate) struct Live {
    spec: SpecHandle,
    pub(crate) progress: Arc<Mutex<Progress>>,
    instructed: InstructionRack,
    seats: Arc<Mutex<Seats>>,
}

/// What edits of the seats look at and change.
struct Seats {
    config: SchemeSpec,
    /// Those that the answer began with.
    first: Vec<BladeSpec>,
    /// Tokens that the answer may still reach, those of the prompt included.
    reach: usize,
    asked: Arc<Asked>,
    /// Memory of lanes that were added.
    reserved: Vec<OwnedSemaphorePermit>,
}

/// What an answer holds so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    steps: usize,
    tokens: usize,
    text: String,
}

/// What seats the adapter that the server knows by the name of the blade.
const ADAPTER: &str = "adapter";

/// An edit of Ω. It takes effect at the next step, whole or not at all.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edit {
    /// Weights by the names of blades.
    weights: Option<BTreeMap<String, f64>>,
    /// Blades that take a seat, each [`ADAPTER`] or `instruction:TEXT`, or leave it, each null.
    #[serde(default)]
    blades: BTreeMap<String, Option<String>>,
}

impl Progress {
    /// Adds a span.
    pub(crate) fn add(progress: &Mutex<Self>, tokens: usize, text: &str) {
        let mut progress = lock(progress);
        progress.steps += 1;
        progress.tokens += tokens;
        progress.text.push_str(text);
    }
}

impl Live {
    pub(crate) fn new(spec: SpecHandle, instructed: InstructionRack, work: &Work, choice: usize) -> Self {
        let asked = Arc::clone(&work.asked[choice / work.each]);
        let reach = asked.tokens.len() + work.max_new_tokens;
        let (config, first) = (work.config.clone(), work.config.blades.clone());
        let seats = Seats { config, first, reach, asked, reserved: Vec::new() };
        Self { spec, progress: Arc::default(), instructed, seats: Arc::new(Mutex::new(seats)) }
    }

    /// The answer as a client sees it.
    pub(crate) fn told(&self, id: &str) -> Value {
        let spec = self.spec.snapshot();
        let weights: BTreeMap<&str, f64> =
            spec.seats().iter().map(|seat| &**seat.name()).zip(spec.weights().as_slice().iter().copied()).collect();
        let Progress { steps, tokens, text } = lock(&self.progress).clone();
        json!({"id": id, "weights": weights, "steps": steps, "tokens": tokens, "text": text})
    }

    /// Edits Ω.
    pub(crate) fn edit(&self, edit: Edit, service: &Service) -> Result<(), ApiError> {
        let mut seats = lock(&self.seats);
        let mut config = seats.config.clone();
        // They may name blades that are gone.
        config.weights = None;
        let mut added = Vec::new();
        let mut reserved = Vec::new();
        for (name, source) in edit.blades.iter().filter_map(|(name, source)| Some((name, source.as_ref()?))) {
            if source == ADAPTER {
                seat_adapter(&mut config, &seats.first, name, service)?;
            } else {
                config.seat_instruction(name, instruction_of(name, source)?).map_err(|error| ApiError::of_scheme(&error))?;
            }
            reserved.push(service.reserve(seats.reach)?);
            added.push(name.as_str());
        }
        let removed: Vec<&str> =
            edit.blades.iter().filter(|(_, source)| source.is_none()).map(|(name, _)| name.as_str()).collect();
        let built = config.spec().map_err(|error| ApiError::of_scheme(&error))?;
        service.check_blades(built.seats().len())?;
        for (lane, text) in config.instructions().filter(|(lane, _)| added.iter().any(|name| belongs(lane, name))) {
            let opening =
                instruction(service, &seats.asked, text).map_err(|error| ApiError::invalid("blades", error.to_string()))?;
            if seats.reach + opening.extra() > service.host.context_limit() {
                let message =
                    format!("the instruction of \"{lane}\" leaves no room for the tokens that were asked for; shorten it");
                return Err(ApiError::invalid("blades", message));
            }
            self.instructed.insert(lane.as_str(), opening);
        }
        let weights: Option<NamedWeights> = edit.weights.map(|weights| weights.into_iter().collect());
        let edited = self.spec.edit(|spec| {
            let news = built.seats().iter().filter(|seat| added.contains(&&**seat.name()));
            let mut spec = news.cloned().try_fold(spec.clone(), |spec, seat| spec.seat(seat, 0.0))?;
            if let Some(weights) = &weights {
                spec = weights.apply(&spec)?;
            }
            removed.iter().try_fold(spec, |spec, name| spec.unseat(name))
        });
        edited.map_err(|error: SpecError| ApiError::invalid("weights", error.to_string()))?;
        config.blades.retain(|blade| !removed.contains(&blade.name.as_str()));
        seats.config = config;
        seats.reserved.extend(reserved);
        metrics::counter!("swiss_knife_edits_total").increment(1);
        Ok(())
    }
}

/// Seats the adapter `name`, as it was seated at first if it was.
fn seat_adapter(config: &mut SchemeSpec, first: &[BladeSpec], name: &str, service: &Service) -> Result<(), ApiError> {
    let adapters = service.adapters();
    if !adapters.iter().any(|known| known == name) {
        let message = format!("no adapter is loaded for blade \"{name}\"; loaded: {}", adapters.join(", "));
        return Err(ApiError::invalid("blades", message));
    }
    let is_seated = config.blades.iter().any(|blade| blade.name == name);
    match first.iter().find(|blade| blade.name == name).filter(|_| !is_seated) {
        Some(blade) => config.blades.push(blade.clone()),
        None => config.seat(name),
    }
    if config.adapters().any(|(lane, _)| lane == name) {
        Ok(())
    } else {
        Err(ApiError::invalid("blades", format!("blade \"{name}\" has a seat, and reads with no adapter; unseat it first")))
    }
}

/// Whether a lane is that of a blade: its own, or the one that it is read against.
fn belongs(lane: &str, blade: &str) -> bool {
    lane.strip_prefix(blade).is_some_and(|rest| rest.is_empty() || rest == "/against")
}

/// An answer's entry among those under way.
pub(crate) struct Listed<'a> {
    service: &'a Service,
    id: String,
}

impl<'a> Listed<'a> {
    pub(crate) fn new(service: &'a Service, id: &str, choice: usize, live: Live) -> Self {
        // Further answers of a request have names of their own.
        let id = if choice == 0 { id.to_owned() } else { format!("{id}-{choice}") };
        lock(&service.live).insert(id.clone(), live);
        Self { service, id }
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        lock(&self.service.live).remove(&self.id);
    }
}

/// The answer of a name.
pub(crate) fn find(service: &Service, id: &str) -> Result<Live, ApiError> {
    let live = lock(&service.live).get(id).cloned();
    live.ok_or_else(|| ApiError::not_found(format!("no answer called \"{id}\" is under way")))
}

/// Answers under way by name.
pub(crate) type Lives = Mutex<HashMap<String, Live>>;

/// Locks what every change leaves whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
