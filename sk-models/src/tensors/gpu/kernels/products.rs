//! A few rows times a matrix.

use cubecl::prelude::*;

/// How many units add up each of so many sums: a power of two, and no more than the sums they leave.
pub(in crate::tensors::gpu) const fn parts_of_sum(values: usize, units: usize) -> usize {
    let mut parts = 1;
    while 2 * parts * values <= units && 4 * parts * parts <= units {
        parts *= 2;
    }
    parts
}

/// A few rows times the columns of a matrix, `span` of which are the work of a cube: its units share the sum, so that the matrix is read
/// once, in whole lines, by as many units as there can be.
///
/// Sums lie in registers by row and column, and are added up over the units at the end. The last cubes have columns of their neighbours
/// again where `span` does not divide them.
#[cube(launch)]
pub(in crate::tensors::gpu) fn rows_kernel<X: Float, W: Float, V: Size>(
    x: &[Vector<X, V>],
    weight: &[Vector<W, V>],
    out: &mut [f32],
    depth: usize,
    x_stride: usize,
    weight_stride: usize,
    columns: usize,
    #[comptime] rows: usize,
    #[comptime] span: usize,
    #[comptime] units: usize,
    #[define(X, W)] _formats: [ElemType; 2],
) {
    let size = V::value();
    let values = comptime![rows * span];
    let parts = comptime![parts_of_sum(rows * span, units)];
    // So that units that add up different sums read from different banks.
    let room = comptime![units + parts_of_sum(rows * span, units)];
    let unit = UNIT_POS as usize;
    let first = min(CUBE_POS * span, columns - span);

    let mut sums = Array::<f32>::new(values);
    #[unroll]
    for v in 0..values {
        sums[v] = 0.0;
    }
    let mut i = unit;
    while i < depth {
        let mut line = Array::<Vector<f32, V>>::new(span);
        #[unroll]
        for c in 0..span {
            line[c] = Vector::cast_from(weight[(first + c) * weight_stride + i]);
        }
        #[unroll]
        for r in 0..rows {
            let own = Vector::<f32, V>::cast_from(x[r * x_stride + i]);
            #[unroll]
            for c in 0..span {
                let other = line[c];
                #[unroll]
                for j in 0..size {
                    sums[r * span + c] += own.extract(j) * other.extract(j);
                }
            }
        }
        i += units;
    }

    let mut shared = Shared::<[f32]>::new_slice(values * room);
    #[unroll]
    for v in 0..values {
        shared[v * room + unit] = sums[v];
    }
    sync_cube();
    let value = unit / parts;
    if value < values {
        let part = unit % parts;
        let mut total = 0.0f32;
        let mut j = part;
        while j < units {
            total += shared[value * room + j];
            j += parts;
        }
        shared[value * room + part] = total;
    }
    sync_cube();
    if unit < values {
        let mut total = 0.0f32;
        #[unroll]
        for part in 0..parts {
            total += shared[unit * room + part];
        }
        out[(unit / span) * columns + first + unit % span] = total;
    }
}
