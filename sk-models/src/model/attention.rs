//! Causal grouped-query attention.

use burn::{
    module::Module,
    tensor::{Device, Tensor, TensorData},
};

use super::{projection::Projection, rope::Rope};
use crate::{
    config::Qwen2Config,
    kernels::{AttentionShape, causal_attention, is_fused},
    lora::{LayerDeltas, Target},
};

/// The score offset of a hidden key. Finite, so that a fully masked block has no NaN.
const HIDDEN: f32 = -1e30;

/// The state that all layers of a pass share: shape, rotations and mask.
#[derive(Debug)]
pub struct Pass {
    batch: usize,
    length: usize,
    keys: Rope,
    queries: Rope,
    /// `[1, 1, groups·S, S]`; `None` for a single token.
    mask: Option<Tensor<4>>,
}

impl Pass {
    /// Prepares a pass of `batch` rows of `length` tokens.
    #[must_use]
    pub fn new(config: &Qwen2Config, batch: usize, length: usize, device: &Device) -> Self {
        let keys = Rope::new(config.head_dim, config.rope_theta, length, device);
        let groups = config.queries_per_key();
        let queries = keys.for_queries(groups, (config.head_dim as f64).sqrt().recip());
        let mask = (length > 1).then(|| causal_mask(groups, length, device));
        Self { batch, length, keys, queries, mask }
    }
}

/// Returns the mask under which query `i` attends to keys `j ≤ i`, repeated for each head of a
/// group.
fn causal_mask(groups: usize, length: usize, device: &Device) -> Tensor<4> {
    let mut mask = vec![0.0_f32; groups * length * length];
    for (row, line) in mask.chunks_exact_mut(length).enumerate() {
        line[row % length + 1..].fill(HIDDEN);
    }
    Tensor::from_data(TensorData::new(mask, [1, 1, groups * length, length]), device)
}

/// Attention with biases on q, k and v and none on the output, as in Qwen2.
#[derive(Module, Debug)]
pub struct Attention {
    /// `[H, Hq·D]`.
    pub q_proj: Projection,
    /// `[H, Hkv·D]`.
    pub k_proj: Projection,
    /// `[H, Hkv·D]`.
    pub v_proj: Projection,
    /// `[Hq·D, H]`.
    pub o_proj: Projection,
    heads: usize,
    groups: usize,
    width: usize,
}

impl Attention {
    /// Returns attention with the given projections, whose shapes are those of the fields.
    #[must_use]
    pub fn new(config: &Qwen2Config, [q_proj, k_proj, v_proj, o_proj]: [Projection; 4]) -> Self {
        Self {
            q_proj,
            k_proj,
            v_proj,
            o_proj,
            heads: config.num_key_value_heads,
            groups: config.queries_per_key(),
            width: config.head_dim,
        }
    }

    /// Maps `[G·N·S, H]` to `[G·N·S, H]`.
    ///
    /// The query heads that share a key head are folded into the query axis, so keys and values are
    /// never repeated.
    #[must_use]
    pub fn forward(&self, x: Tensor<2>, pass: &Pass, deltas: Option<&LayerDeltas>) -> Tensor<2> {
        let delta = |target| deltas.and_then(|deltas| deltas.get(target));
        let Pass { batch, length, .. } = *pass;
        let query = self.q_proj.forward(x.clone(), delta(Target::Query).as_ref());
        let key = self.k_proj.forward(x.clone(), delta(Target::Key).as_ref());
        let value = self.v_proj.forward(x, delta(Target::Value).as_ref());

        if length > 1 && is_fused(&query.device(), query.dtype()) {
            let shape = AttentionShape {
                length,
                heads: self.heads,
                groups: self.groups,
                width: self.width,
                scale: (self.width as f32).sqrt().recip(),
            };
            let mixed = causal_attention([query, key, value], pass.keys.tables(), shape);
            return self.o_proj.forward(mixed, delta(Target::Output).as_ref());
        }

        let query = query.reshape([batch, length, self.heads, self.groups, self.width]).permute([0, 2, 3, 1, 4]).reshape([
            batch,
            self.heads,
            self.groups * length,
            self.width,
        ]);
        let split = |t: Tensor<2>| t.reshape([batch, length, self.heads, self.width]).swap_dims(1, 2);
        let query = pass.queries.apply(query);
        let (key, value) = (pass.keys.apply(split(key)), split(value));

        let mixed = attend(query, (key, value), pass.mask.as_ref());
        let mixed = mixed
            .reshape([batch, self.heads, self.groups, length, self.width])
            .permute([0, 3, 1, 2, 4])
            .reshape([batch * length, self.heads * self.groups * self.width]);
        self.o_proj.forward(mixed, delta(Target::Output).as_ref())
    }
}

/// Computes attention of `[B, H, L, D]` over keys and values `[B, H, T, D]`.
fn attend(query: Tensor<4>, (keys, values): (Tensor<4>, Tensor<4>), mask: Option<&Tensor<4>>) -> Tensor<4> {
    let scores = query.matmul(keys.swap_dims(2, 3));
    let scores = match mask {
        None => scores,
        Some(mask) => scores + mask.clone(),
    };
    let max = scores.clone().detach().max_dim(3);
    let weights = (scores - max).exp();
    let total = weights.clone().sum_dim(3);
    weights.matmul(values) / total
}
