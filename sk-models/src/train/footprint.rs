//! The memory of training runs.

use crate::{config::Qwen2Config, lora::Target, precision::Precision};

/// Tables of logits, `[completion tokens, V]`, that exist at one time while the loss is propagated
/// back: log-softmax in parts, and their gradients.
const LOGITS: usize = 4;
/// Numbers per parameter of an adapter: itself, its place in the stack of lanes, its gradient and its
/// part of the stack's, and two moments of the optimiser.
const COPIES: usize = 6;
/// Numbers per parameter of a language model during a pass: itself, its gradient, and two moments of
/// the optimiser.
const TRAINED: usize = 4;
/// Numbers per parameter of a language model while the optimiser takes a step or a checkpoint is
/// written.
const STEPPED: usize = 6;

/// The size of a forward pass with its gradient.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrainingPass {
    /// Tokens of all rows, padding included.
    pub(super) tokens: usize,
    /// Tokens whose probabilities are computed.
    pub(super) completion: usize,
}

impl TrainingPass {
    /// Returns the numbers that the pass keeps: per layer and token the states around both norms
    /// (4 H), the projections of attention and their mixture (2 Hq·D + 2 Hkv·D), the gated layer (3 F)
    /// and the `low` states of updates, and per completion token its logits.
    fn numbers(self, config: &Qwen2Config, low: usize) -> usize {
        let attention = 2 * config.query_size() + 2 * config.key_value_size();
        let layer = 4 * config.hidden_size + attention + 3 * config.intermediate_size + low;
        let states = self.tokens.saturating_mul(layer * config.num_hidden_layers);
        states.saturating_add((LOGITS * config.vocab_size).saturating_mul(self.completion))
    }
}

/// Returns the bytes that a run takes that trains all weights: four times the larger of
/// 4·parameters + numbers of the pass, and 6·parameters.
pub(super) fn of_model(config: &Qwen2Config, pass: TrainingPass) -> u64 {
    let parameters = config.parameters();
    let numbers = pass.numbers(config, 0).saturating_add(TRAINED * parameters).max(STEPPED * parameters);
    numbers.saturating_mul(size_of::<f32>()) as u64
}

/// Returns the bytes that a run of preference training takes at its largest pass: weights +
/// 4·(6·adapter + largest pass). `precision` is that of the frozen weights.
pub(super) fn of_adapter(
    config: &Qwen2Config,
    precision: Precision,
    (targets, rank): (&[Target], usize),
    passes: impl Iterator<Item = TrainingPass>,
) -> u64 {
    let entries = |target: &Target| {
        let (input, output) = target.dims(config);
        rank * (input + output)
    };
    let adapter = config.num_hidden_layers * targets.iter().map(entries).sum::<usize>();
    let pass = passes.map(|pass| pass.numbers(config, targets.len() * rank)).max().unwrap_or(0);
    let numbers = pass.saturating_add(COPIES * adapter);
    precision.module_bytes(config).saturating_add(numbers.saturating_mul(size_of::<f32>()) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_small_qwen() {
        let config = Qwen2Config { tie_word_embeddings: true, ..Qwen2Config::small([1000, 8, 20, 2, 2, 1]) };
        let pass = |tokens, completion| TrainingPass { tokens, completion };
        let passes = [pass(10, 3), pass(6, 5)];
        let found = of_adapter(&config, Precision::Bf16, (&Target::ALL, 2), passes.into_iter());
        // Inputs and outputs of a layer's updates: 16 + 12 + 12 + 16 + 3·28 = 140.
        let adapter = 2 * 2 * 140;
        // A layer keeps 4·8 + 2·8 + 2·4 + 3·20 + 7·2 = 130 numbers per token. The second pass is
        // the larger: 6·130·2 + 4·5·1000 = 21,560 against 10·130·2 + 4·3·1000 = 14,600.
        let numbers = 6 * adapter + 21_560;
        assert_eq!(found, 2 * config.parameters() as u64 + 4 * numbers);
        // Without updates, a layer keeps 116 numbers per token.
        let parameters = config.parameters();
        assert_eq!(of_model(&config, pass(100, 20)), 4 * (4 * parameters + 100 * 116 * 2 + 4 * 20 * 1000) as u64);
        assert_eq!(of_model(&config, pass(1, 1)), 4 * 6 * parameters as u64);
    }
}
