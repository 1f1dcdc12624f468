//! What all requests share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::RngExt;
use sk_core::SpecHandle;
use sk_models::dialogue::Framing;
use sk_models::engine::AdapterRack;
use sk_models::local::Models;
use sk_scheme::{FieldEdit, NamedWeights, Parameter, SHIPPED, SchemeSpec, Steering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ApiError;
use crate::request::Job;

/// How much a server takes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Answers that are written at a time. Others wait.
    pub concurrent: usize,
    /// Answers that wait at most; more are refused.
    pub waiting: usize,
    /// Bytes of keys and values that the answers under way may need together.
    pub memory: u64,
    /// Tokens of an answer, unless fewer are asked for.
    pub max_new_tokens: usize,
    /// Bytes of a request.
    pub body: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { concurrent: 16, waiting: 64, memory: 4 << 30, max_new_tokens: 1024, body: 1 << 20 }
    }
}

/// Models, what steers them unless a request says otherwise, and the answers under way.
pub struct Service {
    pub(crate) models: Models,
    /// The adapters by the names of their blades.
    pub(crate) rack: AdapterRack,
    /// The names of the loaded adapters.
    adapters: Vec<String>,
    /// Blades made of instructions, by name.
    instructions: Vec<(String, String)>,
    steering: Steering,
    /// Whether the model that ships drafts.
    shipped: bool,
    pub(crate) framing: Framing,
    /// What the model is called.
    pub(crate) name: String,
    pub(crate) limits: Limits,
    permits: Arc<Semaphore>,
    memory: Arc<Semaphore>,
    waiting: AtomicUsize,
    draining: AtomicBool,
    live: Mutex<HashMap<String, Live>>,
}

/// An answer under way.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) spec: SpecHandle,
    pub(crate) progress: Arc<Mutex<Progress>>,
}

/// What an answer holds so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    pub(crate) steps: usize,
    pub(crate) tokens: usize,
    pub(crate) text: String,
}

/// The parts of a [`Service`].
pub struct Parts {
    /// The models.
    pub models: Models,
    /// The adapters by the names of their blades.
    pub rack: AdapterRack,
    /// The names of the loaded adapters.
    pub adapters: Vec<String>,
    /// Blades made of instructions, by name.
    pub instructions: Vec<(String, String)>,
    /// What steers unless a request says otherwise.
    pub steering: Steering,
    /// Whether the model that ships drafts.
    pub shipped: bool,
    /// How a dialogue becomes a text.
    pub framing: Framing,
    /// What clients call the model.
    pub name: String,
    /// How much is taken on.
    pub limits: Limits,
}

/// The unit of the memory of requests.
const MEBIBYTE: u64 = 1 << 20;

/// The place of an answer among those under way; others take it when this is dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    _permit: OwnedSemaphorePermit,
    _memory: OwnedSemaphorePermit,
}

impl Service {
    /// A service of loaded models.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts { models, rack, adapters, instructions, steering, shipped, framing, name, limits } = parts;
        let mebibytes = usize::try_from(limits.memory / MEBIBYTE).unwrap_or(usize::MAX);
        Self {
            permits: Arc::new(Semaphore::new(limits.concurrent.clamp(1, Semaphore::MAX_PERMITS))),
            memory: Arc::new(Semaphore::new(mebibytes.clamp(1, u32::MAX as usize))),
            waiting: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            live: Mutex::default(),
            models,
            rack,
            adapters,
            instructions,
            steering,
            shipped,
            framing,
            name,
            limits,
        }
    }

    /// The scheme of a request.
    pub(crate) fn scheme(&self, job: &Job) -> Result<SchemeSpec, ApiError> {
        let asked = &job.steering;
        let mut steering = self.steering.clone();
        if let Some(name) = asked.scheme.as_deref().or_else(|| self.scheme_of(job.model.as_deref())) {
            if !SHIPPED.iter().any(|shipped| shipped.name == name) {
                let names: Vec<&str> = SHIPPED.iter().map(|shipped| shipped.name).collect();
                let message = format!("no scheme is called \"{name}\"; known: {}", names.join(", "));
                return Err(ApiError::invalid("swiss_knife.scheme", message));
            }
            steering.scheme = Some(name.into());
        }
        if let Some(preset) = &asked.preset {
            steering.preset = Some(preset.parse().map_err(|error: String| ApiError::invalid("swiss_knife.preset", error))?);
        }
        for text in &asked.set {
            let edit: FieldEdit = text.parse().map_err(|error: String| ApiError::invalid("swiss_knife.set", error))?;
            // A blade's section names files.
            if text.trim_start().starts_with("blades") {
                return Err(ApiError::invalid("swiss_knife.set", "`set` edits no blades; give them as `blades`"));
            }
            steering.set.push(edit);
        }
        if let Some(top_p) = job.top_p {
            let edit = format!("proposal.top_p={top_p}").parse().map_err(|error: String| ApiError::invalid("top_p", error))?;
            steering.set.push(edit);
        }
        if let Some(temperature) = job.temperature {
            let parameter = Parameter::named("draft_temperature").ok_or_else(|| ApiError::unsupported("temperature"))?;
            steering.numbers.push((parameter, temperature));
        }
        if let Some(weights) = &asked.weights {
            steering.weights = vec![weights.iter().map(|(name, weight)| (name.clone(), *weight)).collect::<NamedWeights>()];
        }
        let mut config = steering.spec(self.shipped).map_err(|error| ApiError::of_scheme(&error))?;
        if config.template.as_ref().is_some_and(|template| template.rule.head_kind().is_none()) {
            let instructed = |name: &&String| !asked.blades.contains_key(*name);
            self.adapters.iter().filter(instructed).for_each(|name| config.seat(name));
        }
        let own = asked.blades.iter().map(|(name, source)| match source.strip_prefix("instruction:") {
            Some(text) if !text.trim().is_empty() => Ok((name.clone(), text.trim().to_owned())),
            _ => Err(ApiError::invalid("swiss_knife.blades", format!("blade \"{name}\" of a request is `instruction:TEXT`"))),
        });
        let own = own.collect::<Result<Vec<_>, _>>()?;
        if config.template.is_some() {
            for (name, text) in self.instructions.iter().filter(|(name, _)| !asked.blades.contains_key(name)).chain(&own) {
                config.seat_instruction(name, text).map_err(|error| ApiError::of_scheme(&error))?;
            }
        }
        if let Some((name, _)) = config.adapters().find(|(name, _)| !self.adapters.contains(name)) {
            let message = format!("no adapter is loaded for blade \"{name}\"; loaded: {}", self.adapters.join(", "));
            return Err(ApiError::invalid("swiss_knife.scheme", message));
        }
        config.spec().map_err(|error| ApiError::invalid("swiss_knife.weights", error.to_string()))?;
        Ok(config)
    }

    /// The scheme that `NAME:SCHEME` names.
    fn scheme_of<'a>(&self, model: Option<&'a str>) -> Option<&'a str> {
        model?.strip_prefix(self.name.as_str())?.strip_prefix(':')
    }

    /// Refuses models that are not here.
    pub(crate) fn check_model(&self, model: Option<&str>) -> Result<(), ApiError> {
        match model {
            Some(name) if name != self.name && self.scheme_of(Some(name)).is_none() => {
                Err(ApiError::not_found(format!("the model \"{name}\" is not here; use \"{}\"", self.name)))
            }
            _ => Ok(()),
        }
    }

    /// The bytes of keys and values that an answer needs at most.
    pub(crate) fn bytes(&self, config: &SchemeSpec, prompt: usize, new: usize) -> u64 {
        let drafted = config.proposal.draft();
        let candidates = drafted.map_or(1, |draft| draft.candidates);
        let lanes = config.blades.len() + 1;
        let backbone = self.models.backbone.bytes_per_token() * lanes;
        let drafter = self.models.drafter.bytes_per_token();
        ((backbone + drafter) * (prompt + new + candidates * new)) as u64
    }

    /// Waits for a place.
    pub(crate) async fn admit(&self, bytes: u64) -> Result<Admitted, ApiError> {
        if self.is_draining() {
            return Err(ApiError::draining());
        }
        let mebibytes = u32::try_from(bytes.div_ceil(MEBIBYTE)).unwrap_or(u32::MAX);
        if u64::from(mebibytes) * MEBIBYTE > self.limits.memory {
            let message = format!(
                "the answer may need {mebibytes} MiB and this server gives all answers {} MiB; shorten the prompt or `max_tokens`",
                self.limits.memory / MEBIBYTE
            );
            return Err(ApiError::invalid("max_tokens", message));
        }
        let waiting = Waiting::join(&self.waiting, self.limits.waiting + self.permits.available_permits())?;
        let closed = |_| ApiError::draining();
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(closed)?;
        let memory = Arc::clone(&self.memory).acquire_many_owned(mebibytes).await.map_err(closed)?;
        drop(waiting);
        Ok(Admitted { _permit: permit, _memory: memory })
    }

    /// Takes no more requests.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn live(&self) -> MutexGuard<'_, HashMap<String, Live>> {
        // Every change is one insertion or removal.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer that waits for its place.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn join(count: &'a AtomicUsize, most: usize) -> Result<Self, ApiError> {
        let waiting = Self(count);
        if count.fetch_add(1, Ordering::Relaxed) >= most { Err(ApiError::busy()) } else { Ok(waiting) }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A name for an answer that nobody guesses.
pub(crate) fn new_id(kind: &str) -> String {
    let mut rng = rand::rng();
    format!("{kind}-{:016x}{:016x}", rng.random::<u64>(), rng.random::<u64>())
}
