//! The attention heads of a layer.

use crate::config::Qwen2Config;

/// Heads of a layer. Hq/Hkv query heads share each key head.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    /// Hq.
    pub(super) queries: usize,
    /// Hkv.
    pub(super) keys: usize,
    /// D.
    pub(super) width: usize,
}

impl Heads {
    /// Returns the heads of a model.
    pub(super) fn new(config: &Qwen2Config) -> Self {
        Self { queries: config.num_attention_heads, keys: config.num_key_value_heads, width: config.head_dim }
    }

    /// Returns the number of query heads of a key head.
    pub(super) fn queries_per_key(self) -> usize {
        self.queries / self.keys
    }
}
