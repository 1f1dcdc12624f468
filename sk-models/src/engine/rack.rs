use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sk_core::TokenId;

use super::EngineError;
use crate::decoder::Decoder;
use crate::head::Head;
use crate::lora::LoraAdapter;

/// The adapters of a backbone by name. The backbone's weights are not touched.
pub type AdapterRack = Rack<LoraAdapter>;

/// The heads of a backbone by name.
pub type HeadRack = Rack<Head>;

/// The instructions of a generation by the names of their lanes.
pub type InstructionRack = Rack<Instruction>;

/// The models that variants read under in place of the backbone, by the names of the variants.
pub type ReaderRack = Rack<Decoder>;

/// What a lane reads in the place of the beginning of the dialogue: the same beginning with an
/// instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    opening: usize,
    tokens: Vec<TokenId>,
}

impl Instruction {
    /// A lane whose context begins with `tokens` where that of the backbone begins with `opening`
    /// tokens. The rest is the same in both.
    #[must_use]
    pub fn new(opening: usize, tokens: Vec<TokenId>) -> Self {
        Self { opening, tokens }
    }

    /// The context of the lane, from that of the backbone.
    pub(super) fn context(&self, context: &[TokenId]) -> Vec<TokenId> {
        let rest = context.get(self.opening..).unwrap_or_default();
        [&self.tokens, rest].concat()
    }

    /// How many tokens the context of the lane is longer.
    #[must_use]
    pub fn extra(&self) -> usize {
        self.tokens.len().saturating_sub(self.opening)
    }
}

/// Parts of a model by name. Clones share one rack, so parts can be loaded, replaced and dropped
/// during a generation.
pub struct Rack<T>(Arc<Mutex<BTreeMap<Arc<str>, Arc<T>>>>);

impl<T> Clone for Rack<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Rack<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Rack<T> {
    /// Adds a part or replaces the one with that name. Takes effect at the next step.
    pub fn insert(&self, name: impl Into<Arc<str>>, part: impl Into<Arc<T>>) {
        self.lock().insert(name.into(), part.into());
    }

    /// Adds a part that is shared, as [`insert`](Self::insert).
    pub fn insert_shared(&self, name: impl Into<Arc<str>>, part: Arc<T>) {
        self.lock().insert(name.into(), part);
    }

    /// Drops a part. A step that still asks for it fails with an error.
    pub fn remove(&self, name: &str) -> bool {
        self.lock().remove(name).is_some()
    }

    /// The names, in order.
    #[must_use]
    pub fn names(&self) -> Vec<Arc<str>> {
        self.lock().keys().cloned().collect()
    }

    /// Returns the part with that name, or the error that `unknown` makes of the name and of the
    /// names in the rack.
    fn find<E>(&self, name: &str, unknown: impl FnOnce(String, String) -> E) -> Result<Arc<T>, E> {
        let rack = self.lock();
        let loaded = || rack.keys().map(|k| &**k).collect::<Vec<_>>().join(", ");
        rack.get(name).cloned().ok_or_else(|| unknown(name.to_owned(), loaded()))
    }

    /// Returns the part with that name, if there is one.
    pub(super) fn peek(&self, name: &str) -> Option<Arc<T>> {
        self.lock().get(name).cloned()
    }

    /// Returns the name of a part that is still in the rack.
    pub(super) fn name_of(&self, part: &Arc<T>) -> Option<Arc<str>> {
        self.lock().iter().find(|(_, other)| Arc::ptr_eq(other, part)).map(|(name, _)| Arc::clone(name))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<T>>> {
        // Every change is one insertion or removal, so a panic elsewhere cannot have left it torn.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AdapterRack {
    pub(super) fn get(&self, name: &str) -> Result<Arc<LoraAdapter>, EngineError> {
        self.find(name, |name, loaded| EngineError::UnknownAdapter { name, loaded })
    }
}

impl HeadRack {
    pub(super) fn get(&self, name: &str) -> Result<Arc<Head>, EngineError> {
        self.find(name, |name, loaded| EngineError::UnknownHead { name, loaded })
    }
}
