//! Grouped-query attention over a shared prefix and each row's own tokens.
//!
//! A task is one key head of one lane and some of the lane's rows. One product multiplies the
//! queries of all heads of the group with the shared keys; another one multiplies them with the
//! rows' own keys. So keys and values are never repeated. Scores are held only for the queries of
//! one task.

use std::cell::RefCell;

use super::grid::Grid;
use super::kv::Block;
use super::numbers::Numbers;
use super::piece::Run;
use super::plan::{Keys, Plan, RowSpan};
use super::tile::{Place, Product, ROWS, WIDTH, multiply, multiply_all};
use crate::decoder::heads::Heads;
use crate::decoder::rope::Table;
use crate::kernels::simd::{LANES, exp, max, widened};
use crate::team::{SharedSlice, Team, for_each_mut};

/// Approximate number of queries in a task: enough to fill tiles, few enough that their scores stay
/// in the cache.
const QUERIES: usize = 8 * ROWS;

impl Heads {
    /// Returns the columns at which keys and values begin in a row of the projections, after the
    /// queries, and the number of columns.
    pub(crate) fn columns(&self) -> [usize; 3] {
        let query = (self.queries * self.width).next_multiple_of(WIDTH);
        let key = (self.keys * self.width).next_multiple_of(WIDTH);
        [query, query + key, query + 2 * key]
    }
}

/// Appends the keys, rotated to their positions, and the values of a pass to the blocks of its
/// spans.
pub(crate) fn append(plan: &Plan, heads: Heads, projected: &Grid, table: &Table, keys: &mut [Keys<'_>]) {
    let mut own: Vec<&mut Block> = keys.iter_mut().flat_map(|keys| keys.own.iter_mut()).collect();
    for_each_mut(&mut own, |index, block| {
        append_span(plan, heads, projected, table, (&plan.spans[index / heads.keys], index % heads.keys), block);
    });
}

/// Appends a span's keys and values of one head to their block.
fn append_span(plan: &Plan, heads: Heads, projected: &Grid, table: &Table, (span, head): (&RowSpan, usize), block: &mut Block) {
    let [keys, values, _] = heads.columns();
    let at = head * heads.width;
    let token = |step: usize| {
        let line = projected.row(plan.grid_row(span, step));
        (&line[keys + at..][..heads.width], &line[values + at..][..heads.width])
    };
    widened!(block.extend([span.earlier, span.length, heads.width], (table, span.position), token));
}

#[derive(Default)]
struct Scratch {
    queries: Numbers,
    scores: Numbers,
    mixed: Numbers,
    totals: Vec<f32>,
    products: Vec<Product>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// New tokens `steps.0..steps.1` of a span.
#[derive(Debug, Clone, Copy)]
struct SpanPiece {
    span: usize,
    steps: (usize, usize),
}

impl SpanPiece {
    fn steps(self) -> usize {
        self.steps.1 - self.steps.0
    }
}

/// Pieces of one lane, `first..end`, and one key head.
#[derive(Debug, Clone, Copy)]
struct Task {
    first: usize,
    end: usize,
    head: usize,
}

/// Divides the spans: long ones into pieces, short ones of a lane into one task.
fn divide(plan: &Plan, heads: Heads) -> (Vec<SpanPiece>, Vec<Task>) {
    let most = (QUERIES / heads.queries_per_key()).max(1);
    let mut pieces: Vec<SpanPiece> = Vec::with_capacity(plan.spans.len());
    // Pieces of a task, and the tokens in them.
    let mut shares: Vec<(usize, usize, usize)> = Vec::new();
    for (index, span) in plan.spans.iter().enumerate() {
        for step in (span.known..span.length).step_by(most) {
            let piece = SpanPiece { span: index, steps: (step, (step + most).min(span.length)) };
            let joins = |&&mut (_, end, tokens): &&mut (usize, usize, usize)| {
                let before = &plan.spans[pieces[end - 1].span];
                let few = (tokens + piece.steps()) * heads.queries_per_key() <= 2 * ROWS;
                few && (before.group, before.lane) == (span.group, span.lane)
            };
            match shares.last_mut().filter(joins) {
                Some((_, end, tokens)) => {
                    *end += 1;
                    *tokens += piece.steps();
                }
                None => shares.push((pieces.len(), pieces.len() + 1, piece.steps())),
            }
            pieces.push(piece);
        }
    }
    let task = |&(first, end, _): &(usize, usize, usize)| (0..heads.keys).map(move |head| Task { first, end, head });
    (pieces, shares.iter().flat_map(task).collect())
}

/// Appends keys and values as [`append`] does, and writes the attention output `[M, Hq·D]` to
/// `out`.
///
/// A token attends to the tokens that the rows of its lane share and, in its row's own block, to
/// earlier tokens and to new tokens up to itself. One softmax covers both. The lengths of the
/// caches must not include the tokens of the pass yet.
pub(crate) fn attend(plan: &Plan, heads: Heads, projected: &Grid, table: &Table, keys: &mut [Keys<'_>], out: &mut Grid) {
    let (pieces, tasks) = divide(plan, heads);
    // If each span is one piece, one task per head owns it and finds the appended keys in its
    // caches.
    let whole = pieces.iter().map(|piece| piece.span).eq(0..plan.spans.len());
    if !whole {
        append(plan, heads, projected, table, keys);
    }
    // What rows share, and the rows' own blocks.
    let keys: Vec<_> = keys.iter_mut().map(|keys| (keys.shared, SharedSlice::of(keys.own))).collect();
    let scale = (heads.width as f32).sqrt().recip();
    let padded = heads.width.next_multiple_of(WIDTH);
    let stride = out.stride();
    let out = out.parts();
    Team::global().run(tasks.len(), &|task| {
        let Task { first, end, head } = tasks[task];
        let pieces = &pieces[first..end];
        let (key_heads, queries_per_key, width) = (heads.keys, heads.queries_per_key(), heads.width);
        let lane = plan.spans[pieces[0].span];
        let (shared, own) = keys[lane.group];
        let shared_runs = || shared.runs(lane.lane, head);
        let shared_length = shared_runs().map(|run| run.count).sum::<usize>();
        let index = |piece: &SpanPiece| plan.spans[piece.span].own * key_heads + head;
        if whole {
            for piece in pieces {
                // SAFETY: no other piece belongs to this span, and no other task has this piece and
                // head.
                let block = unsafe { &mut own.slice(index(piece), 1)[0] };
                append_span(plan, heads, projected, table, (&plan.spans[piece.span], head), block);
            }
        }
        // No query of a piece attends beyond the piece's last token.
        let own_length = |piece: &SpanPiece| plan.spans[piece.span].earlier + piece.steps.1;
        // SAFETY: this task, or the loop before all tasks, has appended the new keys and values.
        let own_run = |piece: &SpanPiece| unsafe { &*own.at(index(piece)) }.run(own_length(piece), width);
        // The scores of each run and of the own block follow those of the run before and overwrite
        // the padding of its last panel. So the results of a row are bit-identical wherever its
        // context is divided.
        let longest = pieces.iter().map(own_length).max().unwrap_or(0);
        let line = (shared_length + longest.next_multiple_of(WIDTH)).next_multiple_of(WIDTH);
        let column = |group: usize| (head * queries_per_key + group) * width;
        let count = pieces.iter().map(|piece| piece.steps() * queries_per_key).sum::<usize>();
        // Each piece and the number of its first query.
        let numbered = || {
            pieces.iter().scan(0, |next, piece| {
                let first = *next;
                *next += piece.steps() * queries_per_key;
                Some((piece, first))
            })
        };
        // The queries in order: number, piece, step and group.
        let each = || {
            numbered().flat_map(move |(piece, first)| {
                (piece.steps.0..piece.steps.1)
                    .flat_map(move |step| (0..queries_per_key).map(move |group| (step, group)))
                    .enumerate()
                    .map(move |(index, (step, group))| (first + index, &plan.spans[piece.span], step, group))
            })
        };

        SCRATCH.with_borrow_mut(|scratch| {
            scratch.queries.reach(count * width);
            scratch.scores.reach(count * line);
            scratch.mixed.reach(count * padded);
            scratch.totals.resize(scratch.totals.len().max(count), 0.0);
            let queries = &mut scratch.queries[..count * width];
            let scores = &mut scratch.scores[..count * line];
            let mixed = &mut scratch.mixed[..count * padded];
            let totals = &mut scratch.totals[..count];
            let products = &mut scratch.products;

            widened!({
                for (index, span, step, group) in each() {
                    let x = &projected.row(plan.grid_row(span, step))[column(group)..][..width];
                    table.rotate(span.position + step, x, scale, &mut queries[index * width..][..width]);
                }
            });
            let query = |first: usize| Place { start: queries[first * width..].as_ptr(), stride: width };
            let score = scores.as_mut_ptr();
            // SAFETY: queries, scores and outputs have `count` rows; a run has panels for its
            // positions, and `line` columns hold whole panels of all runs.
            unsafe {
                let place = |first: usize, column: usize| Place { start: score.add(first * line + column), stride: line };
                let score = |run: Run<'_>, rows: usize, first: usize, column: usize| {
                    for panel in 0..run.count.div_ceil(WIDTH) {
                        let place = place(first, column + panel * WIDTH);
                        multiply([rows, width, 2], query(first), run.keys(panel), place, false);
                    }
                };
                let mut column = 0;
                for run in shared_runs() {
                    score(run, count, 0, column);
                    column += run.count;
                }
                for (piece, first) in numbered() {
                    score(own_run(piece), piece.steps() * queries_per_key, first, column);
                }
            }
            for (index, span, step, _) in each() {
                let visible = shared_length + span.earlier + step + 1;
                let scores = &mut scores[index * line..][..line];
                // Mask the keys that fill the last vector but are not attended to.
                scores[visible..visible.next_multiple_of(LANES)].fill(f32::NEG_INFINITY);
                let (seen, _) = scores[..visible.next_multiple_of(LANES)].as_chunks_mut();
                totals[index] = widened!(exponentiate(seen));
                scores[visible..].fill(0.0);
            }
            let weights = |first: usize, column: usize| Place { start: scores[first * line + column..].as_ptr(), stride: line };
            let mix = mixed.as_mut_ptr();
            // SAFETY: as above; V has a row for each weight.
            unsafe {
                for column in (0..padded).step_by(WIDTH) {
                    let place = |first: usize| Place { start: mix.add(first * padded + column), stride: padded };
                    products.clear();
                    products.extend(shared_runs().scan(0, |from, run| {
                        let a = weights(0, *from);
                        *from += run.count;
                        Some(Product { depth: run.count, a, b: run.values(column) })
                    }));
                    if !products.is_empty() {
                        multiply_all([count, 2], products, place(0), false);
                    }
                    for (piece, first) in numbered() {
                        let run = own_run(piece);
                        let shape = [piece.steps() * queries_per_key, run.count, 2];
                        multiply(shape, weights(first, shared_length), run.values(column), place(first), !products.is_empty());
                    }
                }
            }
            for (index, span, step, group) in each() {
                let scale = totals[index].recip();
                // SAFETY: the tokens of a task and the columns of a head belong to this task alone.
                let out = unsafe { out.slice(plan.grid_row(span, step) * stride + column(group), width) };
                for (out, value) in out.iter_mut().zip(&mixed[index * padded..]) {
                    *out = value * scale;
                }
            }
        });
    });
}

/// Replaces the scores of the keys that a query attends to by e^{s − max}, the numerators of their
/// softmax. Returns the sum.
#[inline(always)]
fn exponentiate(seen: &mut [[f32; LANES]]) -> f32 {
    let peak = max(seen.as_flattened());
    let mut sums = [0.0_f32; LANES];
    for scores in seen {
        for (score, sum) in scores.iter_mut().zip(&mut sums) {
            *score = exp(*score - peak);
            *sum += *score;
        }
    }
    sums.iter().sum()
}
