//! Grouped-query attention over a shared prefix and each row's own tokens.
//!
//! A task is one key head of one lane and some of the lane's rows. One product multiplies the
//! queries of all heads of the group with the shared keys; another one multiplies them with the
//! rows' own keys. So keys and values are never repeated. Scores are held only for the queries of
//! one task.

use std::cell::RefCell;

use super::aligned_vec::AlignedVec;
use super::amx::{SIDE, Tiles};
use super::context::{Context, Part, Room};
use super::grid::Grid;
use super::kv::Block;
use super::piece::{NODE_TOKENS, Run};
use super::plan::{Keys, Plan, RowSpan};
use super::tile::{ROWS, WIDTH};
use crate::decoder::heads::Heads;
use crate::decoder::rope::Table;
use crate::kernels::simd::widened;
use crate::team::{SharedSlice, Team, for_each_mut};

/// Approximate number of queries in a task: enough to fill tiles, few enough that their scores stay
/// in the cache.
pub(crate) const QUERIES: usize = 8 * ROWS;

/// The largest number of queries of a task in AMX tiles. The keys and values of a task are rounded
/// once for all its queries.
const TILED_QUERIES: usize = 4 * QUERIES;

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
    queries: AlignedVec,
    visible: Vec<usize>,
    /// In tiles, the tokens of each piece that follow whole blocks.
    joined: Vec<Block>,
    room: Room,
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
    /// Returns the number of queries under one key head, rounded up to a multiple of `height`.
    fn queries(self, heads: Heads, height: usize) -> usize {
        ((self.steps.1 - self.steps.0) * heads.queries_per_key()).next_multiple_of(height)
    }
}

/// Pieces of one lane, `first..end`, and one key head.
#[derive(Debug, Clone, Copy)]
struct Task {
    first: usize,
    end: usize,
    head: usize,
}

/// Pieces of one lane, `first..end`, and the number of their queries.
struct Share {
    first: usize,
    end: usize,
    queries: usize,
}

/// Returns the largest number of queries of a piece, and of a task of several pieces.
fn sizes(plan: &Plan, heads: Heads, tiled: bool) -> [usize; 2] {
    if !tiled {
        return [QUERIES, 2 * ROWS];
    }
    let queries = plan.tokens.len() * heads.queries;
    let share = (queries / (2 * Team::global().threads())).clamp(QUERIES, TILED_QUERIES);
    [share, share]
}

/// Divides the spans: long ones into pieces, short ones of a lane into one task. The number of
/// queries of a piece is rounded up to a multiple of `height`.
fn divide(plan: &Plan, heads: Heads, [largest, joined]: [usize; 2], height: usize) -> (Vec<SpanPiece>, Vec<Task>) {
    let most = (largest / heads.queries_per_key()).max(1);
    let mut pieces: Vec<SpanPiece> = Vec::with_capacity(plan.spans.len());
    let mut shares: Vec<Share> = Vec::new();
    for (index, span) in plan.spans.iter().enumerate() {
        for step in (span.known..span.length).step_by(most) {
            let piece = SpanPiece { span: index, steps: (step, (step + most).min(span.length)) };
            let new = piece.queries(heads, height);
            let joins = |share: &&mut Share| {
                let before = &plan.spans[pieces[share.end - 1].span];
                share.queries + new <= joined && (before.group, before.lane) == (span.group, span.lane)
            };
            match shares.last_mut().filter(joins) {
                Some(share) => {
                    share.end += 1;
                    share.queries += new;
                }
                None => shares.push(Share { first: pieces.len(), end: pieces.len() + 1, queries: new }),
            }
            pieces.push(piece);
        }
    }
    let task = |&Share { first, end, .. }: &Share| (0..heads.keys).map(move |head| Task { first, end, head });
    (pieces, shares.iter().flat_map(task).collect())
}

/// Appends keys and values as [`append`] does, and writes the attention output `[M, Hq·D]` to
/// `out`.
///
/// A token attends to the tokens that the rows of its lane share and, in its row's own block, to
/// earlier tokens and to new tokens up to itself. One softmax covers both. The lengths of the
/// caches must not include the tokens of the pass yet.
///
/// With `tiles`, products run in AMX tiles, and keys and values are rounded to bf16.
pub(crate) fn attend(
    plan: &Plan,
    heads: Heads,
    projected: &Grid,
    table: &Table,
    keys: &mut [Keys<'_>],
    tiles: Option<Tiles>,
    out: &mut Grid,
) {
    // In tiles, the queries of a piece begin a square.
    let height = if tiles.is_some() { SIDE } else { 1 };
    let (pieces, tasks) = divide(plan, heads, sizes(plan, heads, tiles.is_some()), height);
    // If each span is one piece, one task per head owns it and finds the appended keys in its
    // caches.
    let whole = pieces.iter().map(|piece| piece.span).eq(0..plan.spans.len());
    if !whole {
        append(plan, heads, projected, table, keys);
    }
    // What rows share, and the rows' own blocks.
    let keys: Vec<_> = keys.iter_mut().map(|keys| (keys.shared, SharedSlice::of(keys.own))).collect();
    let scale = (heads.width as f32).sqrt().recip();
    let stride = out.stride();
    let out = out.parts();
    Team::global().run(tasks.len(), &|task| {
        let Task { first, end, head } = tasks[task];
        let pieces = &pieces[first..end];
        let (key_heads, queries_per_key, width) = (heads.keys, heads.queries_per_key(), heads.width);
        let lane = plan.spans[pieces[0].span];
        let (shared, own) = keys[lane.group];
        let mut runs: Vec<Run<'_>> = shared.runs(lane.lane, head).collect();
        let shared_length = runs.iter().map(|run| run.count).sum::<usize>();
        // Tiles add up the products of whole blocks. The tokens after the last shared block are
        // joined to each row's own, so that blocks begin at the same tokens wherever a context is
        // divided.
        let mut tail = Run::default();
        if let Some(last) = runs.pop_if(|last| tiles.is_some() && !last.count.is_multiple_of(NODE_TOKENS)) {
            let whole = last.count - last.count % NODE_TOKENS;
            tail = last.range(whole, last.count);
            runs.extend((whole > 0).then(|| last.range(0, whole)));
        }
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
        let column = |group: usize| (head * queries_per_key + group) * width;
        let count = pieces.iter().map(|piece| piece.queries(heads, height)).sum::<usize>();
        // Each piece and the number of its first query.
        let numbered = || {
            pieces.iter().scan(0, |next, piece| {
                let first = *next;
                *next += piece.queries(heads, height);
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

        SCRATCH.with_borrow_mut(|Scratch { queries, visible, joined, room }| {
            if tail.count > 0 {
                joined.resize(joined.len().max(pieces.len()), Block::default());
                joined.iter_mut().zip(pieces).for_each(|(block, piece)| block.join(tail, own_run(piece)));
            }
            queries.reach(count * width);
            visible.clear();
            visible.resize(count, 0);
            widened!({
                for (index, span, step, group) in each() {
                    let x = &projected.row(plan.grid_row(span, step))[column(group)..][..width];
                    table.rotate(span.position + step, x, scale, &mut queries[index * width..][..width]);
                    visible[index] = shared_length + span.earlier + step + 1;
                }
            });
            let mut parts: Vec<Part<'_>> = Vec::with_capacity(runs.len() + pieces.len());
            let mut next = 0;
            for run in runs {
                parts.push(Part { queries: [0, count], column: next, run });
                next += run.count;
            }
            parts.extend(numbered().enumerate().map(|(index, (piece, first))| {
                let own = if tail.count > 0 { joined[index].run(tail.count + own_length(piece), width) } else { own_run(piece) };
                Part { queries: [first, piece.queries(heads, height)], column: next, run: own }
            }));
            let context = Context { queries, width, visible, parts: &parts };
            match tiles {
                Some(tiles) => context.attend_in_tiles(tiles, room),
                None => context.attend(room),
            }
            let padded = context.padded();
            for (index, span, step, group) in each() {
                let scale = room.totals[index].iter().sum::<f32>().recip();
                // SAFETY: the tokens of a task and the columns of a head belong to this task alone.
                let out = unsafe { out.slice(plan.grid_row(span, step) * stride + column(group), width) };
                for (out, value) in out.iter_mut().zip(&room.mixed[index * padded..]) {
                    *out = value * scale;
                }
            }
        });
    });
}
