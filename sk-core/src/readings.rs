use std::collections::BTreeMap;
use std::sync::Arc;

/// A policy the backbone can read a candidate with: itself, or a variant of it (an adapter seated on the frozen weights).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// π_B.
    Backbone,
    /// π_φ, by the name under which the backbone knows it.
    Variant(Arc<str>),
}

/// One candidate of L tokens read under one policy.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reading {
    /// log π(y_t | x, y_<t) in nats, L of them.
    pub log_probs: Vec<f32>,
    /// logsumexp(z_t) − max_v z_{t,v} in nats, L of them: the Rényi min-entropy of the next-token distribution (`eq:minent`).
    pub min_entropy: Vec<f32>,
}

/// Every candidate read under every policy that was asked for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Readings(BTreeMap<Policy, Vec<Reading>>);

impl Readings {
    /// No readings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the readings of a policy, one per candidate.
    pub fn insert(&mut self, policy: Policy, readings: Vec<Reading>) {
        self.0.insert(policy, readings);
    }

    /// The readings of a policy, one per candidate, if it was asked for.
    pub fn get(&self, policy: &Policy) -> Option<&[Reading]> {
        self.0.get(policy).map(Vec::as_slice)
    }

    /// The policies read, in order.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.0.keys()
    }
}
