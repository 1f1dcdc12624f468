//! Kernels of the norm and the gate.

use cubecl::prelude::*;

use super::{row_of_cube, sum_of_cube};

/// Adds the changes to a row and normalises it. Each of the `units` units of a cube keeps up to
/// `columns` columns in registers.
#[cube(launch)]
pub(in crate::decoder::gpu::cube) fn norm_kernel<C: Float, O: Float>(
    x: &[f32],
    change: &[C],
    delta: &[f32],
    weight: &[f32],
    sum: &mut [f32],
    out: &mut [O],
    rows: usize,
    width: usize,
    change_stride: usize,
    delta_stride: usize,
    epsilon: f32,
    #[comptime] adds: bool,
    #[comptime] adapted: bool,
    #[comptime] units: usize,
    #[comptime] columns: usize,
    #[define(C, O)] _formats: [ElemType; 2],
) {
    let mut shared = Shared::<[f32]>::new_slice(units);
    let row = row_of_cube(rows);
    let start = row * width;
    let unit = UNIT_POS as usize;
    // All reads come before the first write, so that none waits for another.
    let mut values = Array::<f32>::new(columns);
    let mut weights = Array::<f32>::new(columns);
    #[unroll]
    for c in 0..columns {
        // Columns beyond the row are clamped and neither added nor written.
        let i = min(unit + c * units, width - 1);
        values[c] = x[start + i];
        if comptime![adds] {
            values[c] += f32::cast_from(change[row * change_stride + i]);
            if comptime![adapted] {
                values[c] += delta[row * delta_stride + i];
            }
        }
        weights[c] = weight[i];
    }
    let mut squares = 0.0f32;
    #[unroll]
    for c in 0..columns {
        let i = unit + c * units;
        if i < width {
            squares += values[c] * values[c];
            if comptime![adds] {
                sum[start + i] = values[c];
            }
        }
    }
    let scale = 1.0 / (sum_of_cube(squares, &mut shared) / f32::cast_from(width) + epsilon).sqrt();
    #[unroll]
    for c in 0..columns {
        let i = unit + c * units;
        if i < width {
            out[start + i] = O::cast_from(values[c] * scale * weights[c]);
        }
    }
}

#[cube(launch)]
pub(in crate::decoder::gpu::cube) fn gate_kernel<I: Float, O: Float>(
    both: &[I],
    delta: &[f32],
    out: &mut [O],
    stride: usize,
    delta_stride: usize,
    width: usize,
    count: usize,
    #[comptime] adapted: bool,
    #[define(I, O)] _formats: [ElemType; 2],
) {
    if ABSOLUTE_POS >= count {
        terminate!();
    }
    let row = ABSOLUTE_POS / width;
    let column = ABSOLUTE_POS % width;
    let mut gate = f32::cast_from(both[row * stride + column]);
    let mut up = f32::cast_from(both[row * stride + width + column]);
    if comptime![adapted] {
        gate += delta[row * delta_stride + column];
        up += delta[row * delta_stride + width + column];
    }
    out[ABSOLUTE_POS] = O::cast_from(gate / (1.0 + (-gate).exp()) * up);
}
