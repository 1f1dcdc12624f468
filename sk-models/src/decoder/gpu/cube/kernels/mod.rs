//! The kernels.

pub(super) mod attention;
pub(super) mod draw;
pub(super) mod layer;
pub(super) mod logits;
pub(super) mod products;

use cubecl::prelude::*;

/// Returns the sum of `own` over the units of a cube. All units get the result.
#[cube]
fn sum_of_cube(own: f32, shared: &mut Shared<[f32]>) -> f32 {
    fold_cube(own, shared, false)
}

/// Returns the maximum of `own` over the units of a cube. All units get the result.
#[cube]
fn max_of_cube(own: f32, shared: &mut Shared<[f32]>) -> f32 {
    fold_cube(own, shared, true)
}

/// Returns the sum or, if `largest`, the maximum of `own` over the units of a cube.
#[cube]
fn fold_cube(own: f32, shared: &mut Shared<[f32]>, #[comptime] largest: bool) -> f32 {
    let unit = UNIT_POS as usize;
    sync_cube();
    shared[unit] = own;
    sync_cube();
    let mut half = (CUBE_DIM / 2) as usize;
    while half > 0 {
        if unit < half {
            let other = shared[unit + half];
            if largest {
                shared[unit] = max(shared[unit], other);
            } else {
                shared[unit] += other;
            }
        }
        half /= 2;
        sync_cube();
    }
    shared[0]
}

/// Returns the row of this cube. Cubes beyond the last row repeat it.
#[cube]
fn row_of_cube(rows: usize) -> usize {
    min(CUBE_POS, rows - 1)
}
