//! Answers under way.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use sk_core::{InstructionRack, SpecHandle};
use sk_scheme::{BladeSpec, SchemeSpec};
use tokio::sync::OwnedSemaphorePermit;

use crate::ApiError;
use crate::request::Asked;

/// An answer under way.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) spec: SpecHandle,
    pub(crate) progress: Arc<Mutex<Progress>>,
    pub(crate) instructed: InstructionRack,
    pub(crate) seats: Arc<Mutex<Seats>>,
}

/// What edits of the seats look at and change.
pub(crate) struct Seats {
    pub(crate) config: SchemeSpec,
    /// Those that the answer began with.
    pub(crate) first: Vec<BladeSpec>,
    /// Tokens that the answer may still reach, those of the prompt included.
    pub(crate) reach: usize,
    pub(crate) asked: Arc<Asked>,
    /// Memory of lanes that were added.
    pub(crate) reserved: Vec<OwnedSemaphorePermit>,
}

/// What an answer holds so far.
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
    /// An answer of at most `most` tokens.
    pub(crate) fn new(spec: SpecHandle, instructed: InstructionRack, config: SchemeSpec, asked: Arc<Asked>, most: usize) -> Self {
        let (first, reach) = (config.blades.clone(), asked.tokens.len() + most);
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
}

/// An answer's entry among those under way.
pub(crate) struct Listed<'a> {
    lives: &'a Lives,
    id: String,
}

impl<'a> Listed<'a> {
    pub(crate) fn new(lives: &'a Lives, id: &str, choice: usize, live: Live) -> Self {
        // Further answers of a request have names of their own.
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

/// The answer of a name.
pub(crate) fn find(lives: &Lives, id: &str) -> Result<Live, ApiError> {
    let live = lock(lives).get(id).cloned();
    live.ok_or_else(|| ApiError::not_found(format!("no answer called \"{id}\" is under way")))
}

/// Answers under way by name.
pub(crate) type Lives = Mutex<HashMap<String, Live>>;

/// Locks what every change leaves whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
