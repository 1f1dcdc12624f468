//! Linear layers: products of many rows with a frozen weight, and the low-rank updates of lanes.

use std::cell::RefCell;

use half::bf16;

use super::adapter::{LowRows, PackedLowRank};
use super::aligned_vec::AlignedVec;
use super::amx::SIDE;
use super::grid::Grid;
use super::matrix::{Input, InputForm, Matrix, Panels, TILED_BYTES};
use super::plan::LaneRows;
use super::terms::{Bf16Panel, F32Panel};
use super::tile::{self, Product, ROWS, Strided, WIDTH, multiply_all};
use crate::team::Team;

/// Bytes of a block of input rows. A block stays in the second-level cache while panels are read.
const BLOCK_BYTES: usize = 768 << 10;

/// Tasks per thread, so that other threads can take work from a thread that is held up.
const TASKS_PER_THREAD: usize = 16;

/// A linear layer for rows of several lanes: one frozen weight, and low-rank updates for some
/// lanes.
pub(crate) struct Linear<'a> {
    pub(crate) weight: &'a Matrix,
    /// The update of each lane; empty if no lane has one.
    pub(crate) deltas: Vec<Option<&'a PackedLowRank>>,
    low: LowRows,
}

impl<'a> Linear<'a> {
    pub(crate) fn new(weight: &'a Matrix, mut deltas: Vec<Option<&'a PackedLowRank>>) -> Self {
        if deltas.iter().all(Option::is_none) {
            deltas.clear();
        }
        Self { weight, deltas, low: LowRows::default() }
    }

    /// Computes one panel for rows `first..first + rows`: the frozen product, or its part in the
    /// current sweep, with the bias in the first sweep and each lane's update in the last.
    ///
    /// # Safety
    ///
    /// `c` holds that many rows of [`WIDTH`] columns, and nothing else uses them.
    pub(crate) unsafe fn tile(
        &self,
        panel: usize,
        [first, rows]: [usize; 2],
        lanes: &LaneRows,
        x: Input<'_>,
        c: Strided<*mut f32>,
        add: bool,
    ) {
        assert!(first + rows <= x.grid.rows() && self.weight.input <= x.grid.stride());
        let (begins, ends) = match x.form {
            InputForm::Terms(terms, _, [start, end]) => (start == 0, end == terms.blocks()),
            _ => (true, true),
        };
        let biased = self.weight.bias.as_ref().filter(|_| begins).map(|bias| &bias[panel * WIDTH..][..WIDTH]);
        let add = add || biased.is_some() || !begins;
        let from = |row: usize| Strided { start: c.start.wrapping_add((row - first) * c.stride), ..c };
        let delta = |lane: usize| self.deltas.get(lane).copied().flatten();
        // SAFETY: `x` and `low` have these rows and columns, the panels belong to the weights, and
        // `c` is valid by the caller's promise.
        unsafe {
            if let Some(bias) = biased {
                for row in 0..rows {
                    c.start.add(row * c.stride).copy_from_nonoverlapping(bias.as_ptr(), WIDTH);
                }
            }
            match (&self.weight.panels, x.form) {
                (Panels::F32(panels), InputForm::Terms(terms, tiles, [start, end])) => {
                    let size = self.weight.input * WIDTH;
                    let panel = &panels[panel * size..][..size];
                    F32Panel::with(tiles, panel, |panel| terms.multiply(panel, [first, rows], start..end, c, add));
                }
                (Panels::Bf16(weights), InputForm::Terms(terms, tiles, [start, end])) => {
                    terms.multiply(&mut Bf16Panel::new(tiles, weights.panel(panel)), [first, rows], start..end, c, add);
                }
                // Lanes of many rows have their own tiles, which add the update before the sums
                // leave the registers.
                (Panels::F32(panels), _) if lanes.smallest() >= ROWS && !self.deltas.is_empty() => {
                    for (lane, start, rows) in lanes.segments(first, rows) {
                        let frozen = Product {
                            depth: self.weight.input,
                            a: x.grid.rows_from(start),
                            b: tile::panel(panels, self.weight.input, panel),
                        };
                        let change = delta(lane).and_then(|delta| delta.product(panel, start, &self.low));
                        let products = [frozen, change.unwrap_or(frozen)];
                        multiply_all([rows, 2], &products[..1 + usize::from(change.is_some())], from(start), add);
                    }
                    return;
                }
                // Lanes of few rows share tiles, since each tile is a sweep over the weight.
                _ => self.weight.multiply(panel, [first, rows, 2], x, c, add),
            }
            if ends {
                for (lane, start, rows) in lanes.segments(first, rows) {
                    if let Some(delta) = delta(lane) {
                        delta.raise(panel, [start, rows], &self.low, from(start));
                    }
                }
            }
        }
    }
}

/// Computes `x·A` for every lane of layers that share their input.
pub(crate) fn lower(layers: &mut [&mut Linear<'_>], x: Input<'_>, lanes: &LaneRows) {
    /// Rows of a task.
    const PIECE: usize = 4 * ROWS;
    let mut tasks = Vec::new();
    for Linear { deltas, low, .. } in layers {
        if deltas.is_empty() {
            continue;
        }
        let low = low.reshape(x.grid.rows(), deltas.iter().copied().flatten());
        for (lane, delta) in deltas.iter().enumerate() {
            let Some(delta) = *delta else { continue };
            let (first, end) = lanes.bounds(lane);
            tasks.extend((first..end).step_by(PIECE).map(|first| (delta, low, [first, PIECE.min(end - first)])));
        }
    }
    Team::global().run(tasks.len(), &|task| {
        let (delta, low, rows) = tasks[task];
        // SAFETY: each task has its own rows of its layer.
        unsafe { delta.lower(rows, x, low) }
    });
}

/// Divides a product: returns the rows of a block and the panels of a task. `depth` columns are
/// read at a time.
fn division(x: Input<'_>, panels: usize, depth: usize) -> (usize, usize) {
    /// Rows for which preparing a panel pays off.
    const MANY: usize = 128;
    let threads = Team::global().threads();
    let rows = x.grid.rows();
    let room = |height: usize, bytes: usize, number: usize| (bytes / (depth * number).max(1)).max(height);
    let block = match x.form {
        // A panel is prepared once per block, so few rows form one block, and many rows form one
        // block per thread, which stays in the thread's cache.
        InputForm::Terms(terms, ..) => {
            let share = if rows >= MANY * threads { rows.div_ceil(threads) } else { rows };
            let parts = share.div_ceil(room(SIDE, TILED_BYTES, terms.bytes())).max(1);
            share.div_ceil(parts).next_multiple_of(SIDE)
        }
        _ if rows <= 2 * ROWS => rows,
        // Whole tiles or squares, and whole strips of bytes.
        form => {
            let number = match form {
                InputForm::Int8(rows) => rows.bytes_of_number(),
                InputForm::Bf16(_) => size_of::<bf16>(),
                _ => size_of::<f32>(),
            };
            rows.div_ceil(threads).min(room(ROWS, BLOCK_BYTES, number)).next_multiple_of(form.height())
        }
    };
    let blocks = rows.div_ceil(block.max(1));
    let group = (panels * blocks).div_ceil(threads * TASKS_PER_THREAD).clamp(1, panels.max(1));
    (block.max(1), group)
}

/// Computes `out = x·W` or `out += x·W` for layers that share their input, in one parallel loop.
/// The columns of each layer begin at the given column of the output.
///
/// The rows of `x` divide into `lanes`. [`lower`] must have been called.
pub(crate) fn linear(layers: &[(&Linear<'_>, usize)], x: Input<'_>, lanes: &LaneRows, out: &mut Grid, add: bool) {
    let rows = x.grid.rows();
    // The panels of all layers: layer, panel and the panel's first column of the output.
    let mut panels = Vec::new();
    for &(layer, column) in layers {
        panels.extend((0..layer.weight.count()).map(|panel| (layer, panel, column + panel * WIDTH)));
    }
    let depth = layers.iter().map(|(layer, _)| layer.weight.input).max().unwrap_or(0);
    let at_a_time = if let InputForm::Terms(terms, ..) = x.form { depth.min(terms.sweep()) } else { depth };
    let (block, group) = division(x, panels.len(), at_a_time);
    let groups = panels.len().div_ceil(group);
    let stride = out.stride();
    assert!(rows <= out.rows() && panels.iter().all(|(.., column)| column + WIDTH <= stride));
    let out = out.parts();
    for form in x.form.sweeps(block) {
        let x = Input { form, ..x };
        // Blocks of rows stay with the threads that have them in their caches.
        Team::global().run(rows.div_ceil(block) * groups, &|task| {
            let (home, task) = (task / groups, task % groups);
            let (first, group) = (home * block, &panels[task * group..][..group.min(panels.len() - task * group)]);
            let rows = block.min(rows - first);
            for (layer, panel, column) in group {
                let c = Strided { start: out.at(first * stride + column), stride };
                // SAFETY: each task has its own block of rows and columns, inside the grid by the
                // assertion above.
                unsafe { layer.tile(*panel, [first, rows], lanes, x, c, add) };
            }
        });
    }
}

/// Computes `out = silu(x·W_gate) ⊙ (x·W_up)` panel by panel, so neither product is ever whole in
/// memory.
pub(crate) fn gated(gate: &Linear<'_>, up: &Linear<'_>, x: Input<'_>, lanes: &LaneRows, out: &mut Grid) {
    /// Rows whose products are buffered at a time.
    const PIECE: usize = 8 * ROWS;
    thread_local! {
        static WAITING: RefCell<AlignedVec> = RefCell::default();
    }
    let (rows, panels) = (x.grid.rows(), gate.weight.count());
    let (block, group) = division(x, panels, gate.weight.input);
    // Tiles prepare a panel once per piece, so a piece is a whole block.
    let piece = if x.form.prepares_panels() { block } else { PIECE.min(block) };
    let groups = panels.div_ceil(group);
    let stride = out.stride();
    assert!(rows <= out.rows() && panels * WIDTH <= stride && up.weight.count() == panels);
    let out = out.parts();
    Team::global().run(rows.div_ceil(block) * groups, &|task| {
        let (home, task) = (task / groups, task % groups);
        let first = home * block;
        let end = (first + block).min(rows);
        WAITING.with_borrow_mut(|waiting| {
            // Both products stay in a small buffer, and the output is written once.
            waiting.reach(2 * piece * WIDTH);
            let (gates, ups) = waiting.split_at_mut(piece * WIDTH);
            for panel in (task * group)..((task + 1) * group).min(panels) {
                for first in (first..end).step_by(piece) {
                    let rows = piece.min(end - first);
                    // SAFETY: the buffers hold the rows of a piece, and each task has its own block
                    // of rows and columns of the output, inside the grid by the assertion above.
                    unsafe {
                        gate.tile(panel, [first, rows], lanes, x, Strided { start: gates.as_mut_ptr(), stride: WIDTH }, false);
                        up.tile(panel, [first, rows], lanes, x, Strided { start: ups.as_mut_ptr(), stride: WIDTH }, false);
                        let place = first * stride + panel * WIDTH;
                        activate(rows, gates, ups, |row| out.slice(place + row * stride, WIDTH));
                    }
                }
            }
        });
    });
}

/// Computes `silu(gate) ⊙ up` for rows of a panel.
fn activate<'a>(rows: usize, gates: &[f32], ups: &[f32], out: impl Fn(usize) -> &'a mut [f32]) {
    use crate::kernels::simd::{exp, widened};
    widened!({
        let pairs = gates.as_chunks::<WIDTH>().0.iter().zip(ups.as_chunks::<WIDTH>().0);
        for (row, (gates, ups)) in pairs.take(rows).enumerate() {
            let mut line = [0.0; WIDTH];
            for ((value, gate), up) in line.iter_mut().zip(gates).zip(ups) {
                *value = *gate / (1.0 + exp(-*gate)) * up;
            }
            out(row).copy_from_slice(&line);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::amx::Tiles;
    use super::super::int8::Quantized;
    use super::super::noise::{grid, noise};
    use super::super::terms::{THREE, TWO, Terms};
    use super::*;
    use crate::precision::Precision;

    #[test]
    fn rows_without_a_form_are_rounded_for_weights_of_eight_bits() {
        let [input, output, rows] = [70, 33, 9];
        let weights: Vec<f32> = (0..input * output).map(|at| noise(at, 3)).collect();
        let weight = Matrix::new(&weights, [input, output], [output, 1], None, Precision::Int8);
        let grid = grid(rows, input, |row, k| noise(k, row));
        let mut rounded = Quantized::default();
        rounded.fill(&grid, input, None);
        let [found, expected] = [InputForm::F32, InputForm::Int8(&rounded)].map(|form| {
            let mut out = Grid::new(rows, output.next_multiple_of(WIDTH));
            out.rows_mut().for_each(|line| line.fill(f32::NAN));
            let layer = Linear::new(&weight, vec![None]);
            linear(&[(&layer, 0)], Input { grid: &grid, form }, &LaneRows::even(1, rows), &mut out, false);
            out.to_values(output)
        });
        assert_eq!(
            found.iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
            expected.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        );
    }

    #[test]
    fn sweeps_add_bias_and_update_once() {
        let Some(tiles) = Tiles::get() else { return };
        /// Rounding in one chain of additions. With weights in bf16, rows have sixteen bits.
        const TOLERANCE: [f64; 2] = [2e-5, 4e-3];
        let ([input, output], rank) = ([1000, 40], 5);
        let rows = 450 * Team::global().threads();
        let [weights, a, b] = [[input, output], [input, rank], [rank, output]]
            .map(|[n, m]| -> Vec<f32> { (0..n * m).map(|at| noise(at, n)).collect() });
        let bias: Vec<f32> = (0..output).map(|column| noise(column, 7)).collect();
        let grid = grid(rows, input, |row, k| noise(k, row));
        let lanes = &LaneRows::even(2, rows / 2);
        for (precision, terms, tolerance) in [(Precision::F32, THREE, TOLERANCE[0]), (Precision::Bf16, TWO, TOLERANCE[1])] {
            let weight = Matrix::new(&weights, [input, output], [output, 1], Some(&bias), precision);
            let delta = PackedLowRank::new(&a, &b, [input, rank, output], 0.5, precision);
            let mut layer = Linear::new(&weight, vec![None, Some(&delta)]);
            let mut sums = Terms::default();
            sums.fill(tiles, &grid, input, terms);
            let form = InputForm::of_terms(&sums, tiles);
            lower(&mut [&mut layer], Input { grid: &grid, form }, lanes);
            assert!(form.sweeps(rows / Team::global().threads()).len() > 1, "of more than one sweep");
            let mut out = Grid::new(rows, output.next_multiple_of(WIDTH));
            out.rows_mut().for_each(|line| line.fill(f32::NAN));
            linear(&[(&layer, 0)], Input { grid: &grid, form }, lanes, &mut out, false);
            let mut columns = vec![vec![0.0; input]; output];
            columns.iter_mut().enumerate().for_each(|(column, values)| weight.column(column, values));
            for row in (0..rows).step_by(37).chain([rows - 1]) {
                let x = &grid.row(row)[..input];
                let dot = |y: &mut dyn FnMut(usize) -> f32| {
                    x.iter().enumerate().map(|(k, x)| f64::from(*x) * f64::from(y(k))).sum::<f64>()
                };
                let low: Vec<f64> = (0..rank).map(|r| dot(&mut |k| a[k * rank + r])).collect();
                for (column, values) in columns.iter().enumerate() {
                    let change: f64 = low.iter().enumerate().map(|(r, low)| 0.5 * low * f64::from(b[r * output + column])).sum();
                    let change = if row < rows / 2 { 0.0 } else { change };
                    let expected = dot(&mut |k| values[k]) + f64::from(bias[column]) + change;
                    let found = f64::from(out.row(row)[column]);
                    assert!((found - expected).abs() <= tolerance * 30.0, "{found} for {expected} at {row}, {column}");
                }
            }
        }
    }
}
