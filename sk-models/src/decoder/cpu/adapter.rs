//! Low-rank adapters, packed in panels.

use std::array;

use burn::tensor::Tensor;

use super::aligned_vec::AlignedVec;
use super::bf16::{Bf16Weights, PairProducts, Rounded};
use super::grid::Grid;
use super::int8::Vnni;
use super::matrix::{Input, Matrix};
use super::tile::{self, Product, Strided, WIDTH, multiply_all};
use crate::config::Qwen2Config;
use crate::lora::{AdapterError, LoraAdapter, LowRank, Target};
use crate::precision::Precision;
use crate::team::SharedSlice;

/// The low-rank update `s·A·B` of one linear layer.
///
/// A is rounded to bytes beside weights in int8 if the processor has AVX-512 VNNI, and to bf16 beside
/// weights in bf16 if it has [`PairProducts`]. So is B, to bf16, beside both.
#[derive(Debug)]
pub(crate) struct PackedLowRank {
    /// A, `[input, r]`.
    down: Matrix,
    up: Up,
    pub(super) rank: usize,
}

/// s·B, `[r, output]`.
#[derive(Debug)]
enum Up {
    /// In panels.
    F32(AlignedVec),
    Bf16(Bf16Weights, PairProducts),
}

impl PackedLowRank {
    /// Packs row-major A `[input, rank]` and B `[rank, output]` for weights of `precision`.
    pub(crate) fn new(a: &[f32], b: &[f32], [input, rank, output]: [usize; 3], scale: f32, precision: Precision) -> Self {
        let proof = if precision == Precision::F32 { None } else { PairProducts::get() };
        let fastest = match precision {
            Precision::Bf16 if proof.is_some() => Precision::Bf16,
            Precision::Int8 if Vnni::get().is_some() => Precision::Int8,
            _ => Precision::F32,
        };
        let up = match proof {
            Some(proof) => Up::Bf16(Bf16Weights::new([rank, output], |k, column| scale * b[k * output + column]), proof),
            None => {
                let mut up = AlignedVec::new(output.next_multiple_of(WIDTH) * rank);
                for (panel, first) in up.chunks_exact_mut((rank * WIDTH).max(1)).zip((0..output).step_by(WIDTH)) {
                    let columns = WIDTH.min(output - first);
                    for (line, row) in panel.chunks_exact_mut(WIDTH).zip(b.chunks_exact(output)) {
                        line.iter_mut().zip(&row[first..first + columns]).for_each(|(to, from)| *to = scale * from);
                    }
                }
                Up::F32(up)
            }
        };
        Self { down: Matrix::new(a, [input, rank], [rank, 1], None, fastest), up, rank }
    }

    /// Computes `x·A` for rows `first..first + rows`.
    ///
    /// # Safety
    ///
    /// The parts are alive and hold these rows of at least the rank, and nothing else uses them.
    pub(super) unsafe fn lower(&self, [first, rows]: [usize; 2], x: Input<'_>, low: LowParts) {
        let LowParts { whole: (whole, stride), rounded: (rounded, pairs) } = low;
        for panel in 0..self.down.count() {
            let vectors = (self.rank - panel * WIDTH).min(WIDTH).div_ceil(16);
            let c = Strided { start: whole.at(first * stride + panel * WIDTH), stride };
            // SAFETY: the caller's promise; a row is padded to whole panels.
            unsafe { self.down.multiply(panel, [first, rows, vectors], x, c, false) };
        }
        if let Up::Bf16(_, proof) = self.up {
            for row in first..first + rows {
                // SAFETY: the caller's promise.
                unsafe { proof.round(whole.slice(row * stride, self.rank), rounded.slice(row * pairs, pairs)) };
            }
        }
    }

    /// Returns the product `low·B` for the rows from `row` on and one panel of the output, or
    /// `None` if B is in bf16.
    pub(super) fn product(&self, panel: usize, row: usize, low: &LowRows) -> Option<Product> {
        match &self.up {
            Up::F32(up) => Some(Product { depth: self.rank, a: low.whole.rows_from(row), b: tile::panel(up, self.rank, panel) }),
            Up::Bf16(..) => None,
        }
    }

    /// Adds the product `low·B` of rows `first..first + rows` to one panel of the output.
    ///
    /// # Safety
    ///
    /// C holds that many rows of [`WIDTH`] columns, and nothing else uses them.
    pub(super) unsafe fn raise(&self, panel: usize, [first, rows]: [usize; 2], low: &LowRows, c: Strided<*mut f32>) {
        // SAFETY: `low` holds these rows, and C is valid by the caller's promise.
        unsafe {
            match &self.up {
                Up::F32(_) => multiply_all([rows, 2], self.product(panel, first, low).as_slice(), c, true),
                Up::Bf16(up, _) => up.multiply_rounded(panel, [first, rows, 2], &low.rounded, c, true),
            }
        }
    }
}

/// The rows `x·A` of a layer, and their rounding if B is in bf16.
#[derive(Debug, Default)]
pub(crate) struct LowRows {
    whole: Grid,
    rounded: Rounded,
}

/// The memory of [`LowRows`]: numbers or pairs, and how many a row has.
#[derive(Clone, Copy)]
pub(super) struct LowParts {
    whole: (SharedSlice<f32>, usize),
    rounded: (SharedSlice<u32>, usize),
}

impl LowRows {
    /// Makes room for the rows of the given updates.
    pub(super) fn reshape<'a>(&mut self, rows: usize, updates: impl Iterator<Item = &'a PackedLowRank> + Clone) -> LowParts {
        let rank = |update: &PackedLowRank| update.rank;
        let rounded = |update: &&PackedLowRank| matches!(update.up, Up::Bf16(..));
        self.whole.reshape(rows, updates.clone().map(rank).max().unwrap_or(0));
        let pairs = self.rounded.reshape(rows, updates.filter(rounded).map(rank).max().unwrap_or(0));
        LowParts { whole: (self.whole.parts(), self.whole.stride()), rounded: (self.rounded.parts(), pairs) }
    }
}

/// Returns the most bytes that a low-rank update of these widths and this rank takes: those of its
/// matrices and those of a packed copy, in which the columns of A and of B are padded to whole panels.
pub(crate) fn low_rank_bytes([input, rank, output]: [usize; 3]) -> u64 {
    let packed = input * rank.next_multiple_of(WIDTH) + rank * output.next_multiple_of(WIDTH);
    ((rank * (input + output) + packed) * size_of::<f32>()) as u64
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
    /// Packs an adapter for weights of `precision`. O(its parameters).
    ///
    /// # Errors
    ///
    /// If the adapter was made for another shape. The error names it by `index`.
    pub(crate) fn new(
        adapter: &LoraAdapter,
        index: usize,
        config: &Qwen2Config,
        precision: Precision,
    ) -> Result<Self, AdapterError> {
        if adapter.layers.len() != config.num_hidden_layers {
            let (found, expected) = (adapter.layers.len(), config.num_hidden_layers);
            return Err(AdapterError::Layers { adapter: index, found, expected });
        }
        let delta = |module: &str, entry: Option<&LowRank>, dims: (usize, usize)| {
            entry.map(|entry| entry.check(index, module, dims).map(|()| pack(entry, precision))).transpose()
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

fn pack(entry: &LowRank, precision: Precision) -> PackedLowRank {
    let ([input, rank], [_, output]) = (entry.a.dims(), entry.b.dims());
    PackedLowRank::new(&values(&entry.a), &values(&entry.b), [input, rank, output], entry.scale as f32, precision)
}

/// Copies the values of a tensor to the host, row by row.
pub(super) fn values<const D: usize>(tensor: &Tensor<D>) -> Vec<f32> {
    super::with_values(tensor.clone(), <[f32]>::to_vec)
}
