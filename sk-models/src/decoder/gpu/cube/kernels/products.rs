//! Kernels of products with few rows or few columns.

use cubecl::cmma::{self, MatrixIdent};
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

/// Columns of a plane of [`tensor_rows_kernel`].
pub(in crate::decoder::gpu::cube) const PLANE_COLUMNS: usize = 16;

/// Rows that one instruction of [`tensor_rows_kernel`] multiplies.
pub(in crate::decoder::gpu::cube) const PLANE_ROWS: usize = 8;

/// Lines of a column that a plane of [`tensor_rows_kernel`] reads at once, one for every four units.
pub(in crate::decoder::gpu::cube) const PLANE_LINES: usize = 4;

/// Returns two neighbouring numbers of a line.
#[cube]
fn pair_of<F: Float, V: Size, N: Size>(line: Vector<F, V>, #[comptime] from: usize) -> Vector<F, N> {
    let mut pair = Vector::<F, N>::empty();
    pair.insert(0usize, line.extract(from));
    pair.insert(1usize, line.extract(comptime![from + 1]));
    pair
}

/// Multiplies up to sixteen rows by the columns of a matrix, on tensor cores. A plane of 32 units
/// computes sixteen columns, and the planes of a cube share each sum.
///
/// The instruction multiplies a `16 × 16` with a `16 × 8` matrix: here columns of the matrix with
/// rows of `x`. Unit `4·g + t` holds terms `2·t`, `2·t + 1`, `2·t + 8` and `2·t + 9` of columns g and
/// g + 8, and of row g. The order of the terms of a sum is free, so these are four neighbouring
/// numbers in memory, and a line of eight serves two instructions.
#[cube(launch)]
pub(in crate::decoder::gpu::cube) fn tensor_rows_kernel<F: Float, V: Size>(
    x: &[Vector<F, V>],
    weight: &[Vector<F, V>],
    out: &mut [f32],
    depth: usize,
    x_stride: usize,
    weight_stride: usize,
    columns: usize,
    #[comptime] rows: usize,
    #[comptime] planes: usize,
    #[define(F)] _format: ElemType,
) {
    /// Blocks of lines that are read before the first is multiplied.
    const AHEAD: usize = 4;
    let def = cmma::MmaDefinition::<F, F, f32>::new(PLANE_COLUMNS, PLANE_ROWS, 16usize);
    let size!(NF) = def.vector_size(MatrixIdent::A);
    let size!(NC) = def.vector_size(MatrixIdent::Accumulator);
    let tiles = comptime![rows.div_ceil(PLANE_ROWS)];
    let unit = UNIT_POS as usize;
    let plane = unit / 32;
    let across = unit % 32 / PLANE_LINES;
    let along = unit % PLANE_LINES;
    let first = min(CUBE_POS * PLANE_COLUMNS, columns - PLANE_COLUMNS);
    let column = (first + across) * weight_stride + along;
    let other_column = (first + across + 8) * weight_stride + along;
    // Rows beyond the last one repeat it, and their sums are not written.
    let row = min(across, rows - 1) * x_stride + along;
    let other_row = min(across + PLANE_ROWS, rows - 1) * x_stride + along;

    let mut sums = Array::<Vector<f32, NC>>::new(2usize);
    let mut other_sums = Array::<Vector<f32, NC>>::new(2usize);
    #[unroll]
    for i in 0..2 {
        sums[i] = Vector::zeroed();
        other_sums[i] = Vector::zeroed();
    }
    let mut from = plane * PLANE_LINES;
    while from < depth {
        let mut left = Array::<Vector<F, V>>::new(comptime![2 * AHEAD]);
        let mut right = Array::<Vector<F, V>>::new(comptime![2 * AHEAD]);
        #[unroll]
        for block in 0..AHEAD {
            let line = from + block * comptime![planes * PLANE_LINES];
            let at = min(line, depth - PLANE_LINES);
            left[2 * block] = weight[column + at];
            left[2 * block + 1] = weight[other_column + at];
            right[2 * block] = x[row + at];
            if comptime![tiles == 2] {
                right[2 * block + 1] = x[other_row + at];
            }
            // Lines beyond the last one count as zeros.
            if line >= depth {
                right[2 * block] = Vector::zeroed();
                right[2 * block + 1] = Vector::zeroed();
                left[2 * block] = Vector::zeroed();
                left[2 * block + 1] = Vector::zeroed();
            }
        }
        #[unroll]
        for block in 0..AHEAD {
            #[unroll]
            for half in 0..2 {
                let mut matrix = Array::<Vector<F, NF>>::new(4usize);
                let mut own = Array::<Vector<F, NF>>::new(2usize);
                let mut others = Array::<Vector<F, NF>>::new(2usize);
                #[unroll]
                for pair in 0..2 {
                    let at = comptime![4 * half + 2 * pair];
                    matrix[2 * pair] = pair_of::<F, V, NF>(left[2 * block], at);
                    matrix[2 * pair + 1] = pair_of::<F, V, NF>(left[2 * block + 1], at);
                    own[pair] = pair_of::<F, V, NF>(right[2 * block], at);
                    if comptime![tiles == 2] {
                        others[pair] = pair_of::<F, V, NF>(right[2 * block + 1], at);
                    }
                }
                let result = def.execute(&matrix, &own, &sums);
                sums[0] = result[0];
                sums[1] = result[1];
                if comptime![tiles == 2] {
                    let result = def.execute(&matrix, &others, &other_sums);
                    other_sums[0] = result[0];
                    other_sums[1] = result[1];
                }
            }
        }
        from += comptime![planes * PLANE_LINES * AHEAD];
    }

    // Unit `4·g + t` holds the sums of columns g and g + 8, of rows `2·t` and `2·t + 1`.
    let area = comptime![PLANE_COLUMNS * PLANE_ROWS * rows.div_ceil(PLANE_ROWS)];
    let mut shared = Shared::<[f32]>::new_slice(comptime![planes * PLANE_COLUMNS * PLANE_ROWS * rows.div_ceil(PLANE_ROWS)]);
    #[unroll]
    for side in 0..2 {
        #[unroll]
        for i in 0..2 {
            let at = plane * area + (2 * along + i) * PLANE_COLUMNS + across + 8 * side;
            shared[at] = sums[side].extract(i);
            if comptime![tiles == 2] {
                shared[at + PLANE_COLUMNS * PLANE_ROWS] = other_sums[side].extract(i);
            }
        }
    }
    sync_cube();
    let mut i = unit;
    while i < comptime![PLANE_COLUMNS * rows] {
        let mut total = 0.0f32;
        #[unroll]
        for plane in 0..planes {
            total += shared[plane * area + i];
        }
        out[i / PLANE_COLUMNS * columns + first + i % PLANE_COLUMNS] = total;
        i += comptime![32 * planes];
    }
}

/// The division of work in [`low_kernel`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::decoder::gpu::cube) struct Low {
    /// Rows of a cube.
    pub(in crate::decoder::gpu::cube) rows: usize,
    /// Columns of a cube.
    pub(in crate::decoder::gpu::cube) columns: usize,
    /// Terms that the units of a cube share at a time.
    pub(in crate::decoder::gpu::cube) terms: usize,
    /// Terms of each sum that a cube adds up.
    pub(in crate::decoder::gpu::cube) piece: usize,
    /// Groups of units, which divide the shared terms.
    pub(in crate::decoder::gpu::cube) groups: usize,
}

/// Returns the numbers of the rows that the units of [`low_kernel`] share, and later of all sums.
const fn room_of(shape: Low) -> usize {
    let (rows, sums) = (shape.terms * (shape.rows + 1), shape.rows * shape.columns * shape.groups);
    if rows > sums { rows } else { sums }
}

/// Rows and columns of a unit of [`low_kernel`].
pub(in crate::decoder::gpu::cube) const SIDE: usize = 4;

/// Multiplies the rows of every lane by the lane's matrix, which has few columns. Each sum is
/// divided into pieces. A cube computes one piece for some rows and columns.
#[cube(launch)]
pub(in crate::decoder::gpu::cube) fn low_kernel<X: Float>(
    x: &[X],
    matrix: &[f32],
    out: &mut [f32],
    x_stride: usize,
    stride: usize,
    lanes: usize,
    pieces: usize,
    rows: usize,
    depth: usize,
    columns: usize,
    #[comptime] shape: Low,
    #[define(X)] _format: ElemType,
) {
    let across = comptime![shape.columns / SIDE];
    let team = comptime![shape.rows / SIDE * (shape.columns / SIDE)];
    let units = comptime![shape.rows / SIDE * (shape.columns / SIDE) * shape.groups];
    // Padded, so that units that write different terms write to different banks.
    let room = comptime![shape.rows + 1];
    let unit = UNIT_POS as usize;
    let tiles = columns.div_ceil(shape.columns);
    let blocks = rows.div_ceil(shape.rows);
    // Cubes beyond the last one repeat its work.
    let position = min(CUBE_POS, lanes * pieces * blocks * tiles - 1);
    let first_column = position % tiles * shape.columns;
    let first_row = position / tiles % blocks * shape.rows;
    let piece = position / tiles / blocks % pieces;
    let lane = position / tiles / blocks / pieces;
    let group = unit / team;
    let row = unit % team / across * SIDE;
    let column = unit % across * SIDE;

    let mut sums = Array::<f32>::new(comptime![SIDE * SIDE]);
    #[unroll]
    for v in 0..comptime![SIDE * SIDE] {
        sums[v] = 0.0;
    }
    let mut left = Shared::<[f32]>::new_slice(comptime![room_of(shape)]);
    let mut right = Shared::<[f32]>::new_slice(comptime![shape.terms * shape.columns]);
    let mut from = piece * shape.piece;
    let end = min(from + shape.piece, depth);
    while from < end {
        // All reads come before the first write, so that none waits for another.
        let mut own_left = Array::<f32>::new(comptime![shape.rows * shape.terms / units]);
        #[unroll]
        for v in 0..comptime![shape.rows * shape.terms / units] {
            let i = unit + v * units;
            let (own, term) = (i / shape.terms, i % shape.terms);
            own_left[v] = 0.0;
            if first_row + own < rows && from + term < end {
                own_left[v] = f32::cast_from(x[(lane * rows + first_row + own) * x_stride + from + term]);
            }
        }
        let mut own_right = Array::<f32>::new(comptime![shape.terms * shape.columns / units]);
        #[unroll]
        for v in 0..comptime![shape.terms * shape.columns / units] {
            let i = unit + v * units;
            let (term, own) = (i / shape.columns, i % shape.columns);
            own_right[v] = 0.0;
            if first_column + own < columns && from + term < end {
                own_right[v] = matrix[(lane * depth + from + term) * stride + first_column + own];
            }
        }
        sync_cube();
        #[unroll]
        for v in 0..comptime![shape.rows * shape.terms / units] {
            let i = unit + v * units;
            left[i % shape.terms * room + i / shape.terms] = own_left[v];
        }
        #[unroll]
        for v in 0..comptime![shape.terms * shape.columns / units] {
            right[unit + v * units] = own_right[v];
        }
        sync_cube();
        #[unroll]
        for own in 0..comptime![shape.terms / shape.groups] {
            let term = group * comptime![shape.terms / shape.groups] + own;
            let mut others = Array::<f32>::new(SIDE);
            #[unroll]
            for c in 0..SIDE {
                others[c] = right[term * shape.columns + column + c];
            }
            #[unroll]
            for r in 0..SIDE {
                let value = left[term * room + row + r];
                #[unroll]
                for c in 0..SIDE {
                    sums[r * SIDE + c] += value * others[c];
                }
            }
        }
        from += shape.terms;
    }

    // The groups' sums take the place of the rows.
    let area = comptime![shape.rows * shape.columns];
    sync_cube();
    #[unroll]
    for r in 0..SIDE {
        #[unroll]
        for c in 0..SIDE {
            left[group * area + (row + r) * shape.columns + column + c] = sums[r * SIDE + c];
        }
    }
    sync_cube();
    let mut i = unit;
    while i < area {
        let (row, column) = (first_row + i / shape.columns, first_column + i % shape.columns);
        if row < rows && column < columns {
            let mut total = 0.0f32;
            #[unroll]
            for group in 0..shape.groups {
                total += left[group * area + i];
            }
            out[((lane * pieces + piece) * rows + row) * columns + column] = total;
        }
        i += units;
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
