use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::TokenId;

/// The instructions of a generation, by policy name.
pub type InstructionRack = Rack<Instruction>;

/// The beginning of a policy's context, which replaces that of the dialogue: the same beginning
/// with an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    opening: usize,
    tokens: Vec<TokenId>,
}

impl Instruction {
    /// Creates an instruction. The policy's context begins with `tokens` where the backbone's
    /// begins with `opening` tokens; the rest is the same.
    #[must_use]
    pub fn new(opening: usize, tokens: Vec<TokenId>) -> Self {
        Self { opening, tokens }
    }

    /// Converts the backbone's context into that of the policy.
    #[must_use]
    pub fn context(&self, context: &[TokenId]) -> Vec<TokenId> {
        let rest = context.get(self.opening..).unwrap_or_default();
        [&self.tokens, rest].concat()
    }

    /// Returns the number of tokens that the instruction adds to the context.
    #[must_use]
    pub fn extra(&self) -> usize {
        self.tokens.len().saturating_sub(self.opening)
    }
}

/// A shared map of policy parts by name. Clones share the map, so parts can be added, replaced and
/// removed during a generation.
#[derive(Debug)]
pub struct Rack<T: ?Sized>(Arc<Mutex<BTreeMap<Arc<str>, Arc<T>>>>);

impl<T: ?Sized> Clone for Rack<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: ?Sized> Default for Rack<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: ?Sized> Rack<T> {
    /// Adds a part, or replaces the one of this name. Takes effect at the next step.
    pub fn insert(&self, name: impl Into<Arc<str>>, part: impl Into<Arc<T>>) {
        self.lock().insert(name.into(), part.into());
    }

    /// Removes a part. Returns whether it was present. A step that still requests it fails.
    pub fn remove(&self, name: &str) -> bool {
        self.lock().remove(name).is_some()
    }

    /// Returns the names in order.
    #[must_use]
    pub fn names(&self) -> Vec<Arc<str>> {
        self.lock().keys().cloned().collect()
    }

    /// Returns the part of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<T>> {
        self.lock().get(name).cloned()
    }

    /// Returns the name of a part, if it is still in the rack.
    #[must_use]
    pub fn name_of(&self, part: &Arc<T>) -> Option<Arc<str>> {
        self.lock().iter().find(|(_, other)| Arc::ptr_eq(other, part)).map(|(name, _)| Arc::clone(name))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<T>>> {
        // Every change is a single insertion or removal, so a panic elsewhere cannot leave the map
        // inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_stands_in_the_place_of_the_opening() {
        let instruction = Instruction::new(2, vec![9, 8, 7]);
        assert_eq!(instruction.context(&[1, 2, 3, 4]), [9, 8, 7, 3, 4]);
        assert_eq!(instruction.context(&[1]), [9, 8, 7]);
        assert_eq!(instruction.extra(), 1);
    }

    #[test]
    fn clones_share_a_rack() {
        let rack: Rack<str> = Rack::default();
        rack.clone().insert("helpful", "lora-1");
        let part = rack.get("helpful").unwrap();
        assert_eq!((&*part, rack.name_of(&part).as_deref()), ("lora-1", Some("helpful")));
        assert!(rack.remove("helpful") && !rack.remove("helpful") && rack.names().is_empty());
    }
}
