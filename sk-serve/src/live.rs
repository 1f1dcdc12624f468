//! Answers in progress.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use sk_core::{InstructionRack, SpecHandle};
use sk_scheme::{BladeSpec, SchemeSpec};

use crate::ApiError;
use crate::host::Adapters;
use crate::request::Asked;
use crate::service::Reserved;

/// An answer in progress.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) spec: SpecHandle,
    pub(crate) progress: Arc<Mutex<Progress>>,
    /// The adapters that lanes of the answer use.
    pub(crate) adapters: Adapters,
    /// The instructions that lanes of the answer read.
    pub(crate) instructed: InstructionRack,
    pub(crate) seats: Arc<Mutex<EditState>>,
}

/// The state that edits of the seats read and change.
pub(crate) struct EditState {
    pub(crate) config: SchemeSpec,
    /// The blades at the start of the answer.
    pub(crate) first: Vec<BladeSpec>,
    /// Maximum context length of the answer in tokens, prompt included.
    pub(crate) reach: usize,
    /// Maximum number of tokens of the answer.
    pub(crate) new: usize,
    pub(crate) asked: Arc<Asked>,
    /// The memory reserved for blades that were added, by name.
    pub(crate) reserved: BTreeMap<String, Reserved>,
}

/// The part of an answer that is generated so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    steps: usize,
    tokens: usize,
    text: String,
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
    /// Returns the state of an answer of at most `most` tokens.
    pub(crate) fn new(
        spec: SpecHandle,
        (adapters, instructed): (Adapters, InstructionRack),
        config: SchemeSpec,
        asked: Arc<Asked>,
        most: usize,
    ) -> Self {
        let (first, reach) = (config.blades.clone(), asked.tokens.len() + most);
        let seats = EditState { config, first, reach, new: most, asked, reserved: BTreeMap::new() };
        Self { spec, progress: Arc::default(), adapters, instructed, seats: Arc::new(Mutex::new(seats)) }
    }

    /// Returns the answer as clients see it.
    pub(crate) fn view(&self, id: &str) -> Value {
        let spec = self.spec.snapshot();
        let weights: BTreeMap<&str, f64> =
            spec.seats().iter().map(|seat| &**seat.name()).zip(spec.weights().as_slice().iter().copied()).collect();
        let Progress { steps, tokens, text } = lock(&self.progress).clone();
        json!({"id": id, "weights": weights, "steps": steps, "tokens": tokens, "text": text})
    }
}

/// The entry of an answer in [`Lives`]. Dropping it removes the entry.
pub(crate) struct Listed<'a> {
    lives: &'a Lives,
    id: String,
}

impl<'a> Listed<'a> {
    pub(crate) fn new(lives: &'a Lives, id: &str, choice: usize, live: Live) -> Self {
        // Further answers of a request have a suffix, so that every identifier is unique.
        let id = if choice == 0 { id.to_owned() } else { format!("{id}-{choice}") };
        lock(lives).insert(id.clone(), live);
        Self { lives, id }
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        lock(self.lives).remove(&self.id);
    }
}

/// Returns the answer with this identifier.
pub(crate) fn find(lives: &Lives, id: &str) -> Result<Live, ApiError> {
    let live = lock(lives).get(id).cloned();
    live.ok_or_else(|| ApiError::not_found(format!("no answer called \"{id}\" is under way")))
}

/// The answers in progress, by identifier.
pub(crate) type Lives = Mutex<HashMap<String, Live>>;

/// Locks a mutex. Ignores poisoning, because no change can leave the value inconsistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
