use burn::tensor::{Device, Int, Tensor, TensorData};
use sk_core::TokenId;

use super::EngineError;
use crate::lora::Lanes;
use crate::model::cache::{Prefix, Suffix};
use crate::model::{Cache, Qwen2};

/// Tokens computed at once when a context is read: bounds the memory of the attention scores.
const CHUNK: usize = 256;

/// Room for tokens in a new prefix; it doubles as needed.
const CAPACITY: usize = 256;

/// A prefix that follows a context: it holds all tokens but the last, which each candidate reads again as its first input.
pub(super) struct Follower {
    tokens: Vec<TokenId>,
    prefix: Prefix,
}

impl Follower {
    pub(super) fn new(model: &Qwen2, lanes: usize) -> Self {
        Self { tokens: Vec::new(), prefix: Prefix::new(&model.config, lanes, CAPACITY, &model.device()) }
    }

    pub(super) fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// Makes the prefix hold `context` without its last token. What it shares with the tokens held is kept, the rest is computed.
    pub(super) fn follow(&mut self, model: &Qwen2, lanes: Lanes<'_>, context: &[TokenId]) {
        let target = &context[..context.len().saturating_sub(1)];
        let common = self.tokens.iter().zip(target).take_while(|(a, b)| a == b).count();
        self.tokens.truncate(common);
        self.prefix.truncate(common);
        for chunk in target[common..].chunks(CHUNK) {
            let rows = vec![chunk; lanes.count()];
            let tokens = token_rows(&rows, chunk.len(), &model.device());
            // The hidden states of the context are not needed: only the keys and values left in the prefix are.
            let _ = model.forward(tokens, lanes, Cache::Prefill(&mut self.prefix));
            self.tokens.extend_from_slice(chunk);
        }
    }

    /// Keeps what row `row` of `suffix` computed for `inputs`, the tokens it read.
    pub(super) fn adopt(&mut self, suffix: &Suffix, row: usize, inputs: &[TokenId]) {
        self.prefix.adopt(suffix, row, inputs.len());
        self.tokens.extend_from_slice(inputs);
    }

    /// Reads one more token in the only lane: its hidden state `[1, H]`.
    pub(super) fn advance(&mut self, model: &Qwen2, token: TokenId) -> Tensor<2> {
        let tokens = token_rows(&[[token]], 1, &model.device());
        self.tokens.push(token);
        model.forward(tokens, Lanes::backbone(), Cache::Prefill(&mut self.prefix))
    }

    /// Appends the lanes of another prefix that follows the same context.
    pub(super) fn join_lanes(&mut self, other: &Self) {
        debug_assert_eq!(self.tokens, other.tokens, "both follow one context");
        self.prefix.join_lanes(&other.prefix);
    }

    /// Keeps some lanes, in the given order.
    pub(super) fn select_lanes(&mut self, lanes: &[usize]) {
        self.prefix.select_lanes(lanes);
    }
}

/// Rows of tokens as a tensor `[rows, width]`, short rows filled up with token 0 at the end.
pub(super) fn token_rows(rows: &[impl AsRef<[TokenId]>], width: usize, device: &Device) -> Tensor<2, Int> {
    let mut data = vec![0i64; rows.len() * width];
    for (line, row) in data.chunks_exact_mut(width).zip(rows) {
        for (cell, &token) in line.iter_mut().zip(row.as_ref()) {
            *cell = i64::from(token);
        }
    }
    Tensor::from_data(TensorData::new(data, [rows.len(), width]), device)
}

/// Refuses contexts that leave no room for `new` more tokens, and tokens the model does not know.
pub(super) fn check_context(model: &Qwen2, role: &'static str, context: &[TokenId], new: usize) -> Result<(), EngineError> {
    let (limit, tokens) = (model.config.max_position_embeddings, context.len() + new);
    if tokens > limit {
        return Err(EngineError::ContextFull { role, tokens, limit });
    }
    check_vocabulary(model, role, context)
}

/// Refuses tokens the model does not know.
pub(super) fn check_vocabulary(model: &Qwen2, role: &'static str, tokens: &[TokenId]) -> Result<(), EngineError> {
    let vocab_size = model.config.vocab_size;
    match tokens.iter().find(|&&t| t as usize >= vocab_size) {
        Some(&token) => Err(EngineError::Vocabulary { role, token, vocab_size }),
        None => Ok(()),
    }
}

/// Reads a float tensor back from the device.
pub(super) fn read<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>, EngineError> {
    tensor.try_into_vec_as::<f32>().map_err(|e| EngineError::Device { message: e.to_string() })
}
