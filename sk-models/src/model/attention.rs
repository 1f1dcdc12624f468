//! Grouped-query attention over a shared prefix and each row's own tokens.

use burn::{
    module::Module,
    tensor::{Device, Tensor, TensorData},
};

use super::{
    cache::{Prefix, Suffix},
    initial::Initial,
    projection::Projection,
    rope::Rope,
};
use crate::{
    config::Qwen2Config,
    kernels::{Shape, causal_attention, is_fused},
    lora::{LayerDeltas, Target},
};

/// Added to the score of a key that must not be seen. Finite, so that a fully masked block stays free of NaN.
const HIDDEN: f32 = -1e30;

/// Where the keys and values of a forward pass are found and kept.
#[derive(Debug)]
pub enum Cache<'a> {
    /// Each row sees its own tokens only; nothing is kept.
    None,
    /// One row per lane continues its lane's prefix, and becomes part of it.
    Prefill(&'a mut Prefix),
    /// N rows per lane each see their lane's prefix and their own suffix, which grows.
    Extend {
        /// The shared context.
        prefix: &'a Prefix,
        /// What the rows have added so far.
        suffix: &'a mut Suffix,
    },
}

impl Cache<'_> {
    /// Tokens before the first new one.
    #[must_use]
    pub fn position(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Prefill(prefix) => prefix.len(),
            Self::Extend { prefix, suffix } => prefix.len() + suffix.len(),
        }
    }

    /// Earlier tokens in the block that holds the new ones.
    fn earlier(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Prefill(prefix) => prefix.len(),
            Self::Extend { suffix, .. } => suffix.len(),
        }
    }

    /// Counts the tokens that every layer has appended.
    pub(super) fn advance(&mut self, tokens: usize) {
        match self {
            Self::None => {}
            Self::Prefill(prefix) => prefix.advance(tokens),
            Self::Extend { suffix, .. } => suffix.advance(tokens),
        }
    }
}

/// What the layers of one forward pass share: shape, rotations and mask.
#[derive(Debug)]
pub struct Pass {
    lanes: usize,
    rows: usize,
    length: usize,
    keys: Rope,
    queries: Rope,
    /// `[1, 1, groups·S, earlier + S]`; none where one token sees everything.
    mask: Option<Tensor<4>>,
}

impl Pass {
    /// Prepares a pass of `lanes × rows` rows of `length` new tokens.
    #[must_use]
    pub fn new(config: &Qwen2Config, lanes: usize, rows: usize, length: usize, cache: &Cache<'_>, device: &Device) -> Self {
        let keys = Rope::new(config.head_dim, config.rope_theta, cache.position(), length, device);
        let groups = config.queries_per_key();
        let queries = keys.for_queries(groups, (config.head_dim as f64).sqrt().recip());
        let earlier = cache.earlier();
        let mask = (length > 1).then(|| causal_mask(groups, length, earlier, device));
        Self { lanes, rows, length, keys, queries, mask }
    }
}

/// Query `i` sees keys `j ≤ earlier + i`; the pattern repeats for each head of a group.
fn causal_mask(groups: usize, length: usize, earlier: usize, device: &Device) -> Tensor<4> {
    let total = earlier + length;
    let mut mask = vec![0.0_f32; groups * length * total];
    for (row, line) in mask.chunks_exact_mut(total).enumerate() {
        line[earlier + row % length + 1..].fill(HIDDEN);
    }
    Tensor::from_data(TensorData::new(mask, [1, 1, groups * length, total]), device)
}

/// Attention with biases on q, k and v and none on the output, as Qwen2 has it.
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
    /// Attention of the given projections, whose shapes are those of the fields.
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

    pub(super) fn initial(config: &Qwen2Config, initial: &mut Initial<'_>) -> Self {
        let (hidden, query, key) = (config.hidden_size, config.query_size(), config.key_value_size());
        let output = Projection::new(initial.residual([query, hidden]), None);
        let mut input = |width| {
            let bias = Tensor::zeros([width], initial.device());
            Projection::new(initial.matrix([hidden, width]), Some(bias))
        };
        Self::new(config, [input(query), input(key), input(key), output])
    }

    /// Maps `[G·N·S, H]` to `[G·N·S, H]`.
    ///
    /// The query heads that share a key head are folded into the query axis, and the rows that share a prefix too, so
    /// keys and values are never repeated. The two blocks of keys are joined through their unnormalised sums:
    /// `(Σ e^{s−m} v) / (Σ e^{s−m})` with one maximum `m` per query.
    #[must_use]
    pub fn forward(
        &self,
        x: Tensor<2>,
        layer: usize,
        pass: &Pass,
        cache: &mut Cache<'_>,
        deltas: Option<&LayerDeltas>,
    ) -> Tensor<2> {
        let delta = |target| deltas.and_then(|deltas| deltas.get(target));
        let (batch, length) = (pass.lanes * pass.rows, pass.length);
        let query = self.q_proj.forward(x.clone(), delta(Target::Query));
        let key = self.k_proj.forward(x.clone(), delta(Target::Key));
        let value = self.v_proj.forward(x, delta(Target::Value));

        if matches!(cache, Cache::None) && length > 1 && is_fused(&query.device(), query.dtype()) {
            let shape = Shape {
                length,
                heads: self.heads,
                groups: self.groups,
                width: self.width,
                scale: (self.width as f32).sqrt().recip(),
            };
            let mixed = causal_attention([query, key, value], pass.keys.tables(), shape);
            return self.o_proj.forward(mixed, delta(Target::Output));
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

        let mixed = match cache {
            Cache::None => attend(query, (key, value), pass.mask.as_ref()),
            Cache::Prefill(prefix) => {
                let own = prefix.append(layer, key, value);
                attend(query, own, pass.mask.as_ref())
            }
            Cache::Extend { prefix, suffix } => {
                let own = suffix.append(layer, key, value);
                match prefix.view(layer) {
                    None => attend(query, own, pass.mask.as_ref()),
                    Some(shared) => attend_joint(query, own, shared, pass),
                }
            }
        };
        let mixed = mixed
            .reshape([batch, self.heads, self.groups, length, self.width])
            .permute([0, 3, 1, 2, 4])
            .reshape([batch * length, self.heads * self.groups * self.width]);
        self.o_proj.forward(mixed, delta(Target::Output))
    }
}

/// Attention of `[B, H, L, D]` over one block of keys and values `[B, H, T, D]`.
fn attend(query: Tensor<4>, (keys, values): (Tensor<4>, Tensor<4>), mask: Option<&Tensor<4>>) -> Tensor<4> {
    let scores = masked(query.matmul(keys.swap_dims(2, 3)), mask);
    let max = scores.clone().detach().max_dim(3);
    let weights = (scores - max).exp();
    let total = weights.clone().sum_dim(3);
    weights.matmul(values) / total
}

/// Attention over the row's own block and the block its lane shares.
fn attend_joint(
    query: Tensor<4>,
    (keys, values): (Tensor<4>, Tensor<4>),
    (shared_keys, shared_values): (Tensor<4>, Tensor<4>),
    pass: &Pass,
) -> Tensor<4> {
    let [batch, heads, queries, width] = query.dims();
    let (lanes, rows) = (pass.lanes, pass.rows);
    // Rows of a lane side by side on the query axis, and back.
    let gather = |t: Tensor<4>| {
        let width = t.dims()[3];
        t.reshape([lanes, rows, heads, queries, width]).swap_dims(1, 2).reshape([lanes, heads, rows * queries, width])
    };
    let scatter = |t: Tensor<4>| {
        let width = t.dims()[3];
        t.reshape([lanes, heads, rows, queries, width]).swap_dims(1, 2).reshape([batch, heads, queries, width])
    };
    debug_assert_eq!(width, shared_values.dims()[3]);

    let own = masked(query.clone().matmul(keys.swap_dims(2, 3)), pass.mask.as_ref());
    let shared = gather(query).matmul(shared_keys.swap_dims(2, 3));
    let max = own.clone().max_dim(3).max_pair(scatter(shared.clone().max_dim(3)));
    let own = (own - max.clone()).exp();
    let shared = (shared - gather(max)).exp();
    let total = own.clone().sum_dim(3) + scatter(shared.clone().sum_dim(3));
    (own.matmul(values) + scatter(shared.matmul(shared_values))) / total
}

fn masked(scores: Tensor<4>, mask: Option<&Tensor<4>>) -> Tensor<4> {
    match mask {
        None => scores,
        Some(mask) => scores + mask.clone(),
    }
}
