//! Timed generation with the backbone alone.

use std::time::Instant;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sk_core::TokenId;
use sk_models::engine::{Frozen, Sampling};

use crate::Error;
use sk_models::local::Models;

/// The times of an unsteered response, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FrozenSeconds {
    /// Time of the prefill.
    pub prefill: f64,
    /// Time of decoding.
    pub decode: f64,
}

/// Generates `tokens` tokens after `prompt` greedily with the backbone alone.
pub(crate) fn frozen(models: &Models, prompt: &[TokenId], tokens: usize, seed: u64) -> Result<FrozenSeconds, Error> {
    let mut frozen = Frozen::new(models.backbone.clone());
    let mut context = prompt.to_vec();
    let start = Instant::now();
    // Reading logits waits for the device; filling the KV cache alone would not.
    frozen.next_logits(&context)?;
    let prefill = start.elapsed().as_secs_f64();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let start = Instant::now();
    frozen.decode(&mut context, &Sampling::greedy(), tokens, &[], &mut rng, |_| true)?;
    Ok(FrozenSeconds { prefill, decode: start.elapsed().as_secs_f64() })
}
