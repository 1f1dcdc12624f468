use burn::tensor::{Tensor, TensorData};
use sk_core::TokenId;

use super::hidden::{DeviceFailure, indices, read};

/// Next-token logits, one row for each state, where they were computed.
pub(crate) enum Predictions {
    /// In the memory of the processor: `[M, V]`.
    Near(Vec<f32>),
    /// On a device from which a whole row takes long to come.
    Far(Box<Blocks>),
}

/// Logits `[M, V]` in blocks of neighbouring tokens, which are looked at from afar.
///
/// A row of Qwen2.5 is 600 KB, of which a draw needs the few hundred tokens that have nearly all of the mass. Two numbers per block say
/// where those are.
pub(crate) struct Blocks {
    /// `[M, blocks, BLOCK]`; the last block is filled up with −∞.
    logits: Tensor<3>,
    vocabulary: usize,
}

/// Tokens in a block.
pub(crate) const BLOCK: usize = 64;

/// What is known of a row before any of its blocks has been looked at.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outline {
    /// The largest logit of each block.
    pub(crate) largest: Vec<f32>,
    /// Σ e^{(z − max)·rate} of each block.
    pub(crate) masses: Vec<f32>,
    /// The same at rate 1, where that is another one.
    pub(crate) plain: Option<Vec<f32>>,
    /// The logits that were asked for.
    pub(crate) asked: Vec<f32>,
}

impl Outline {
    /// Whether a logit of the row is NaN or +∞, or all are −∞.
    pub(crate) fn is_broken(&self) -> bool {
        self.masses.iter().any(|mass| mass.is_nan())
    }
}

impl Blocks {
    /// Cuts `[M, V]` into blocks.
    pub(crate) fn new(logits: Tensor<2>) -> Self {
        let [rows, vocabulary] = logits.dims();
        let blocks = vocabulary.div_ceil(BLOCK);
        let missing = blocks * BLOCK - vocabulary;
        let logits = if missing == 0 {
            logits
        } else {
            let rest = Tensor::full([rows, missing], f32::NEG_INFINITY, &logits.device());
            Tensor::cat(vec![logits, rest], 1)
        };
        Self { logits: logits.reshape([rows, blocks, BLOCK]), vocabulary }
    }

    /// Makes tokens impossible in every row.
    pub(crate) fn forbid(self, tokens: &[TokenId]) -> Self {
        if tokens.is_empty() {
            return self;
        }
        let [_, blocks, _] = self.logits.dims();
        let mut penalty = vec![0.0_f32; blocks * BLOCK];
        for &token in tokens {
            if (token as usize) < self.vocabulary {
                penalty[token as usize] = f32::NEG_INFINITY;
            }
        }
        let penalty = Tensor::<3>::from_data(TensorData::new(penalty, [1, blocks, BLOCK]), &self.logits.device());
        Self { logits: self.logits + penalty, ..self }
    }

    /// An outline of every row, with the logits of `tokens`.
    pub(crate) fn outline(&self, rate: f32, tokens: &[TokenId]) -> Result<Vec<Outline>, DeviceFailure> {
        let [rows, blocks, _] = self.logits.dims();
        let largest = self.logits.clone().max_dim(2);
        let below = self.logits.clone() - largest.clone().max_dim(1);
        let masses = |rate: f32| below.clone().mul_scalar(rate).exp().sum_dim(2).reshape([rows, blocks]);
        let mut parts = vec![largest.reshape([rows, blocks]), masses(rate)];
        if rate != 1.0 {
            parts.push(masses(1.0));
        }
        if !tokens.is_empty() {
            let places: Vec<usize> = tokens.iter().map(|&token| token as usize).collect();
            let flat = self.logits.clone().reshape([rows, blocks * BLOCK]);
            parts.push(flat.select(1, indices(&places, &self.logits.device())));
        }
        let numbers = read(Tensor::cat(parts, 1))?;
        let outline = |row: &[f32]| {
            let (largest, rest) = row.split_at(blocks);
            let (masses, rest) = rest.split_at(blocks);
            let (plain, asked) = rest.split_at(if rate == 1.0 { 0 } else { blocks });
            Outline {
                largest: largest.to_vec(),
                masses: masses.to_vec(),
                plain: (rate != 1.0).then(|| plain.to_vec()),
                asked: asked.to_vec(),
            }
        };
        Ok(numbers.chunks_exact(numbers.len() / rows).map(outline).collect())
    }

    /// The logits of some blocks of rows, `BLOCK` for each, in the order in which they are named as `(row, block)`.
    pub(crate) fn look_into(&self, places: &[(usize, usize)]) -> Result<Vec<f32>, DeviceFailure> {
        let [rows, blocks, _] = self.logits.dims();
        let places: Vec<usize> = places.iter().map(|(row, block)| row * blocks + block).collect();
        let flat = self.logits.clone().reshape([rows * blocks, BLOCK]);
        read(flat.select(0, indices(&places, &self.logits.device())))
    }

    /// All of it: `[M, V]`.
    pub(crate) fn whole(self) -> Result<Vec<f32>, DeviceFailure> {
        let [rows, blocks, _] = self.logits.dims();
        read(self.logits.reshape([rows, blocks * BLOCK]).slice([0..rows, 0..self.vocabulary]))
    }
}
