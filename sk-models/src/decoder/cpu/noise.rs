//! Numbers for the tests of this module.

use super::grid::Grid;

/// Returns a grid of the number for each row and column. Its padding, which must be ignored, is
/// NaN.
pub(super) fn grid(rows: usize, width: usize, number: impl Fn(usize, usize) -> f32) -> Grid {
    let mut grid = Grid::new(rows, width);
    for (row, line) in grid.rows_mut().enumerate() {
        line.fill(f32::NAN);
        line[..width].iter_mut().enumerate().for_each(|(column, x)| *x = number(row, column));
    }
    grid
}

/// Returns a number in [−1, 1) that depends on the row and the column.
pub(super) fn noise(row: usize, column: usize) -> f32 {
    let hash = (row as u32).wrapping_mul(2_654_435_761) ^ (column as u32).wrapping_mul(2_246_822_519);
    (hash.wrapping_mul(3_266_489_917) >> 8) as f32 / (1 << 23) as f32 - 1.0
}

/// Returns `count` numbers in [−1, 1) that depend on the seed.
pub(super) fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}
