//! Attention of the queries of a task to their context: scores, softmax and the mean of the values.

use super::aligned_vec::AlignedVec;
use super::amx::Tiles;
use super::piece::{NODE_TOKENS, Run};
use super::terms::{DEPTH, RoundedPanel, Terms};
use super::tile::{Product, Strided, WIDTH, multiply, multiply_all};
use crate::kernels::simd::{LANES, exp, exp_fused, max, widened};

/// Keys whose scores are in memory at a time, in tiles.
const KEYS: usize = 256;

const _: () = assert!(KEYS.is_multiple_of(NODE_TOKENS) && NODE_TOKENS.is_multiple_of(DEPTH), "no block of tiles is divided");

/// Keys and values that consecutive queries attend to.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    /// The first query and the number of queries.
    pub(super) queries: [usize; 2],
    /// The column of the first key's score, which is its position in the context.
    pub(super) column: usize,
    pub(super) run: Run<'a>,
}

/// The queries of a task, `[N, D]`, and their context.
///
/// The scores of a part follow those of the part before it and overwrite the padding of its last
/// panel. So the results of a query are bit-identical wherever its context is divided: anywhere for
/// products in vectors, and at multiples of [`NODE_TOKENS`] for those in tiles.
pub(super) struct Context<'a> {
    pub(super) queries: &'a [f32],
    /// D.
    pub(super) width: usize,
    /// The number of keys that each query attends to, beginning with the first.
    pub(super) visible: &'a [usize],
    /// Those with all queries come first.
    pub(super) parts: &'a [Part<'a>],
}

/// Results and buffers of a thread.
#[derive(Default)]
pub(super) struct Room {
    /// Per query, `Σ e^{s − m}·v` in whole panels of columns, for scores s, values v and the
    /// largest score m.
    pub(super) mixed: AlignedVec,
    /// Per query, `Σ e^{s − m}` in partial sums.
    pub(super) totals: Vec<[f32; LANES]>,
    scores: AlignedVec,
    products: Vec<Product>,
    peaks: Vec<f32>,
    query_terms: Terms,
    weight_terms: Terms,
}

impl<'a> Context<'a> {
    fn count(&self) -> usize {
        self.visible.len()
    }

    /// Returns the number of columns of the outputs.
    pub(super) fn padded(&self) -> usize {
        self.width.next_multiple_of(WIDTH)
    }

    /// Returns the number of columns of the scores, in whole panels.
    fn line(&self) -> usize {
        let end = |part: &Part<'_>| part.column + part.run.count.next_multiple_of(WIDTH);
        self.parts.iter().map(end).max().unwrap_or(0).next_multiple_of(WIDTH)
    }

    /// Makes room for `columns` scores of each query. Checks the bounds of the parts.
    fn prepare(&self, columns: usize, room: &mut Room) {
        let count = self.count();
        assert!(self.queries.len() >= count * self.width && columns.is_multiple_of(WIDTH));
        assert!(self.parts.iter().all(|part| part.queries[0] + part.queries[1] <= count && part.run.width == self.width));
        room.scores.reach(count * columns);
        room.mixed.reach(count * self.padded());
        room.totals.clear();
        room.totals.resize(count, [0.0; LANES]);
    }

    /// Attends with products in vectors.
    pub(super) fn attend(&self, room: &mut Room) {
        let (line, width, padded) = (self.line(), self.width, self.padded());
        self.prepare(line, room);
        let Room { mixed, totals, scores, products, .. } = room;
        for Part { queries: [first, count], column, run } in self.parts {
            let a = Strided { start: self.queries[first * width..].as_ptr(), stride: width };
            for panel in 0..run.count.div_ceil(WIDTH) {
                let c = Strided { start: scores[first * line + column + panel * WIDTH..].as_mut_ptr(), stride: line };
                // SAFETY: there are rows of queries and whole panels of scores.
                unsafe { multiply([*count, width, 2], a, run.keys(panel), c, false) };
            }
        }
        for ((scores, &visible), total) in scores.chunks_exact_mut(line).zip(self.visible).zip(totals) {
            let seen = mask(scores, visible);
            widened!(exponentiate(seen, visible, max(seen.as_flattened()), total, exp));
        }
        let shared = self.parts.iter().take_while(|part| part.queries == [0, self.count()]).count();
        let (shared, own) = self.parts.split_at(shared);
        for panel in (0..padded).step_by(WIDTH) {
            let mut out = |first: usize| Strided { start: mixed[first * padded + panel..].as_mut_ptr(), stride: padded };
            let product = |Part { queries, column, run }: &Part<'_>| {
                let a = Strided { start: scores[queries[0] * line + column..].as_ptr(), stride: line };
                Product { depth: run.count, a, b: run.values(panel) }
            };
            products.clear();
            products.extend(shared.iter().map(product));
            // SAFETY: weights and outputs have the rows and columns; V has a row for each weight.
            unsafe {
                if !products.is_empty() {
                    multiply_all([self.count(), 2], products, out(0), false);
                }
                for part in own {
                    let [first, count] = part.queries;
                    multiply_all([count, 2], &[product(part)], out(first), !products.is_empty());
                }
            }
        }
    }

    /// Attends with products in tiles. Each part begins at a whole block of the prefix tree and at
    /// a square of queries.
    ///
    /// Queries and weights are sums of two terms; keys and values are rounded to bf16.
    ///
    /// Takes [`KEYS`] keys at a time. If their largest score exceeds the largest so far, the sums
    /// so far are scaled.
    pub(super) fn attend_in_tiles(&self, tiles: Tiles, room: &mut Room) {
        let (line, width, padded, count) = (self.line(), self.width, self.padded(), self.count());
        let columns = line.min(KEYS);
        assert!(self.parts.iter().all(|part| part.column.is_multiple_of(NODE_TOKENS)), "parts begin at whole blocks");
        self.prepare(columns, room);
        let Room { mixed, totals, scores, peaks, query_terms, weight_terms, .. } = room;
        peaks.clear();
        peaks.resize(count, f32::NEG_INFINITY);
        let configured = tiles.configure();
        query_terms.fill_here(tiles, self.queries.chunks_exact(width).take(count), width);
        let depth = width.div_ceil(DEPTH);
        for from in (0..line).step_by(KEYS) {
            let to = line.min(from + KEYS);
            let parts: Vec<_> = self.parts.iter().filter_map(|part| part.between(from, to)).collect();
            for &Part { queries, column, run } in &parts {
                for panel in 0..run.count.div_ceil(WIDTH) {
                    let rows = |block: usize| (run.key_rows(panel, block * DEPTH), WIDTH);
                    let start = scores[queries[0] * columns + column - from + panel * WIDTH..].as_mut_ptr();
                    let c = Strided { start, stride: columns };
                    // SAFETY: there are whole panels of scores.
                    RoundedPanel::with((tiles, &configured), depth, rows, |keys| unsafe {
                        query_terms.multiply(keys, queries, 0..depth, c, false);
                    });
                }
            }
            let states = self.visible.iter().zip(peaks.iter_mut().zip(totals.iter_mut()));
            let lines = scores.chunks_exact_mut(columns).zip(mixed.chunks_exact_mut(padded));
            let weights = lines.zip(states).map(|((scores, mixed), (&visible, (peak, total)))| {
                let visible = visible.saturating_sub(from).min(to - from);
                let seen = mask(scores, visible);
                if !seen.is_empty() {
                    widened!({
                        let highest = max(seen.as_flattened()).max(*peak);
                        let scale = exp_fused(*peak - highest);
                        if from > 0 && scale < 1.0 {
                            total.iter_mut().chain(mixed).for_each(|x| *x *= scale);
                        }
                        exponentiate(seen, visible, highest, total, exp_fused);
                        *peak = highest;
                    });
                }
                &scores[..to - from]
            });
            weight_terms.fill_here(tiles, weights, to - from);
            for panel in (0..padded).step_by(WIDTH) {
                for &Part { queries, column, run } in &parts {
                    let rows = |block: usize| run.value_rows(block * DEPTH - (column - from), panel);
                    let sweep = (column - from) / DEPTH..(column - from + run.count).div_ceil(DEPTH);
                    let c = Strided { start: mixed[queries[0] * padded + panel..].as_mut_ptr(), stride: padded };
                    // SAFETY: the outputs have the rows and columns.
                    RoundedPanel::with((tiles, &configured), (to - from) / DEPTH, rows, |values| unsafe {
                        weight_terms.multiply(values, queries, sweep, c, column > 0);
                    });
                }
            }
        }
    }
}

impl<'a> Part<'a> {
    /// Returns the part in columns `from..to`.
    fn between(&self, from: usize, to: usize) -> Option<Part<'a>> {
        let [start, end] = [from, to].map(|column| column.saturating_sub(self.column).min(self.run.count));
        (start < end).then(|| Part { column: self.column + start, run: self.run.range(start, end), ..*self })
    }
}

/// Masks the scores after the first `visible`. Returns the vectors that hold visible ones.
fn mask(scores: &mut [f32], visible: usize) -> &mut [[f32; LANES]] {
    let (seen, beyond) = scores.split_at_mut(visible.next_multiple_of(LANES));
    seen[visible..].fill(f32::NEG_INFINITY);
    beyond.fill(0.0);
    seen.as_chunks_mut().0
}

/// Replaces scores s by e^{s − peak} and adds them to the partial sums. The weights of scores after
/// the first `visible` become zero.
#[inline(always)]
fn exponentiate(seen: &mut [[f32; LANES]], visible: usize, peak: f32, totals: &mut [f32; LANES], exp: impl Fn(f32) -> f32) {
    let mut sums = *totals;
    for scores in &mut *seen {
        for (score, sum) in scores.iter_mut().zip(&mut sums) {
            *score = exp(*score - peak);
            *sum += *score;
        }
    }
    *totals = sums;
    // The exponential of −∞ is e⁻⁸⁷ here, which adds nothing to the sums, but would let a token see
    // the values of later ones where its own are zero.
    seen.as_flattened_mut()[visible..].fill(0.0);
}

#[cfg(test)]
mod tests {
    use super::super::noise::{noise, numbers};
    use super::*;

    /// The head dimension, in one and a half blocks of a tile.
    const D: usize = 48;

    /// Keys, values and queries.
    struct Lane {
        keys: Vec<f32>,
        values: Vec<f32>,
        queries: Vec<f32>,
        visible: Vec<usize>,
    }

    impl Lane {
        /// Returns a lane whose `queries` attend to nearly all of `tokens`.
        fn new(tokens: usize, queries: usize) -> Self {
            Self {
                keys: numbers(tokens.next_multiple_of(WIDTH) * D, 1),
                values: numbers(tokens * D.next_multiple_of(WIDTH), 2),
                // Some scores are large, so that the largest so far changes often.
                queries: (0..queries * D).map(|at| 3.0 * noise(at, 3)).collect(),
                visible: (0..queries).map(|query| tokens - 7 * query % tokens.min(300)).collect(),
            }
        }

        /// Attends with the tokens in parts that end at `ends`.
        fn attend(&self, ends: &[usize], tiles: Option<Tiles>) -> Vec<f32> {
            let run = Run { keys: &self.keys, values: &self.values, count: ends[ends.len() - 1], width: D };
            let starts = std::iter::once(0).chain(ends.iter().copied());
            let part = |(column, &end)| Part { queries: [0, self.visible.len()], column, run: run.range(column, end) };
            let parts: Vec<_> = starts.zip(ends).map(part).collect();
            let context = Context { queries: &self.queries, width: D, visible: &self.visible, parts: &parts };
            let mut room = Room::default();
            match tiles {
                Some(tiles) => context.attend_in_tiles(tiles, &mut room),
                None => context.attend(&mut room),
            }
            let outputs = room.mixed.chunks_exact(context.padded()).zip(&room.totals);
            outputs.flat_map(|(mixed, totals)| mixed[..D].iter().map(|x| x / totals.iter().sum::<f32>())).collect()
        }

        /// Returns the largest error of outputs.
        fn error(&self, found: &[f32]) -> f64 {
            let mut error = 0.0_f64;
            for (query, &visible) in self.visible.iter().enumerate() {
                let key = |token: usize, k: usize| f64::from(self.keys[(token / WIDTH * D + k) * WIDTH + token % WIDTH]);
                let score = |token: usize| (0..D).map(|k| f64::from(self.queries[query * D + k]) * key(token, k)).sum::<f64>();
                let weights: Vec<f64> = (0..visible).map(|token| score(token).exp()).collect();
                let value = |token: usize, column: usize| f64::from(self.values[token * D.next_multiple_of(WIDTH) + column]);
                for column in 0..D {
                    let sum: f64 = weights.iter().enumerate().map(|(token, weight)| weight * value(token, column)).sum();
                    let expected = sum / weights.iter().sum::<f64>();
                    error = error.max((f64::from(found[query * D + column]) - expected).abs());
                }
            }
            error
        }
    }

    #[test]
    fn outputs_are_means_of_values() {
        // Roundings of scores below 50, which are exponents.
        const IN_F32: f64 = 50.0 * f32::EPSILON as f64;
        // Half a unit of the eighth bit of values below one, and of keys: the errors of 48 products
        // with queries below three, of random signs, are seldom above 3·√48·2⁻⁹.
        const IN_BF16: f64 = (1.0 + 3.0 * 7.0) / 512.0;
        for (tokens, queries) in [(1, 1), (40, 5), (300, 33), (900, 64)] {
            let lane = Lane::new(tokens, queries);
            let error = lane.error(&lane.attend(&[tokens], None));
            assert!(error <= IN_F32, "{error} of {tokens} tokens");
            let Some(tiles) = Tiles::get() else { continue };
            let error = lane.error(&lane.attend(&[tokens], Some(tiles)));
            assert!(error <= IN_BF16, "{error} of {tokens} tokens in tiles");
        }
    }

    #[test]
    fn parts_do_not_change_a_bit() {
        let lane = Lane::new(900, 40);
        for tiles in [None, Tiles::get()] {
            let expected = lane.attend(&[900], tiles);
            for ends in [&[64, 128, 192, 900][..], &[640, 900], &[256, 512, 896, 900], &[64, 320, 384, 832, 900]] {
                assert!(lane.attend(ends, tiles) == expected, "parts up to {ends:?}, tiles: {}", tiles.is_some());
            }
        }
    }
    #[test]
    fn later_tokens_have_no_weight() {
        let (visible, stride) = (7, D.next_multiple_of(WIDTH));
        let mut lane = Lane::new(40, 5);
        lane.visible.fill(visible);
        // The values that are seen are zero, so that the others would show with any weight.
        lane.values[..visible * stride].fill(0.0);
        lane.values[visible * stride..].fill(1e30);
        for tiles in [None, Tiles::get()] {
            assert!(lane.attend(&[40], tiles).iter().all(|output| *output == 0.0), "tiles: {}", tiles.is_some());
        }
    }
}
