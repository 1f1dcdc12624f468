//! The decoder on a CPU: packed weights, one team of threads, no tensor between the layers.
//!
//! It computes what [`Qwen2::forward`] does, without gradients. Weights are packed for the loops
//! that read them. Adapters are added while a tile is in the registers. Keys and values are laid
//! out for the two products of attention. If only sums over logits are needed, the logits are never
//! all in memory.

mod adapter;
mod aligned_vec;
#[cfg_attr(not(target_arch = "x86_64"), path = "no_amx.rs")]
mod amx;
mod attention;
mod bf16;
mod context;
mod engine;
pub(crate) mod grid;
mod int8;
mod kv;
mod linear;
mod matrix;
#[cfg(test)]
mod noise;
mod pace;
mod pass;
pub(crate) mod piece;
mod plan;
mod read;
mod terms;
mod tile;

use std::sync::{Arc, Mutex, Weak};

use burn::tensor::Tensor;

pub(crate) use adapter::low_rank_bytes;
pub(crate) use attention::QUERIES;
pub(crate) use bf16::PairProducts;
pub(crate) use terms::products;
pub(crate) use tile::{FUSED, WIDTH as PANEL};

use adapter::{PackedAdapter, values};
use amx::Tiles;
use bf16::Rounded;
use grid::Grid;
use int8::Quantized;
use matrix::Matrix;
use terms::Terms;

use super::rope::Rotations;
use crate::config::Qwen2Config;
use crate::kernels::norm::normalize;
use crate::kernels::simd::widened;
use crate::lora::LoraAdapter;
use crate::model::parts::ModelParts;
use crate::model::{Attention, Layer, Mlp, Norm, Projection};
use crate::precision::Precision;
use crate::team::for_each_mut;

type PackedPlace = Arc<Mutex<Option<Arc<PackedAdapter>>>>;

/// An embedding that is not the head, row-major `[V, H]`: reading a token's row is one copy.
#[derive(Debug)]
enum EmbeddingTable {
    F32(Vec<f32>),
    Bf16(Vec<half::bf16>),
}

impl EmbeddingTable {
    /// Packs an embedding. With weights of eight bits it stays in f32, since a pass reads only one
    /// row of it per token.
    fn new(values: &[f32], precision: Precision) -> Self {
        match precision {
            Precision::F32 | Precision::Int8 => Self::F32(values.to_vec()),
            Precision::Bf16 => Self::Bf16(values.iter().copied().map(half::bf16::from_f32).collect()),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::F32(values) => size_of_val::<[f32]>(values),
            Self::Bf16(values) => size_of_val::<[half::bf16]>(values),
        }
    }

    /// Copies the row of a token to `out`.
    fn row(&self, token: usize, out: &mut [f32]) {
        match self {
            Self::F32(values) => out.copy_from_slice(&values[token * out.len()..][..out.len()]),
            Self::Bf16(values) => {
                let row = &values[token * out.len()..][..out.len()];
                out.iter_mut().zip(row).for_each(|(out, value)| *out = value.to_f32());
            }
        }
    }
}

/// Returns the name of the CPU instructions that multiply weights of a precision.
///
/// They depend only on the features of the processor, so that results on one machine are
/// bit-identical in every run.
#[must_use]
pub fn instructions(precision: Precision) -> String {
    match precision {
        Precision::Bf16 if PairProducts::get().is_some() => "AVX-512 BF16".to_owned(),
        _ => {
            let vectors = if precision == Precision::Int8 { int8::instructions() } else { tile::instructions() };
            if Tiles::get().is_some() { format!("{vectors} and AMX tiles") } else { vectors.to_owned() }
        }
    }
}

/// A packed model.
#[derive(Debug)]
pub(crate) struct CpuEngine {
    /// `None` if the columns of the head are the embedding.
    embedding: Option<EmbeddingTable>,
    layers: Vec<PackedLayer>,
    norm: PackedNorm,
    head: Matrix,
    rotations: Rotations,
    config: Qwen2Config,
    precision: Precision,
    /// The places of packed adapters whose originals are still in use. A place is empty until the
    /// adapter is packed.
    adapters: Mutex<Vec<(Weak<LoraAdapter>, PackedPlace)>>,
    /// Buffers of finished passes, for reuse.
    spare: Mutex<Vec<Buffers>>,
}

#[derive(Debug)]
struct PackedLayer {
    input_norm: PackedNorm,
    inner_norm: PackedNorm,
    /// In the order of [`Target::ALL`](crate::lora::Target::ALL).
    matrices: [Matrix; 7],
}

#[derive(Debug)]
struct PackedNorm {
    weight: Vec<f32>,
    epsilon: f32,
}

/// Buffers between the layers of a pass.
#[derive(Debug, Default)]
struct Buffers {
    normed: Grid,
    projected: Grid,
    mixed: Grid,
    inner: Grid,
    room: Room,
}

/// Buffers for rows in another [`InputForm`].
#[derive(Debug, Default)]
struct Room {
    bytes: Quantized,
    rounded: Rounded,
    terms: Terms,
}

impl PackedNorm {
    fn new(norm: &Norm) -> Self {
        Self { weight: values(&norm.weight.val()), epsilon: norm.epsilon() as f32 }
    }

    fn apply(&self, x: &Grid, out: &mut Grid) {
        /// Rows of a task.
        const PIECE: usize = 32;
        let rows = x.rows();
        let mut pieces: Vec<_> = out.pieces_mut(PIECE).collect();
        for_each_mut(&mut pieces, |piece, out| {
            let first = piece * PIECE;
            for (row, out) in (first..rows.min(first + PIECE)).zip(out.chunks_exact_mut(x.stride())) {
                widened!(normalize(out, &x.row(row)[..self.weight.len()], &self.weight, self.epsilon));
            }
        });
    }
}

impl PackedLayer {
    fn new(layer: Layer, precision: Precision) -> Self {
        let (input_norm, inner_norm) = (&layer.input_layernorm, &layer.post_attention_layernorm);
        let (input_norm, inner_norm) = (PackedNorm::new(input_norm), PackedNorm::new(inner_norm));
        let Attention { q_proj, k_proj, v_proj, o_proj, .. } = layer.self_attn;
        let Mlp { gate_proj, up_proj, down_proj } = layer.mlp;
        let projections = [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj];
        Self { input_norm, inner_norm, matrices: projections.map(|projection| pack(projection, precision)) }
    }
}

/// Returns how many of the first groups share a pass, given the number of tokens of each group.
fn portion(tokens: impl Iterator<Item = usize>) -> usize {
    /// Tokens that are worth a sweep over the weights. With many more, the states between layers
    /// leave the caches.
    const ENOUGH: usize = 512;
    let before = tokens.scan(0, |sum, tokens| Some(std::mem::replace(sum, *sum + tokens)));
    before.take_while(|before| *before < ENOUGH).count()
}

fn pack(projection: Projection, precision: Precision) -> Matrix {
    let bias = projection.bias.map(|bias| values(&bias.val()));
    let weight = projection.weight.into_value();
    let [input, output] = weight.dims();
    with_values(weight, |weight| Matrix::new(weight, [input, output], [output, 1], bias.as_deref(), precision))
}

/// Calls `then` with a tensor's values, row by row, without a copy if possible.
fn with_values<const D: usize, T>(tensor: Tensor<D>, then: impl FnOnce(&[f32]) -> T) -> T {
    let data = tensor.into_data();
    match data.as_slice::<f32>() {
        Ok(values) => then(values),
        Err(_) => then(&data.iter::<f32>().collect::<Vec<_>>()),
    }
}

impl CpuEngine {
    /// Packs a decoder part by part, so that at most one part is in memory twice.
    pub(crate) fn assemble<P: ModelParts>(
        embedding: Tensor<2>,
        config: &Qwen2Config,
        mut parts: P,
        precision: Precision,
    ) -> Result<Self, P::Error> {
        let shape @ [hidden, vocabulary] = [config.hidden_size, config.vocab_size];
        let (table, tied) = with_values(embedding, |values| match config.tie_word_embeddings {
            true => (None, Some(Matrix::new(values, shape, [1, hidden], None, precision))),
            false => (Some(EmbeddingTable::new(values, precision)), None),
        });
        let mut layers = Vec::with_capacity(config.num_hidden_layers);
        for index in 0..config.num_hidden_layers {
            layers.push(PackedLayer::new(parts.layer(index)?, precision));
        }
        let norm = PackedNorm::new(&parts.norm()?);
        let head =
            parts.head()?.map(|head| with_values(head, |values| Matrix::new(values, shape, [vocabulary, 1], None, precision)));
        Ok(Self {
            embedding: table,
            layers,
            norm,
            head: head.or(tied).expect("a model has a head, unless its configuration ties it to the embedding"),
            rotations: Rotations::new(config.head_dim, config.rope_theta),
            config: config.clone(),
            precision,
            adapters: Mutex::default(),
            spare: Mutex::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_takes_groups_until_it_is_full() {
        for (tokens, count) in
            [(vec![2000, 1], 1), (vec![7; 16], 16), (vec![100; 16], 6), (vec![1, 2000, 1], 2), (vec![512, 1], 1)]
        {
            assert_eq!(portion(tokens.iter().copied()), count, "{tokens:?}");
        }
    }
}
