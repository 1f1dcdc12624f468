//! Logits on a GPU. Only the blocks that a draw needs are copied to the host.

use burn::tensor::{DType, Tensor, TensorData};
use sk_core::TokenId;

use super::ops;
use crate::device::DeviceFailure;
use crate::kernels::simd::{exp, widened};

/// Logits `[M, V]` in blocks of neighbouring tokens.
///
/// A row of Qwen2.5 takes 600 KB, but a draw needs only the few hundred tokens that hold nearly all
/// of the mass. Two numbers per block identify the blocks that hold these tokens.
pub(crate) struct Blocks {
    /// `[M, blocks, BLOCK]`; −∞ fills the last block.
    logits: Tensor<3>,
    vocabulary: usize,
    /// The original logits of forbidden tokens, `[M, forbidden]`.
    forbidden: Option<Tensor<2>>,
}

/// Tokens in a block.
pub(crate) const BLOCK: usize = 64;

/// A summary of the blocks of a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outline {
    /// The largest logit of each block.
    pub(crate) largest: Vec<f32>,
    /// Σ e^{(z − max)·rate} of each block, with the largest logit of all as max.
    pub(crate) masses: Vec<f64>,
    /// Σ e^{z − max} over all tokens that are not forbidden.
    pub(crate) plain: f64,
    /// The requested logits.
    pub(crate) asked: Vec<f32>,
    /// The original logits of forbidden tokens.
    pub(crate) forbidden: Vec<f32>,
}

impl Outline {
    /// Parses the numbers of a row: the summary of `blocks` blocks as [`ops::outline`] returns it,
    /// then `asked` requested logits, then the forbidden ones.
    fn new(row: &[f32], blocks: usize, rate: f32, asked: usize) -> Self {
        let (largest, rest) = row.split_at(blocks);
        let (masses, rest) = rest.split_at(blocks);
        let (plain, rest) = rest.split_at(if rate == 1.0 { 0 } else { blocks });
        let (asked, forbidden) = rest.split_at(asked);
        let max = largest.iter().copied().fold(f32::MIN, f32::max);
        // Each block's mass is relative to the block's own maximum.
        let scaled = |masses: &[f32], rate: f32| -> Vec<f64> {
            let mut shares: Vec<f32> = largest.iter().map(|own| (own - max) * rate).collect();
            widened!(shares.iter_mut().for_each(|share| *share = exp(*share)));
            masses.iter().zip(shares).map(|(mass, share)| f64::from(*mass) * f64::from(share)).collect()
        };
        let masses = scaled(masses, rate);
        let plain = if rate == 1.0 { masses.iter().sum() } else { scaled(plain, 1.0).iter().sum() };
        Self { largest: largest.to_vec(), masses, plain, asked: asked.to_vec(), forbidden: forbidden.to_vec() }
    }

    /// Returns whether a logit of the row is NaN or +∞.
    pub(crate) fn is_broken(&self) -> bool {
        self.masses.iter().any(|mass| mass.is_nan())
    }
}

impl Blocks {
    /// Divides `[M, V]` into blocks.
    pub(crate) fn new(logits: Tensor<2>) -> Self {
        let [rows, vocabulary] = logits.dims();
        let blocks = vocabulary.div_ceil(BLOCK);
        let missing = blocks * BLOCK - vocabulary;
        let logits = if missing == 0 {
            logits
        } else {
            let rest = Tensor::<2>::full([rows, missing], f32::NEG_INFINITY, &logits.device()).cast(logits.dtype());
            Tensor::cat(vec![logits, rest], 1)
        };
        Self { logits: logits.reshape([rows, blocks, BLOCK]), vocabulary, forbidden: None }
    }

    /// Returns the blocks with the logits of `tokens` set to −∞ in every row.
    pub(crate) fn forbid(&self, tokens: &[TokenId]) -> Self {
        let mut places: Vec<usize> =
            tokens.iter().map(|&token| token as usize).filter(|&token| token < self.vocabulary).collect();
        places.sort_unstable();
        places.dedup();
        let Self { logits, vocabulary, .. } = self;
        if places.is_empty() {
            return Self { logits: logits.clone(), vocabulary: *vocabulary, forbidden: None };
        }
        let forbidden = Some(self.select(&places));
        let [_, blocks, _] = logits.dims();
        let mut penalty = vec![0.0_f32; blocks * BLOCK];
        places.iter().for_each(|&place| penalty[place] = f32::NEG_INFINITY);
        let penalty = Tensor::<3>::from_data(TensorData::new(penalty, [1, blocks, BLOCK]), &logits.device());
        Self { logits: logits.clone() + penalty.cast(logits.dtype()), vocabulary: *vocabulary, forbidden }
    }

    /// Returns the logits of some tokens of every row, `[M, tokens]`.
    fn select(&self, tokens: &[usize]) -> Tensor<2> {
        let [rows, blocks, _] = self.logits.dims();
        let flat = self.logits.clone().reshape([rows, blocks * BLOCK]);
        flat.select(1, Tensor::from_data(tokens, &self.logits.device())).cast(DType::F32)
    }

    /// Returns the outline of every row, with the logits of `tokens`.
    pub(crate) fn outline(&self, rate: f32, tokens: &[TokenId]) -> Result<Vec<Outline>, DeviceFailure> {
        let [rows, blocks, _] = self.logits.dims();
        let mut parts = vec![ops::outline(self.logits.clone(), rate)];
        if !tokens.is_empty() {
            parts.push(self.select(&tokens.iter().map(|&token| token as usize).collect::<Vec<_>>()));
        }
        parts.extend(self.forbidden.clone());
        let numbers = read(if parts.len() == 1 { parts.remove(0) } else { Tensor::cat(parts, 1) })?;
        Ok(numbers.chunks_exact(numbers.len() / rows).map(|row| Outline::new(row, blocks, rate, tokens.len())).collect())
    }

    /// Copies the logits of the blocks `(row, block)`, `BLOCK` each, in the given order.
    pub(crate) fn copy_blocks(&self, places: &[(usize, usize)]) -> Result<Vec<f32>, DeviceFailure> {
        let [rows, blocks, _] = self.logits.dims();
        let places: Vec<usize> = places.iter().map(|(row, block)| row * blocks + block).collect();
        let flat = self.logits.clone().reshape([rows * blocks, BLOCK]);
        read(flat.select(0, Tensor::from_data(&places[..], &self.logits.device())))
    }

    /// Copies all logits, `[M, V]`.
    pub(crate) fn whole(self) -> Result<Vec<f32>, DeviceFailure> {
        let [rows, blocks, _] = self.logits.dims();
        read(self.logits.reshape([rows, blocks * BLOCK]).slice([0..rows, 0..self.vocabulary]))
    }
}

/// Copies a float tensor's values to the host.
pub(in crate::decoder) fn read<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>, DeviceFailure> {
    tensor.try_into_vec_as::<f32>().map_err(|e| DeviceFailure { message: e.to_string() })
}

/// Returns the argmax of each row of `[M, V]`, or `None` for a row with a NaN or +∞. Among equal
/// logits, the first wins.
pub(in crate::decoder) fn argmax(logits: Tensor<2>) -> Result<Vec<Option<TokenId>>, DeviceFailure> {
    let pairs = read(ops::argmax(logits))?;
    Ok(pairs.chunks_exact(2).map(|pair| (pair[1] == 0.0).then_some(pair[0] as TokenId)).collect())
}
