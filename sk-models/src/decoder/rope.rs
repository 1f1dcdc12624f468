//! Rotary position embedding of single heads, in Qwen's half-rotation form.

use std::sync::{Arc, Mutex, PoisonError};

use crate::model::rope::frequencies;

/// Cosines and sines by position, computed once and extended as contexts grow.
#[derive(Debug)]
pub(super) struct Rotations {
    half: usize,
    /// Angles per position.
    frequencies: Vec<f64>,
    table: Mutex<Arc<Table>>,
}

/// Cosines and sines of the positions from zero: `[positions, 2·half]`, cosines first.
#[derive(Debug, Default)]
pub(super) struct Table {
    values: Vec<f32>,
    half: usize,
}

impl Rotations {
    pub(super) fn new(head_dim: usize, base: f64) -> Self {
        Self { half: head_dim / 2, frequencies: frequencies(head_dim, base), table: Mutex::default() }
    }

    /// Returns a table of at least `positions` positions.
    ///
    /// Angles are computed in f64 and rounded once.
    pub(super) fn reach(&self, positions: usize) -> Arc<Table> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let known = table.values.len() / (2 * self.half).max(1);
        if positions > known || table.half != self.half {
            let mut values = table.values.clone();
            for position in known..positions.next_power_of_two() {
                let angles = self.frequencies.iter().map(|frequency| (position as f64 * frequency).sin_cos());
                values.extend(angles.clone().map(|(_, cos)| cos as f32));
                values.extend(angles.map(|(sin, _)| sin as f32));
            }
            *table = Arc::new(Table { values, half: self.half });
        }
        Arc::clone(&table)
    }
}

impl Table {
    /// Returns the cosines, then the sines, of each position.
    pub(super) fn values(&self) -> &[f32] {
        &self.values
    }

    /// Writes `x`, rotated to `position` and scaled by `scale`, to `out`.
    #[inline(always)]
    pub(super) fn rotate(&self, position: usize, x: &[f32], scale: f32, out: &mut [f32]) {
        let (cos, sin) = self.values[position * 2 * self.half..][..2 * self.half].split_at(self.half);
        let (x1, x2) = x.split_at(self.half);
        let (y1, y2) = out.split_at_mut(self.half);
        for j in 0..self.half {
            y1[j] = (x1[j] * cos[j] - x2[j] * sin[j]) * scale;
            y2[j] = (x2[j] * cos[j] + x1[j] * sin[j]) * scale;
        }
    }

    /// Rotates `count` rows to the positions from `position` on and writes them to columns of
    /// `out`, whose rows are `stride` apart. `x` returns each row.
    #[inline(always)]
    pub(super) fn rotate_columns<'a>(
        &self,
        (position, count): (usize, usize),
        x: impl Fn(usize) -> &'a [f32],
        out: &mut [f32],
        stride: usize,
    ) {
        /// Rows and columns of a block, which is rotated along rows and written along columns.
        const SIDE: usize = 16;
        for first in (0..count).step_by(SIDE) {
            let rows = SIDE.min(count - first);
            for column in (0..self.half).step_by(SIDE) {
                let columns = SIDE.min(self.half - column);
                let mut rotated = [[[0.0_f32; SIDE]; SIDE]; 2];
                let [lower, upper] = &mut rotated;
                for (row, (lower, upper)) in lower.iter_mut().zip(upper).take(rows).enumerate() {
                    let angles = &self.values[(position + first + row) * 2 * self.half..][..2 * self.half];
                    let (cos, sin) = (&angles[column..][..columns], &angles[self.half + column..][..columns]);
                    let x = x(first + row);
                    let (x1, x2) = (&x[column..][..columns], &x[self.half + column..][..columns]);
                    for j in 0..columns {
                        lower[j] = x1[j] * cos[j] - x2[j] * sin[j];
                        upper[j] = x2[j] * cos[j] + x1[j] * sin[j];
                    }
                }
                for j in 0..columns {
                    for (half, rotated) in rotated.iter().enumerate() {
                        let out = &mut out[(half * self.half + column + j) * stride + first..][..rows];
                        for (out, row) in out.iter_mut().zip(rotated) {
                            *out = row[j];
                        }
                    }
                }
            }
        }
    }
}
