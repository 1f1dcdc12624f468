//! Kernels of products with few rows.

use cubecl::prelude::*;

/// Returns how many units add up each of `values` sums: the largest power of two p with `p·values ≤
/// units` and `p² ≤ units`, or one.
pub(in crate::decoder::gpu::cube) const fn parts_of_sum(values: usize, units: usize) -> usize {
    let mut parts = 1;
    while 2 * parts * values <= units && 4 * parts * parts <= units {
        parts *= 2;
    }
    parts
}

/// Multiplies a few rows with the columns of a matrix, `span` columns per cube. The units of a cube
/// share each sum, so that as many units as possible read the matrix, once and in whole lines.
///
/// Sums lie in registers by row and column and are added up over the units at the end. If `span`
/// does not divide the columns, the last cubes repeat columns of their neighbours.
#[cube(launch)]
pub(in crate::decoder::gpu::cube) fn rows_kernel<X: Float, W: Float, V: Size>(
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
    #[comptime] rounded: bool,
    #[define(X, W)] _formats: [ElemType; 2],
) {
    let size = V::value();
    let values = comptime![rows * span];
    let parts = comptime![parts_of_sum(rows * span, units)];
    // Padded, so that units that add up different sums read from different banks.
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
            let read = x[r * x_stride + i];
            let own = if comptime![rounded] {
                Vector::<f32, V>::cast_from(Vector::<W, V>::cast_from(read))
            } else {
                Vector::cast_from(read)
            };
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

/// The division of work in [`spread_kernel`]: rows of a cube, columns of each unit, and terms of a
/// sum that the units share at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::decoder::gpu::cube) struct Spread {
    pub(in crate::decoder::gpu::cube) rows: usize,
    pub(in crate::decoder::gpu::cube) columns: usize,
    pub(in crate::decoder::gpu::cube) terms: usize,
    pub(in crate::decoder::gpu::cube) units: usize,
}

/// Multiplies the rows of every lane with the lane's matrix, in up to three parts side by side:
/// columns up to `second`, from there to `third`, and from there on. Each part has `rank` columns
/// of the rows. A row is the sum of `pieces` pieces.
///
/// A cube computes some rows of a lane and some columns of a part. Its units read the matrix once
/// and the rows from shared memory.
#[cube(launch)]
pub(in crate::decoder::gpu::cube) fn spread_kernel(
    low: &[f32],
    matrix: &[f32],
    out: &mut [f32],
    low_stride: usize,
    stride: usize,
    lanes: usize,
    pieces: usize,
    rows: usize,
    rank: usize,
    second: usize,
    third: usize,
    columns: usize,
    #[comptime] shape: Spread,
) {
    let units = comptime![shape.units];
    let span = comptime![shape.units * shape.columns];
    let unit = UNIT_POS as usize;
    let before_second = second.div_ceil(span);
    let before_third = before_second + (third - second).div_ceil(span);
    let tiles = before_third + (columns - third).div_ceil(span);
    let blocks = rows.div_ceil(shape.rows);
    // Cubes beyond the last one repeat its work.
    let position = min(CUBE_POS, lanes * blocks * tiles - 1);
    let tile = position % tiles;
    let first_row = (position / tiles) % blocks * shape.rows;
    let lane = position / tiles / blocks;
    let in_second = tile >= before_second;
    let in_third = tile >= before_third;
    let part = usize::cast_from(in_second) + usize::cast_from(in_third);
    let start = select(in_third, third, select(in_second, second, 0));
    let end = select(in_third, columns, select(in_second, third, second));
    let own = tile - select(in_third, before_third, select(in_second, before_second, 0));
    let first_column = start + own * span + unit;

    let mut sums = Array::<f32>::new(comptime![shape.rows * shape.columns]);
    #[unroll]
    for v in 0..comptime![shape.rows * shape.columns] {
        sums[v] = 0.0;
    }
    let mut shared = Shared::<[f32]>::new_slice(comptime![shape.rows * shape.terms]);
    let mut from = 0;
    while from < rank {
        sync_cube();
        let mut i = unit;
        while i < comptime![shape.rows * shape.terms] {
            let (row, term) = (first_row + i % shape.rows, from + i / shape.rows);
            let mut value = 0.0f32;
            if row < rows && term < rank {
                for piece in 0..pieces {
                    value += low[((lane * pieces + piece) * rows + row) * low_stride + part * rank + term];
                }
            }
            shared[i] = value;
            i += units;
        }
        sync_cube();
        for term in 0..min(comptime![shape.terms], rank - from) {
            let line = (lane * rank + from + term) * stride;
            let mut others = Array::<f32>::new(comptime![shape.columns]);
            #[unroll]
            for c in 0..shape.columns {
                // Columns beyond the part are clamped and not written.
                others[c] = matrix[line + min(first_column + c * units, end - 1)];
            }
            #[unroll]
            for r in 0..shape.rows {
                let value = shared[term * shape.rows + r];
                #[unroll]
                for c in 0..shape.columns {
                    sums[r * shape.columns + c] += value * others[c];
                }
            }
        }
        from += shape.terms;
    }
    #[unroll]
    for r in 0..shape.rows {
        #[unroll]
        for c in 0..shape.columns {
            let (row, column) = (first_row + r, first_column + c * units);
            if row < rows && column < end {
                out[(lane * rows + row) * columns + column] = sums[r * shape.columns + c];
            }
        }
    }
}
