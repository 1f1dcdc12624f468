//! Grouped-query attention over a shared prefix and each row's own tokens.
//!
//! A task is one key head of one lane and some of its rows: their queries, all heads of the group together, meet the shared keys in one
//! product and their own in another, so that keys and values are never repeated. Scores exist for the queries of a task only.

use std::cell::RefCell;

use super::grid::Grid;
use super::kv::Block;
use super::rope::Table;
use super::team::{Team, for_each_mut};
use super::tile::{Place, ROWS, WIDTH, multiply};
use crate::kernels::simd::{exp, max, sum, widened};

/// Queries of a task, about: enough to fill tiles, few enough that their scores stay near.
const QUERIES: usize = 8 * ROWS;

/// The sizes of one pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) lanes: usize,
    /// Rows of a lane.
    pub(crate) rows: usize,
    /// New tokens of a row.
    pub(crate) length: usize,
    /// Key heads.
    pub(crate) heads: usize,
    /// Query heads of a key head.
    pub(crate) groups: usize,
    /// D.
    pub(crate) width: usize,
    /// Tokens before the first new one.
    pub(crate) position: usize,
}

impl Shape {
    /// Where keys and values begin in a row of the projections' output, which starts with the queries.
    pub(crate) fn columns(&self) -> [usize; 3] {
        let query = (self.heads * self.groups * self.width).next_multiple_of(WIDTH);
        let key = (self.heads * self.width).next_multiple_of(WIDTH);
        [query, query + key, query + 2 * key]
    }
}

/// Appends the keys, turned to their positions, and the values of a pass to the rows' own blocks.
pub(crate) fn append(shape: Shape, projected: &Grid, table: &Table, own: &mut [Block], earlier: usize) {
    let [keys, values, _] = shape.columns();
    for_each_mut(own, |index, block| {
        let (row, head) = (index / shape.heads, index % shape.heads);
        let mut key = vec![0.0; shape.width];
        for step in 0..shape.length {
            let line = projected.row(row * shape.length + step);
            let at = head * shape.width;
            table.turn(shape.position + step, &line[keys + at..][..shape.width], 1.0, &mut key);
            block.push(earlier + step, &key, &line[values + at..][..shape.width]);
        }
    });
}

#[derive(Default)]
struct Scratch {
    queries: Vec<f32>,
    scores: Vec<f32>,
    mixed: Vec<f32>,
    totals: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Rows `rows.0..rows.1` of a lane, new tokens `steps.0..steps.1` of each, and one key head.
#[derive(Clone, Copy)]
struct Task {
    lane: usize,
    head: usize,
    rows: (usize, usize),
    steps: (usize, usize),
}

fn tasks(shape: Shape) -> Vec<Task> {
    let per_row = shape.length * shape.groups;
    let steps = (QUERIES / shape.groups).max(1);
    let together = if shape.length > steps { 1 } else { (2 * ROWS).div_ceil(per_row).min(shape.rows) };
    let mut tasks = Vec::new();
    for lane in 0..shape.lanes {
        for head in 0..shape.heads {
            for row in (0..shape.rows).step_by(together) {
                for step in (0..shape.length).step_by(steps) {
                    tasks.push(Task {
                        lane,
                        head,
                        rows: (row, (row + together).min(shape.rows)),
                        steps: (step, (step + steps).min(shape.length)),
                    });
                }
            }
        }
    }
    tasks
}

/// Mixes values by attention: `out` gets `[R·S, Hq·D]`.
///
/// Every row sees all of its lane's block in `shared` (of `shared_length` tokens; none is empty), and of its own block the first `earlier`
/// tokens and the new ones up to itself. The two blocks are joined under one maximum and one sum.
pub(crate) fn attend(
    shape: Shape,
    projected: &Grid,
    table: &Table,
    shared: Option<(&[Block], usize)>,
    (own, earlier): (&[Block], usize),
    out: &mut Grid,
) {
    let tasks = tasks(shape);
    let scale = (shape.width as f32).sqrt().recip();
    let padded = shape.width.next_multiple_of(WIDTH);
    let stride = out.stride();
    let out = out.parts();
    Team::global().run(tasks.len(), &|task| {
        let Task { lane, head, rows, steps } = tasks[task];
        let Shape { groups, width, heads, length, .. } = shape;
        let shared = shared.map(|(blocks, length)| (&blocks[lane * heads + head], length)).filter(|(_, length)| *length > 0);
        let shared_length = shared.map_or(0, |(_, length)| length);
        // The own block's scores begin at a whole panel.
        let own_column = shared_length.next_multiple_of(WIDTH);
        // No query of the task sees further than its last.
        let own_length = earlier + steps.1;
        let line = own_column + own_length.next_multiple_of(WIDTH);
        let per_row = (steps.1 - steps.0) * groups;
        let count = (rows.1 - rows.0) * per_row;
        let own_block = |row: usize| &own[(lane * shape.rows + row) * heads + head];
        let grid_row = |row: usize, step: usize| (lane * shape.rows + row) * length + step;
        let column = |group: usize| (head * groups + group) * width;
        // Rows, steps and groups in the order of the queries.
        let each = || {
            (rows.0..rows.1)
                .flat_map(move |row| (steps.0..steps.1).flat_map(move |step| (0..groups).map(move |g| (row, step, g))))
                .enumerate()
        };

        SCRATCH.with_borrow_mut(|scratch| {
            let grow = |buffer: &mut Vec<f32>, length: usize| {
                if buffer.len() < length {
                    buffer.resize(length, 0.0);
                }
            };
            grow(&mut scratch.queries, count * width);
            grow(&mut scratch.scores, count * line);
            grow(&mut scratch.mixed, count * padded);
            grow(&mut scratch.totals, count);
            let queries = &mut scratch.queries[..count * width];
            let scores = &mut scratch.scores[..count * line];
            let mixed = &mut scratch.mixed[..count * padded];
            let totals = &mut scratch.totals[..count];

            for (index, (row, step, group)) in each() {
                let x = &projected.row(grid_row(row, step))[column(group)..][..width];
                table.turn(shape.position + step, x, scale, &mut queries[index * width..][..width]);
            }
            let query = |first: usize| Place { start: queries[first * width..].as_ptr(), stride: width };
            let score = scores.as_mut_ptr();
            // SAFETY: queries, scores and mixed values have `count` rows; a block has panels for its length, and `line` columns hold
            // whole panels of both blocks.
            unsafe {
                let place = |first: usize, column: usize| Place { start: score.add(first * line + column), stride: line };
                if let Some((block, length)) = shared {
                    for panel in 0..length.div_ceil(WIDTH) {
                        multiply([count, width, 2], query(0), block.keys(panel, width), place(0, panel * WIDTH), false);
                    }
                }
                for row in rows.0..rows.1 {
                    let first = (row - rows.0) * per_row;
                    for panel in 0..own_length.div_ceil(WIDTH) {
                        let keys = own_block(row).keys(panel, width);
                        multiply([per_row, width, 2], query(first), keys, place(first, own_column + panel * WIDTH), false);
                    }
                }
            }
            widened(
                #[inline(always)]
                || {
                    for (index, line) in scores.chunks_exact_mut(line).enumerate() {
                        let step = steps.0 + index % per_row / groups;
                        let (before, after) = line.split_at_mut(own_column);
                        let before = &mut before[..shared_length];
                        let (seen, unseen) = after.split_at_mut(earlier + step + 1);
                        let peak = max(before).max(max(seen));
                        for score in before.iter_mut() {
                            *score = exp(*score - peak);
                        }
                        for score in seen.iter_mut() {
                            *score = exp(*score - peak);
                        }
                        totals[index] = sum(before) + sum(seen);
                        unseen.fill(0.0);
                    }
                },
            );
            let weights = |first: usize, column: usize| Place { start: scores[first * line + column..].as_ptr(), stride: line };
            let mix = mixed.as_mut_ptr();
            // SAFETY: as above; V has a row for each of the weights that are multiplied with it.
            unsafe {
                for column in (0..padded).step_by(WIDTH) {
                    let place = |first: usize| Place { start: mix.add(first * padded + column), stride: padded };
                    if let Some((block, length)) = shared {
                        multiply([count, length, 2], weights(0, 0), block.values(column, width), place(0), false);
                    }
                    for row in rows.0..rows.1 {
                        let first = (row - rows.0) * per_row;
                        let values = own_block(row).values(column, width);
                        multiply([per_row, own_length, 2], weights(first, own_column), values, place(first), shared.is_some());
                    }
                }
            }
            for (index, (row, step, group)) in each() {
                let scale = totals[index].recip();
                // SAFETY: the rows of a task and the columns of a head are this task's alone.
                let out = unsafe { out.slice(grid_row(row, step) * stride + column(group), width) };
                for (out, value) in out.iter_mut().zip(&mixed[index * padded..]) {
                    *out = value * scale;
                }
            }
        });
    });
}
