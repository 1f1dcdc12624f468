//! Kernels that summarise logits.

use cubecl::prelude::*;

use super::{max_of_cube, row_of_cube, sum_of_cube};

#[cube(launch)]
pub(in crate::decoder::gpu::cube) fn read_kernel<L: Float>(
    logits: &[L],
    targets: &[i32],
    out: &mut [f32],
    rows: usize,
    stride: usize,
    vocabulary: usize,
    #[comptime] units: u32,
    #[define(L)] _format: ElemType,
) {
    let mut shared = Shared::<[f32]>::new_slice(units as usize);
    let row = row_of_cube(rows);
    let start = row * stride;
    let mut own = f32::min_value();
    let mut i = UNIT_POS as usize;
    while i < vocabulary {
        own = max(own, f32::cast_from(logits[start + i]));
        i += CUBE_DIM as usize;
    }
    let largest = max_of_cube(own, &mut shared);
    let mut total = 0.0f32;
    let mut i = UNIT_POS as usize;
    while i < vocabulary {
        total += (f32::cast_from(logits[start + i]) - largest).exp();
        i += CUBE_DIM as usize;
    }
    let entropy = sum_of_cube(total, &mut shared).ln();
    if UNIT_POS == 0 {
        let target = f32::cast_from(logits[start + targets[row] as usize]);
        out[2 * row] = target - largest - entropy;
        out[2 * row + 1] = entropy;
    }
}

#[cube(launch)]
pub(in crate::decoder::gpu::cube) fn argmax_kernel<L: Float>(
    logits: &[L],
    out: &mut [f32],
    rows: usize,
    stride: usize,
    vocabulary: usize,
    #[comptime] units: u32,
    #[define(L)] _format: ElemType,
) {
    let mut largest = Shared::<[f32]>::new_slice(units as usize);
    let mut places = Shared::<[u32]>::new_slice(units as usize);
    let mut broken = Shared::<[f32]>::new_slice(units as usize);
    let row = row_of_cube(rows);
    let start = row * stride;
    let unit = UNIT_POS as usize;
    let mut best = f32::min_value();
    let mut place = unit;
    let mut odd = 0.0f32;
    let mut i = unit;
    while i < vocabulary {
        let value = f32::cast_from(logits[start + i]);
        // Tested by bits: a shader compiler may assume that there is no NaN.
        let bits = u32::reinterpret(value);
        if bits & 0x7f80_0000 == 0x7f80_0000 && bits != 0xff80_0000 {
            odd += 1.0;
        }
        if value > best {
            best = value;
            place = i;
        }
        i += CUBE_DIM as usize;
    }
    places[unit] = place as u32;
    largest[unit] = best;
    let odds = sum_of_cube(odd, &mut broken);
    let mut half = (CUBE_DIM / 2) as usize;
    while half > 0 {
        if unit < half {
            let other = largest[unit + half];
            let own = largest[unit];
            if other > own || (other == own && places[unit + half] < places[unit]) {
                largest[unit] = other;
                places[unit] = places[unit + half];
            }
        }
        half /= 2;
        sync_cube();
    }
    if UNIT_POS == 0 {
        out[2 * row] = f32::cast_from(places[0]);
        out[2 * row + 1] = odds;
    }
}
