//! Keys and values, laid out as the right-hand sides of attention's two products.

use std::sync::Arc;

use super::aligned_vec::AlignedVec;
use super::piece::{KvPiece, NODE_TOKENS, Run};
use super::tile::WIDTH;
use crate::config::Qwen2Config;
use crate::decoder::engine::{PrefixCache, SuffixCache, of, of_box};
use crate::decoder::rope::Table;
use crate::team::for_each_mut;

/// Keys and values of one head of one sequence.
#[derive(Debug, Clone, Default)]
pub(crate) struct Block {
    /// Kᵀ `[D, T]` in panels of 32 positions. The rest of the last panel may hold anything finite.
    keys: AlignedVec,
    /// `[T, D]`, rows padded to whole panels.
    values: AlignedVec,
}

impl Block {
    /// Replaces the block by the positions of two runs.
    pub(super) fn join(&mut self, first: Run<'_>, second: Run<'_>) {
        self.truncate(0, second.width);
        self.append(0, first);
        self.append(first.count, second);
    }

    /// Keeps the first `length` positions.
    fn truncate(&mut self, length: usize, width: usize) {
        self.keys.truncate(length.div_ceil(WIDTH) * width * WIDTH);
        self.values.truncate(length * width.next_multiple_of(WIDTH));
    }

    /// Appends `count` tokens from position `position` on; the first becomes the block's
    /// `index`-th. Keys of `width` numbers are rotated by `table`. `token` returns the key and
    /// value of each token.
    #[inline(always)]
    pub(crate) fn extend<'a>(
        &mut self,
        [index, count, width]: [usize; 3],
        (table, position): (&Table, usize),
        token: impl Fn(usize) -> (&'a [f32], &'a [f32]),
    ) {
        let stride = width.next_multiple_of(WIDTH);
        let values = self.make_room([index, count, width]);
        for (at, line) in values.chunks_exact_mut(stride).enumerate() {
            line[..width].copy_from_slice(token(at).1);
        }
        let mut done = 0;
        while done < count {
            let at = index + done;
            let tokens = (WIDTH - at % WIDTH).min(count - done);
            let panel = &mut self.keys[at / WIDTH * width * WIDTH..][..width * WIDTH];
            table.rotate_columns((position + done, tokens), |step| token(done + step).0, &mut panel[at % WIDTH..], WIDTH);
            done += tokens;
        }
    }

    /// Reserves `count` positions from the `index`-th on and returns the memory of their values.
    fn make_room(&mut self, [index, count, width]: [usize; 3]) -> &mut [f32] {
        let (panels, stride) = ((index + count).div_ceil(WIDTH), width.next_multiple_of(WIDTH));
        self.keys.resize(panels * width * WIDTH);
        let values = index * stride;
        if self.values.capacity() < values + count * stride {
            // Growing token by token would copy the block again and again.
            self.values.reserve(count.next_multiple_of(WIDTH) * stride);
        }
        self.values.resize(values + count * stride);
        &mut self.values[values..]
    }

    /// Returns the first `count` positions.
    pub(crate) fn run(&self, count: usize, width: usize) -> Run<'_> {
        self.run_from(0, count, width)
    }

    /// Returns `count` positions from the `first`-th on, which begins a panel.
    fn run_from(&self, first: usize, count: usize, width: usize) -> Run<'_> {
        let (panel, stride) = (width * WIDTH, width.next_multiple_of(WIDTH));
        Run {
            keys: &self.keys[first / WIDTH * panel..][..count.div_ceil(WIDTH) * panel],
            values: &self.values[first * stride..][..count * stride],
            count,
            width,
        }
    }

    /// Appends the positions of a run after the first `length` positions of this block. A pass that
    /// did not end may have left more.
    fn append(&mut self, length: usize, other: Run<'_>) {
        let Run { count: tokens, width, .. } = other;
        self.truncate(length, width);
        self.values.append(other.values);
        // Panels that are whole in both blocks.
        let whole = if length.is_multiple_of(WIDTH) { tokens / WIDTH } else { 0 };
        self.keys.append(&other.keys[..whole * width * WIDTH]);
        self.keys.resize((length + tokens).div_ceil(WIDTH) * width * WIDTH);
        let mut done = whole * WIDTH;
        while done < tokens {
            let at = length + done;
            // As many positions as lie in one panel in both blocks.
            let count = (WIDTH - at % WIDTH).min(WIDTH - done % WIDTH).min(tokens - done);
            let to = &mut self.keys[at / WIDTH * width * WIDTH..][..width * WIDTH];
            let from = &other.keys[done / WIDTH * width * WIDTH..][..width * WIDTH];
            for (to, from) in to.chunks_exact_mut(WIDTH).zip(from.chunks_exact(WIDTH)) {
                to[at % WIDTH..][..count].copy_from_slice(&from[done % WIDTH..][..count]);
            }
            done += count;
        }
    }
}

/// The blocks of several sequences of one length.
#[derive(Debug)]
pub(crate) struct KvCache {
    /// Per layer: `sequences × heads`, the heads of a sequence side by side.
    layers: Vec<Vec<Block>>,
    heads: usize,
    width: usize,
    sequences: usize,
    /// Tokens of each sequence.
    pub(super) length: usize,
    /// Whether a pass appended other bits than reading the tokens into an empty prefix would.
    pub(super) differs: bool,
}

impl KvCache {
    pub(crate) fn new(config: &Qwen2Config, sequences: usize) -> Self {
        let heads = config.num_key_value_heads;
        Self {
            layers: vec![vec![Block::default(); sequences * heads]; config.num_hidden_layers],
            heads,
            width: config.head_dim,
            sequences,
            length: 0,
            differs: false,
        }
    }

    pub(crate) fn layer_mut(&mut self, layer: usize) -> &mut [Block] {
        &mut self.layers[layer]
    }

    /// Returns the block of a head of one sequence. Heads are counted through all layers.
    fn block(&self, sequence: usize, head: usize) -> &Block {
        &self.layers[head / self.heads][sequence * self.heads + head % self.heads]
    }

    /// Appends the sequences of another cache of as many tokens.
    fn join(&mut self, other: Self) {
        for (own, new) in self.layers.iter_mut().zip(other.layers) {
            own.extend(new);
        }
        self.sequences += other.sequences;
    }

    /// Keeps the given sequences in the given order. Blocks are moved, and copied only if a
    /// sequence occurs more than once.
    fn select(&mut self, sequences: &[usize]) {
        for blocks in &mut self.layers {
            let mut old: Vec<Option<Block>> = std::mem::take(blocks).into_iter().map(Some).collect();
            let last_use = |at: usize| !sequences[at + 1..].contains(&sequences[at]);
            for (at, &sequence) in sequences.iter().enumerate() {
                for slot in &mut old[sequence * self.heads..(sequence + 1) * self.heads] {
                    blocks.extend(if last_use(at) { slot.take() } else { slot.clone() });
                }
            }
        }
        self.sequences = sequences.len();
    }

    fn truncate(&mut self, length: usize) {
        self.layers.iter_mut().flatten().for_each(|block| block.truncate(length, self.width));
        self.length = length;
    }

    /// Appends to each sequence the run that `run` returns for the sequence and a head, counted
    /// through all layers. All runs have `count` positions.
    fn append<'a>(&mut self, count: usize, run: impl Fn(usize, usize) -> Run<'a>) {
        for (layer, blocks) in self.layers.iter_mut().enumerate() {
            for (index, block) in blocks.iter_mut().enumerate() {
                block.append(self.length, run(index / self.heads, layer * self.heads + index % self.heads));
            }
        }
        self.length += count;
    }

    /// Removes the first tokens and returns them as `count` pieces of each sequence. Copies all
    /// tokens once.
    fn split(&mut self, count: usize) -> Vec<Vec<Arc<KvPiece>>> {
        let (width, removed) = (self.width, count * NODE_TOKENS);
        let mut pieces = vec![AlignedVec::default(); self.sequences * count];
        for_each_mut(&mut pieces, |index, numbers| {
            let (sequence, first) = (index / count, index % count * NODE_TOKENS);
            numbers.reserve(self.layers.len() * self.heads * NODE_TOKENS * (width + width.next_multiple_of(WIDTH)));
            for block in self.layers.iter().flat_map(|blocks| &blocks[sequence * self.heads..][..self.heads]) {
                let Run { keys, values, .. } = block.run_from(first, NODE_TOKENS, width);
                numbers.append(keys);
                numbers.append(values);
            }
        });
        self.length -= removed;
        for block in self.layers.iter_mut().flatten() {
            let mut after = Block::default();
            after.append(0, block.run_from(removed, self.length, width));
            *block = after;
        }
        let mut pieces = pieces.into_iter().map(|numbers| Arc::new(KvPiece { numbers, width }));
        (0..self.sequences).map(|_| pieces.by_ref().take(count).collect()).collect()
    }
}

impl SuffixCache for KvCache {
    fn len(&self) -> usize {
        self.length
    }

    fn advance(&mut self, tokens: usize) {
        self.length += tokens;
    }

    fn select_rows(&mut self, lanes: usize, rows: &[usize]) -> bool {
        let per_lane = self.sequences / lanes;
        let sequences: Vec<usize> = (0..lanes).flat_map(|lane| rows.iter().map(move |row| lane * per_lane + row)).collect();
        self.select(&sequences);
        true
    }
}

/// The context of each lane: pieces, which several contexts may share, then the blocks of the
/// tokens after them.
#[derive(Debug)]
pub(crate) struct KvPrefix {
    /// The pieces of each lane. All lanes have the same number of pieces.
    pieces: Vec<Vec<Arc<KvPiece>>>,
    pub(super) rest: KvCache,
    /// The first token whose keys and values are not canonical.
    differs_from: Option<usize>,
}

impl KvPrefix {
    pub(crate) fn new(config: &Qwen2Config, lanes: usize) -> Self {
        Self { pieces: vec![Vec::new(); lanes], rest: KvCache::new(config, lanes), differs_from: None }
    }

    /// Records that the next tokens are not canonical.
    pub(super) fn mark(&mut self) {
        self.differs_from.get_or_insert(self.len());
    }

    /// Returns the number of pieces of each lane.
    fn piece_count(&self) -> usize {
        self.pieces.first().map_or(0, Vec::len)
    }

    /// Returns the number of tokens of each lane that are in pieces.
    pub(crate) fn in_pieces(&self) -> usize {
        self.piece_count() * NODE_TOKENS
    }

    /// Returns the keys and values of all tokens in one layer.
    pub(crate) fn layer(&self, layer: usize) -> Shared<'_> {
        let KvCache { heads, width, length, .. } = self.rest;
        Shared { pieces: &self.pieces, rest: &self.rest.layers[layer], length, first: layer * heads, heads, width }
    }

    /// Returns the keys and values of the tokens in pieces in one layer, and the blocks of the
    /// tokens after them.
    pub(crate) fn layer_mut(&mut self, layer: usize) -> (Shared<'_>, &mut [Block]) {
        let KvCache { heads, width, .. } = self.rest;
        let shared = Shared { pieces: &self.pieces, rest: &[], length: 0, first: layer * heads, heads, width };
        (shared, self.rest.layer_mut(layer))
    }

    /// Moves the first tokens of each lane into pieces until each lane has at least `pieces`.
    fn divide(&mut self, pieces: usize) {
        let more = pieces.saturating_sub(self.piece_count());
        if more > 0 {
            let new = self.rest.split(more);
            self.pieces.iter_mut().zip(new).for_each(|(pieces, new)| pieces.extend(new));
        }
    }
}

impl PrefixCache for KvPrefix {
    fn len(&self) -> usize {
        self.in_pieces() + self.rest.length
    }

    fn lanes(&self) -> usize {
        self.rest.sequences
    }

    fn advance(&mut self, tokens: usize) {
        self.rest.length += tokens;
    }

    fn canonical_len(&self) -> usize {
        self.differs_from.unwrap_or_else(|| self.len())
    }

    fn truncate(&mut self, length: usize) {
        assert!(length <= self.len(), "cannot truncate {} tokens to {length}", self.len());
        let kept = length.saturating_sub(self.in_pieces());
        if kept < self.rest.length {
            self.rest.truncate(kept);
        }
        self.differs_from = self.differs_from.filter(|&from| from < length);
        let (whole, part) = (length / NODE_TOKENS, length % NODE_TOKENS);
        if whole < self.piece_count() {
            let cut: Vec<_> = self.pieces.iter_mut().flat_map(|pieces| pieces.drain(whole..).next()).collect();
            if part > 0 {
                self.rest.append(part, |lane, head| cut[lane].run(head).range(0, part));
            }
        }
    }

    fn select_lanes(&mut self, lanes: &[usize]) {
        self.pieces = lanes.iter().map(|&lane| self.pieces[lane].clone()).collect();
        self.rest.select(lanes);
    }

    fn adopt(&mut self, suffix: &dyn SuffixCache, row: usize, tokens: usize) {
        let suffix: &KvCache = of(suffix);
        let rows = suffix.sequences / self.rest.sequences;
        if suffix.differs && tokens > 0 {
            self.mark();
        }
        self.rest.append(tokens, |lane, head| suffix.block(lane * rows + row, head).run(tokens, suffix.width));
    }

    fn join_lanes(&mut self, other: Box<dyn PrefixCache>) {
        let mut other: Self = of_box(other);
        assert_eq!(self.len(), other.len(), "prefixes of different lengths cannot be joined");
        self.divide(other.piece_count());
        other.divide(self.piece_count());
        self.differs_from = self.differs_from.into_iter().chain(other.differs_from).min();
        self.pieces.extend(other.pieces);
        self.rest.join(other.rest);
    }

    fn share(&mut self, pieces: usize) -> Option<&[Vec<Arc<KvPiece>>]> {
        self.divide(pieces);
        Some(&self.pieces)
    }

    fn attach(&mut self, lanes: Vec<Vec<Arc<KvPiece>>>) {
        assert_eq!(self.len(), self.in_pieces(), "pieces follow whole pieces");
        self.pieces.iter_mut().zip(lanes).for_each(|(pieces, new)| pieces.extend(new));
    }
}

/// The keys and values that the rows of each lane share, in one layer.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'a> {
    /// The pieces of each lane.
    pieces: &'a [Vec<Arc<KvPiece>>],
    /// The blocks of each lane and head after the pieces, and their number of positions.
    rest: &'a [Block],
    length: usize,
    /// The number of heads in the layers before this one, and in one layer.
    first: usize,
    heads: usize,
    width: usize,
}

impl<'a> Shared<'a> {
    /// Returns the runs of one head of a lane in order.
    pub(crate) fn runs(self, lane: usize, head: usize) -> impl Iterator<Item = Run<'a>> {
        let pieces = self.pieces[lane].iter().map(move |piece| piece.run(self.first + head));
        let rest = (self.length > 0).then(|| self.rest[lane * self.heads + head].run(self.length, self.width));
        pieces.chain(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::super::noise::numbers;
    use super::*;
    use crate::decoder::rope::Rotations;

    /// The head dimension. Half of it is not a multiple of a vector, and values are not whole
    /// panels.
    const D: usize = 42;

    /// More than two panels.
    const TOKENS: usize = 75;

    struct Tokens {
        keys: Vec<f32>,
        values: Vec<f32>,
    }

    impl Tokens {
        fn new(count: usize) -> Self {
            Self { keys: numbers(count * D, 1), values: numbers(count * D, 2) }
        }

        /// Returns a block of the tokens from `first` on, appended in steps up to each of `ends`.
        /// Token i has position i + 9.
        fn block(&self, first: usize, ends: &[usize]) -> Block {
            let table = Rotations::new(D, 100.0).reach(self.keys.len() / D + 9);
            let mut block = Block::default();
            let mut from = first;
            for &end in ends {
                let token = |token: usize| {
                    let at = (from + token) * D;
                    (&self.keys[at..at + D], &self.values[at..at + D])
                };
                block.extend([from - first, end - from, D], (&table, from + 9), token);
                from = end;
            }
            block
        }
    }

    fn same(a: &Block, b: &Block) {
        assert_eq!(a.keys[..], b.keys[..]);
        assert_eq!(a.values[..], b.values[..]);
    }

    #[test]
    fn what_follows_the_place_of_an_append_is_dropped() {
        let tokens = Tokens::new(TOKENS);
        let other = tokens.block(10, &[WIDTH]);
        // As after a pass that did not end.
        let [mut longer, mut expected] = [40, 10].map(|end| tokens.block(0, &[end]));
        longer.append(10, other.run(WIDTH - 10, D));
        expected.append(10, other.run(WIDTH - 10, D));
        same(&longer, &expected);
    }

    #[test]
    fn keys_are_rotated_to_their_positions() {
        let (tokens, half) = (Tokens::new(TOKENS), D / 2);
        let block = tokens.block(0, &[TOKENS]);
        for token in 0..TOKENS {
            for j in 0..half {
                let angle = (token + 9) as f64 * 100.0_f64.powf(-2.0 * j as f64 / D as f64);
                let (x1, x2) = (f64::from(tokens.keys[token * D + j]), f64::from(tokens.keys[token * D + half + j]));
                let rotated = [x1 * angle.cos() - x2 * angle.sin(), x2 * angle.cos() + x1 * angle.sin()];
                for (component, expected) in [j, half + j].into_iter().zip(rotated) {
                    let found = block.keys[(token / WIDTH * D + component) * WIDTH + token % WIDTH];
                    // Two products and a sum, each rounded, of numbers below one.
                    assert!((f64::from(found) - expected).abs() < 4.0 * f64::from(f32::EPSILON), "{token}, {component}");
                }
            }
            let line = &block.values[token * D.next_multiple_of(WIDTH)..][..D.next_multiple_of(WIDTH)];
            assert!(line[..D] == tokens.values[token * D..][..D] && line[D..].iter().all(|value| *value == 0.0));
        }
    }

    #[test]
    fn tokens_may_come_at_once_or_one_by_one() {
        let tokens = Tokens::new(TOKENS);
        let whole = tokens.block(0, &[TOKENS]);
        let singly: Vec<usize> = (1..=TOKENS).collect();
        same(&whole, &tokens.block(0, &singly));
        same(&whole, &tokens.block(0, &[5, 40, 64, TOKENS]));
    }

    #[test]
    fn adopted_tokens_equal_appended_ones() {
        let tokens = Tokens::new(TOKENS);
        for (length, count) in [(0, 7), (5, 30), (31, 33), (32, 43), (40, 1)] {
            let mut block = tokens.block(0, &[length]);
            let other = tokens.block(length, &[TOKENS]);
            block.append(length, other.run(count, D));
            same(&block, &tokens.block(0, &[length + count]));
            // Truncated tokens leave no trace.
            block.truncate(length, D);
            block.append(length, other.run(count, D));
            same(&block, &tokens.block(0, &[length + count]));
        }
    }

    /// The blocks of two layers, `lanes` sequences and two heads, of `length` tokens each. Every
    /// block begins with another token.
    fn cache(tokens: &Tokens, lanes: &[usize], length: usize) -> KvCache {
        let blocks = |layer: usize| {
            let heads = lanes.iter().flat_map(|lane| [2 * lane, 2 * lane + 1]);
            heads.map(|head| tokens.block(8 * layer + head, &[8 * layer + head + length])).collect()
        };
        KvCache { layers: vec![blocks(0), blocks(1)], heads: 2, width: D, sequences: lanes.len(), length, differs: false }
    }

    fn prefix(rest: KvCache) -> KvPrefix {
        KvPrefix { pieces: vec![Vec::new(); rest.sequences], rest, differs_from: None }
    }

    /// Checks that a prefix holds the tokens of [`cache`].
    fn holds(prefix: &KvPrefix, tokens: &Tokens, lanes: &[usize], length: usize) {
        assert_eq!((prefix.len(), prefix.lanes()), (length, lanes.len()));
        let expected = cache(tokens, lanes, length);
        for layer in 0..2 {
            for lane in 0..lanes.len() {
                for head in 0..2 {
                    let mut block = Block::default();
                    let mut at = 0;
                    for run in prefix.layer(layer).runs(lane, head) {
                        block.append(at, run);
                        at += run.count;
                    }
                    same(&block, &expected.layers[layer][2 * lane + head]);
                }
            }
        }
    }

    #[test]
    fn pieces_hold_the_appended_tokens() {
        let (tokens, length) = (Tokens::new(3 * NODE_TOKENS), 2 * NODE_TOKENS + 7);
        let mut whole = prefix(cache(&tokens, &[0, 1, 2], length));
        let pieces: Vec<_> = whole.share(2).unwrap().iter().map(|pieces| pieces[..2].to_vec()).collect();
        assert_eq!(whole.in_pieces(), 2 * NODE_TOKENS);
        holds(&whole, &tokens, &[0, 1, 2], length);
        // Lanes are selected, and another prefix holds the same pieces.
        let mut selected = prefix(cache(&tokens, &[0, 1], 0));
        selected.attach(vec![pieces[2].clone(), pieces[0].clone()]);
        holds(&selected, &tokens, &[2, 0], 2 * NODE_TOKENS);
        whole.select_lanes(&[1, 1, 0]);
        holds(&whole, &tokens, &[1, 1, 0], length);
        // A piece that is cut does not change for others.
        for length in [length - 1, 2 * NODE_TOKENS, NODE_TOKENS + 33, NODE_TOKENS, 5, 0] {
            whole.truncate(length);
            holds(&whole, &tokens, &[1, 1, 0], length);
        }
        holds(&selected, &tokens, &[2, 0], 2 * NODE_TOKENS);
    }

    #[test]
    fn lanes_with_other_pieces_are_joined() {
        let (tokens, length) = (Tokens::new(3 * NODE_TOKENS), 2 * NODE_TOKENS + 7);
        for (own, new) in [(0, 2), (2, 1), (1, 1)] {
            let mut joined = prefix(cache(&tokens, &[1], length));
            let mut other = prefix(cache(&tokens, &[2, 0], length));
            joined.divide(own);
            other.divide(new);
            joined.join_lanes(Box::new(other));
            holds(&joined, &tokens, &[1, 2, 0], length);
        }
    }
}
