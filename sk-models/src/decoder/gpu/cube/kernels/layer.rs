//! Kernels of the norm and the gate.

use cubecl::prelude::*;

use super::{row_of_cube, sum_of_cube};

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
    #[comptime] units: u32,
    #[define(C, O)] _formats: [ElemType; 2],
) {
    let mut shared = Shared::<[f32]>::new_slice(units as usize);
    let row = row_of_cube(rows);
    let start = row * width;
    let mut squares = 0.0f32;
    let mut i = UNIT_POS as usize;
    while i < width {
        let mut value = x[start + i];
        if comptime![adds] {
            value += f32::cast_from(change[row * change_stride + i]);
            if comptime![adapted] {
                value += delta[row * delta_stride + i];
            }
            sum[start + i] = value;
        }
        squares += value * value;
        i += CUBE_DIM as usize;
    }
    let total = sum_of_cube(squares, &mut shared);
    let scale = 1.0 / (total / f32::cast_from(width) + epsilon).sqrt();
    let mut i = UNIT_POS as usize;
    while i < width {
        let value = if comptime![adds] { sum[start + i] } else { x[start + i] };
        out[start + i] = O::cast_from(value * scale * weight[i]);
        i += CUBE_DIM as usize;
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
