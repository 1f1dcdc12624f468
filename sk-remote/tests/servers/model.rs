//! A tiny language model that tests can compute themselves: its log-probabilities are a hash of all
//! tokens before and of the adapter.

use sk_core::{Reading, TokenId};

use crate::VOCABULARY;

/// A hash of everything that the next token depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State(u64);

impl State {
    /// The state before the first token.
    pub(crate) fn new(adapter: Option<&str>) -> Self {
        let name = adapter.unwrap_or_default().bytes();
        Self(name.fold(0x9e37_79b9, |hash, byte| mix(hash ^ u64::from(byte))))
    }

    /// The state after `tokens`.
    pub(crate) fn after(self, tokens: &[TokenId]) -> Self {
        Self(tokens.iter().fold(self.0, |hash, &token| mix(hash.wrapping_mul(31) ^ u64::from(token))))
    }

    /// log π(v | …) in nats for each token v, from logits in [−3, 3) divided by a temperature.
    pub(crate) fn log_probs(self, temperature: f64) -> Vec<f32> {
        let logit = |token| (mix(self.0 ^ mix(token)) >> 11) as f64 / (1_u64 << 53) as f64 * 6.0 - 3.0;
        let logits: Vec<f64> = (0..u64::from(VOCABULARY)).map(|token| logit(token) / temperature).collect();
        let total = logits.iter().map(|z| z.exp()).sum::<f64>().ln();
        logits.iter().map(|z| (z - total) as f32).collect()
    }
}

/// The output function of SplitMix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The most probable token; of equals, the lower id.
pub(crate) fn top(log_probs: &[f32]) -> (TokenId, f32) {
    let better = |best: (TokenId, f32), next: (TokenId, f32)| if next.1 > best.1 { next } else { best };
    (0..).zip(log_probs.iter().copied()).fold((0, f32::NEG_INFINITY), better)
}

/// A uniform number for a seed and a position.
pub(crate) fn uniform(seed: u64, position: usize) -> f64 {
    (mix(mix(seed) ^ position as u64) >> 11) as f64 / (1_u64 << 53) as f64
}

/// The correct reading of a span.
pub(crate) fn reading(adapter: Option<&str>, context: &[TokenId], span: &[TokenId]) -> Reading {
    let mut state = State::new(adapter).after(context);
    let mut reading = Reading::default();
    for &token in span {
        let log_probs = state.log_probs(1.0);
        reading.log_probs.push(log_probs[token as usize]);
        reading.min_entropy.push((-top(&log_probs).1).max(0.0));
        state = state.after(&[token]);
    }
    reading
}
