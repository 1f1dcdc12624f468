use std::collections::BTreeMap;
use std::sync::Arc;

/// What the backbone can read a candidate with: itself, a variant of it (an adapter seated on the
/// frozen weights), or a head on its own hidden states.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// π_B.
    Backbone,
    /// π_φ, by the name under which the backbone knows it.
    Variant(Arc<str>),
    /// A value read off π_B's hidden states, by the name under which the backbone knows the head: a
    /// future discriminator, a reward model. No distribution over tokens, so its readings have
    /// [`values`](Reading::values) and nothing else.
    Head(Arc<str>),
}

/// One candidate of L tokens read under one policy.
///
/// Under a policy that predicts tokens, `log_probs` and `min_entropy` have L entries and `values`
/// none; under a [head](Policy::Head) it is the other way round.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reading {
    /// log π(y_t | x, y_<t) in nats, L of them.
    pub log_probs: Vec<f32>,
    /// logsumexp(z_t) − max_v z_{t,v} in nats, L of them: the Rényi min-entropy of the next-token
    /// distribution (`eq:minent`).
    pub min_entropy: Vec<f32>,
    /// v(x, y_≤t), the output of a head once y_t was read, L of them: entry t depends on y_1 … y_t
    /// and on nothing after. In the unit of the head: log-odds of a discriminator, whatever a
    /// reward model was trained in.
    pub values: Vec<f32>,
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

    /// Adds readings of more candidates under the same policies.
    pub(crate) fn append(&mut self, more: Self) {
        for (policy, readings) in more.0 {
            self.0.entry(policy).or_default().extend(readings);
        }
    }

    /// Puts readings of the candidates `indices` in the places of theirs.
    pub(crate) fn replace(&mut self, indices: &[usize], others: Self) {
        for (policy, readings) in others.0 {
            if let Some(own) = self.0.get_mut(&policy) {
                indices.iter().zip(readings).for_each(|(&i, reading)| own[i] = reading);
            }
        }
    }

    /// The policies read, in order.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.0.keys()
    }
}
