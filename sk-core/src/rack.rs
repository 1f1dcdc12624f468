use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::TokenId;

/// The instructions of a generation by the names of their policies.
pub type InstructionRack = Rack<Instruction>;

/// What a policy reads in the place of the beginning of the dialogue: the same beginning with an
/// instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    opening: usize,
    tokens: Vec<TokenId>,
}

impl Instruction {
    /// A policy whose context begins with `tokens` where that of the backbone begins with `opening`
    /// tokens. The rest is the same in both.
    #[must_use]
    pub fn new(opening: usize, tokens: Vec<TokenId>) -> Self {
        Self { opening, tokens }
    }

    /// Returns the context of the policy, from that of the backbone.
    #[must_use]
    pub fn context(&self, context: &[TokenId]) -> Vec<TokenId> {
        let rest = context.get(self.opening..).unwrap_or_default();
        [&self.tokens, rest].concat()
    }

    /// How many tokens the context of the policy is longer.
    #[must_use]
    pub fn extra(&self) -> usize {
        self.tokens.len().saturating_sub(self.opening)
    }
}

/// Parts of policies by name. Clones share one rack, so parts can be added, replaced and dropped
/// during a generation.
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
    /// Adds a part or replaces the one with that name. Takes effect at the next step.
    pub fn insert(&self, name: impl Into<Arc<str>>, part: impl Into<Arc<T>>) {
        self.lock().insert(name.into(), part.into());
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

    /// Returns the part with that name, if there is one.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<T>> {
        self.lock().get(name).cloned()
    }

    /// Returns the name of a part that is still in the rack.
    #[must_use]
    pub fn name_of(&self, part: &Arc<T>) -> Option<Arc<str>> {
        self.lock().iter().find(|(_, other)| Arc::ptr_eq(other, part)).map(|(name, _)| Arc::clone(name))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<T>>> {
        // Every change is one insertion or removal, so a panic elsewhere cannot have left it torn.
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
