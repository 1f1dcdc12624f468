//! Low-rank adapters, packed in panels.

use std::array;

use burn::tensor::Tensor;

use super::numbers::Numbers;
use super::tile::{self, Place, Product, WIDTH, multiply};
use crate::config::Qwen2Config;
use crate::lora::{AdapterError, LoraAdapter, LowRank, Target};

/// The low-rank update `s·A·B` of one linear layer.
#[derive(Debug)]
pub(crate) struct PackedLowRank {
    /// `[input, r]` in panels of 16 columns.
    down: Numbers,
    /// `[r, output]` in panels, the scale multiplied in.
    up: Numbers,
    pub(super) input: usize,
    /// r, padded to whole vectors.
    rank: usize,
}

/// Columns of a panel of A.
const RANKS: usize = 16;

impl PackedLowRank {
    /// Packs row-major A `[input, rank]` and B `[rank, output]`.
    pub(crate) fn new(a: &[f32], b: &[f32], [input, rank, output]: [usize; 3], scale: f32) -> Self {
        let padded = rank.next_multiple_of(RANKS);
        let mut down = Numbers::new(input * padded);
        for (panel, first) in down.chunks_exact_mut((input * RANKS).max(1)).zip((0..rank).step_by(RANKS)) {
            let columns = RANKS.min(rank - first);
            for (line, row) in panel.chunks_exact_mut(RANKS).zip(a.chunks_exact(rank)) {
                line[..columns].copy_from_slice(&row[first..first + columns]);
            }
        }
        let mut up = Numbers::new(output.next_multiple_of(WIDTH) * padded);
        for (panel, first) in up.chunks_exact_mut((padded * WIDTH).max(1)).zip((0..output).step_by(WIDTH)) {
            let columns = WIDTH.min(output - first);
            for (line, row) in panel.chunks_exact_mut(WIDTH).zip(b.chunks_exact(output)) {
                line.iter_mut().zip(&row[first..first + columns]).for_each(|(to, from)| *to = scale * from);
            }
        }
        Self { down, up, input, rank: padded }
    }

    /// Returns the padded rank.
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// Computes `x·A` for `rows` rows of `x` into `low`.
    ///
    /// # Safety
    ///
    /// Both places hold that many rows, `low` has a stride of at least the rank, and nothing else
    /// uses these rows of `low`.
    pub(super) unsafe fn lower(&self, rows: usize, x: Place<*const f32>, low: Place<*mut f32>) {
        for (index, panel) in self.down.chunks_exact((self.input * RANKS).max(1)).enumerate() {
            // SAFETY: the caller's promise; a panel is `[input, 16]`.
            unsafe {
                let low = Place { start: low.start.add(index * RANKS), ..low };
                multiply([rows, self.input, 1], x, Place { start: panel.as_ptr(), stride: RANKS }, low, false);
            }
        }
    }

    /// Returns the product `low·B` for one panel of the output.
    pub(super) fn raise(&self, panel: usize, low: Place<*const f32>) -> Product {
        Product { depth: self.rank, a: low, b: tile::panel(&self.up, self.rank, panel) }
    }
}

/// An adapter, packed once per engine; seats refer to it.
#[derive(Debug)]
pub(crate) struct PackedAdapter {
    layers: Vec<[Option<PackedLowRank>; Target::ALL.len()]>,
    embedding: Option<EmbeddingUpdate>,
    pub(super) head: Option<PackedLowRank>,
}

/// The low-rank update of the embedding: the token's row of A, times B.
#[derive(Debug)]
struct EmbeddingUpdate {
    /// `[V, r]`.
    rows: Vec<f32>,
    /// `[r, H]`, the scale multiplied in.
    up: Vec<f32>,
    rank: usize,
}

impl PackedAdapter {
    /// Packs an adapter. O(its parameters).
    ///
    /// # Errors
    ///
    /// If the adapter was made for another shape. The error names it by `index`.
    pub(crate) fn new(adapter: &LoraAdapter, index: usize, config: &Qwen2Config) -> Result<Self, AdapterError> {
        if adapter.layers.len() != config.num_hidden_layers {
            let (found, expected) = (adapter.layers.len(), config.num_hidden_layers);
            return Err(AdapterError::Layers { adapter: index, found, expected });
        }
        let delta = |module: &str, entry: Option<&LowRank>, dims: (usize, usize)| {
            entry.map(|entry| entry.check(index, module, dims).map(|()| pack(entry))).transpose()
        };
        let mut layers = Vec::with_capacity(adapter.layers.len());
        for (number, layer) in adapter.layers.iter().enumerate() {
            let mut targets = array::from_fn(|_| None);
            for target in Target::ALL {
                let module = format!("layers.{number}.{}", target.path());
                targets[target as usize] = delta(&module, layer.get(target), target.dims(config))?;
            }
            layers.push(targets);
        }
        let (vocab, hidden) = (config.vocab_size, config.hidden_size);
        let embedding = match &adapter.embed_tokens {
            None => None,
            Some(entry) => {
                entry.check(index, "embed_tokens", (vocab, hidden))?;
                let scale = entry.scale as f32;
                let up = values(&entry.b).iter().map(|value| scale * value).collect();
                Some(EmbeddingUpdate { rows: values(&entry.a), up, rank: entry.rank() })
            }
        };
        Ok(Self { layers, embedding, head: delta("lm_head", adapter.lm_head.as_ref(), (hidden, vocab))? })
    }

    pub(crate) fn get(&self, layer: usize, target: Target) -> Option<&PackedLowRank> {
        self.layers[layer][target as usize].as_ref()
    }

    /// Adds the low-rank update of the token's embedding to `x`.
    pub(crate) fn embed(&self, token: usize, x: &mut [f32]) {
        let Some(EmbeddingUpdate { rows, up, rank }) = &self.embedding else { return };
        for (low, up) in rows[token * rank..][..*rank].iter().zip(up.chunks_exact(up.len() / rank)) {
            for (x, up) in x.iter_mut().zip(up) {
                *x += low * up;
            }
        }
    }
}

fn pack(entry: &LowRank) -> PackedLowRank {
    let ([input, rank], [_, output]) = (entry.a.dims(), entry.b.dims());
    PackedLowRank::new(&values(&entry.a), &values(&entry.b), [input, rank, output], entry.scale as f32)
}

/// Copies the values of a tensor to the host, row by row.
pub(super) fn values<const D: usize>(tensor: &Tensor<D>) -> Vec<f32> {
    super::with_values(tensor.clone(), <[f32]>::to_vec)
}
