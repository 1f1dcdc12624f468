//! Products with a frozen weight in bf16, and their gradient with respect to the input.
//!
//! A bf16 number is the upper half of an f32, so widening is exact. A few rows are widened at a
//! time, so the weight is never in f32 as a whole.

use half::bf16;
use rayon::prelude::*;

use super::product::wide_product;

/// Numbers that are widened at a time: 8 MB, which fit into the last-level cache.
const BLOCK: usize = 1 << 21;
/// Numbers that one task widens.
const PIECE: usize = 1 << 15;

/// A weight in memory, `[rows, columns]` without gaps.
#[derive(Clone, Copy)]
pub(super) struct FrozenWeight<'a> {
    pub(super) values: &'a [bf16],
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl FrozenWeight<'_> {
    /// Calls `work` with the first row, the number of rows, and the values of each block of rows.
    fn blocks(self, mut work: impl FnMut(usize, usize, &[f32])) {
        let Self { values, rows, columns } = self;
        let height = (BLOCK / columns).clamp(1, rows);
        let mut wide = vec![0.0_f32; height * columns];
        for (block, narrow) in values.chunks(height * columns).enumerate() {
            let wide = &mut wide[..narrow.len()];
            wide.par_chunks_mut(PIECE).zip(narrow.par_chunks(PIECE)).for_each(|(wide, narrow)| {
                for (wide, &narrow) in wide.iter_mut().zip(narrow) {
                    *wide = f32::from_bits(u32::from(narrow.to_bits()) << 16);
                }
            });
            work(block * height, narrow.len() / columns, wide);
        }
    }

    /// Returns `x·W`, `[M, rows]` to `[M, columns]`.
    pub(super) fn times(self, x: &[f32]) -> Vec<f32> {
        let Self { rows, columns, .. } = self;
        let count = x.len() / rows;
        let mut y = vec![0.0; count * columns];
        self.blocks(|first, height, block| {
            let shape = [count, columns, height];
            wide_product(shape, (&mut y, columns), (&x[first..], rows, 1), (block, columns, 1), first > 0);
        });
        y
    }

    /// Returns `x·Wᵀ`, `[M, columns]` to `[M, rows]`.
    pub(super) fn times_transposed(self, x: &[f32]) -> Vec<f32> {
        let Self { rows, columns, .. } = self;
        let count = x.len() / columns;
        let mut y = vec![0.0; count * rows];
        self.blocks(|first, height, block| {
            let shape = [count, height, columns];
            wide_product(shape, (&mut y[first..], rows), (x, columns, 1), (block, 1, columns), false);
        });
        y
    }
}
