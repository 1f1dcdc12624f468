use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::candidates::ROUNDING;
use crate::{Candidates, ReadingsError};

/// The reader of a candidate: the backbone, a variant of it (with an adapter, under an instruction,
/// or another model in its place), or a head on its hidden states.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// π_B.
    Backbone,
    /// π_φ, by its name in the backbone.
    Variant(Arc<str>),
    /// A head on π_B's hidden states, by its name in the backbone: a future discriminator or a
    /// reward model. It has no distribution over tokens, so its readings have
    /// [`values`](Reading::values) only.
    Head(Arc<str>),
}

/// A name for messages, such as `policy "helpful"`.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backbone => f.write_str("the backbone"),
            Self::Variant(name) => write!(f, "policy \"{name}\""),
            Self::Head(name) => write!(f, "head \"{name}\""),
        }
    }
}

/// The reading of one candidate of L tokens under one policy.
///
/// Under a policy that predicts tokens, `log_probs` and `min_entropy` have L entries and `values`
/// is empty. Under a [head](Policy::Head) it is the other way round.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reading {
    /// log π(y_t | x, y_<t) in nats, L of them.
    pub log_probs: Vec<f32>,
    /// logsumexp(z_t) − max_v z_{t,v} in nats, L of them: the Rényi min-entropy of the next-token
    /// distribution (`eq:minent`).
    pub min_entropy: Vec<f32>,
    /// v(x, y_≤t), the output of a head after token y_t, L of them. Entry t depends only on y_1 …
    /// y_t. The unit is that of the head: log-odds for a discriminator, or the training unit of a
    /// reward model.
    pub values: Vec<f32>,
}

/// The readings of every candidate under every requested policy.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Readings(BTreeMap<Policy, Vec<Reading>>);

impl Readings {
    /// Creates an empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the readings of a policy, one per candidate.
    pub fn insert(&mut self, policy: Policy, readings: Vec<Reading>) {
        self.0.insert(policy, readings);
    }

    /// Returns the readings of a policy, one per candidate, if it was requested.
    pub fn get(&self, policy: &Policy) -> Option<&[Reading]> {
        self.0.get(policy).map(Vec::as_slice)
    }

    /// Returns the readings of a policy, one per candidate.
    ///
    /// # Errors
    /// If the policy was not read, or was read for another number of candidates.
    pub fn of(&self, policy: &Policy, candidates: &Candidates) -> Result<&[Reading], ReadingsError> {
        let readings = self.get(policy).ok_or_else(|| ReadingsError::Missing { policy: policy.clone() })?;
        let (expected, got) = (candidates.len(), readings.len());
        if got == expected { Ok(readings) } else { Err(ReadingsError::Candidates { policy: policy.clone(), expected, got }) }
    }

    /// Checks that each policy has one reading per candidate, and each reading one value per token.
    /// A log-probability may be above zero, and a min-entropy below, by at most [`ROUNDING`]; neither
    /// may be NaN.
    pub(crate) fn check(&self, policies: &[Policy], candidates: &Candidates) -> Result<(), ReadingsError> {
        for policy in policies {
            for (index, (candidate, reading)) in candidates.iter().zip(self.of(policy, candidates)?).enumerate() {
                let lengths = match policy {
                    Policy::Head(_) => [("values", reading.values.len()); 2],
                    _ => [("log-probabilities", reading.log_probs.len()), ("min-entropies", reading.min_entropy.len())],
                };
                let expected = candidate.tokens.len();
                if let Some((quantity, got)) = lengths.into_iter().find(|&(_, got)| got != expected) {
                    return Err(ReadingsError::Tokens { policy: policy.clone(), quantity, candidate: index, expected, got });
                }
                let log_prob = reading.log_probs.iter().position(|&p| p.is_nan() || p > ROUNDING);
                let entropy = reading.min_entropy.iter().position(|&entropy| entropy.is_nan() || entropy < -ROUNDING);
                let wrong = log_prob.map(|position| ("log-probability", position, reading.log_probs[position], "at most 0"));
                let wrong = wrong.or_else(|| Some(("min-entropy", entropy?, reading.min_entropy[entropy?], "at least 0")));
                if let Some((quantity, position, value, range)) = wrong {
                    let (policy, value) = (policy.clone(), value.to_string());
                    return Err(ReadingsError::Value { policy, quantity, candidate: index, position, value, range });
                }
            }
        }
        Ok(())
    }

    /// Adds readings of more candidates under the same policies.
    pub(crate) fn append(&mut self, more: Self) {
        for (policy, readings) in more.0 {
            self.0.entry(policy).or_default().extend(readings);
        }
    }

    /// Replaces the readings of the candidates at `indices`.
    pub(crate) fn replace(&mut self, indices: &[usize], others: Self) {
        for (policy, readings) in others.0 {
            if let Some(own) = self.0.get_mut(&policy) {
                indices.iter().zip(readings).for_each(|(&i, reading)| own[i] = reading);
            }
        }
    }

    /// Returns the policies, in order.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.0.keys()
    }
}
