//! The backbone alone, with its times.

use std::time::Instant;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sk_core::TokenId;
use sk_models::engine::{Frozen, Sampling};

use crate::{Error, Models};

/// Seconds of a response that nothing steers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FrozenSeconds {
    /// Reading the prompt.
    pub prefill: f64,
    /// Decoding.
    pub decode: f64,
}

/// Has the backbone alone answer `prompt` greedily with `tokens` tokens.
///
/// # Errors
/// When a pass fails.
pub fn frozen(models: &Models, prompt: &[TokenId], tokens: usize, seed: u64) -> Result<FrozenSeconds, Error> {
    let mut frozen = Frozen::new(models.backbone.clone());
    let mut context = prompt.to_vec();
    let start = Instant::now();
    // Asking for logits, and not only for the cache, waits for the device.
    frozen.next_logits(&context)?;
    let prefill = start.elapsed().as_secs_f64();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let start = Instant::now();
    frozen.decode(&mut context, &Sampling::greedy(), tokens, &[], &mut rng, |_| true)?;
    Ok(FrozenSeconds { prefill, decode: start.elapsed().as_secs_f64() })
}
