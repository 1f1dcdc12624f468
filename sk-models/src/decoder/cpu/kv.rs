//! Keys and values, laid out as the right-hand sides of attention's two products.

use super::numbers::Numbers;
use super::tile::{Place, WIDTH};
use crate::config::Qwen2Config;
use crate::decoder::engine::{PrefixCache, Sequences, SuffixCache};
use crate::decoder::rope::Table;
use crate::team::for_each_mut;

/// Keys and values of one head of one sequence.
#[derive(Debug, Clone, Default)]
pub(crate) struct Block {
    /// Kᵀ `[D, T]` in panels of 32 positions, zero beyond the last one.
    keys: Numbers,
    /// `[T, D]`, rows padded to whole panels.
    values: Numbers,
}

impl Block {
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

    /// Returns panel `panel` of Kᵀ.
    pub(crate) fn keys(&self, panel: usize, width: usize) -> Place<*const f32> {
        Place { start: self.keys[panel * width * WIDTH..].as_ptr(), stride: WIDTH }
    }

    /// Returns columns `column..` of V.
    pub(crate) fn values(&self, column: usize, width: usize) -> Place<*const f32> {
        Place { start: self.values[column.min(self.values.len())..].as_ptr(), stride: width.next_multiple_of(WIDTH) }
    }

    /// Returns the keys and values of `count` positions from the `first`-th on, which begins a
    /// panel.
    fn slices(&self, first: usize, count: usize, width: usize) -> Slices<'_> {
        let (panel, stride) = (width * WIDTH, width.next_multiple_of(WIDTH));
        Slices {
            keys: &self.keys[first / WIDTH * panel..][..count.div_ceil(WIDTH) * panel],
            values: &self.values[first * stride..][..count * stride],
        }
    }

    /// Reserves memory for `count` more positions.
    fn reserve(&mut self, count: usize, width: usize) {
        self.keys.reserve(count.next_multiple_of(WIDTH) * width);
        self.values.reserve(count * width.next_multiple_of(WIDTH));
    }

    /// Appends `tokens` positions, the first of which begins a panel, after the `length` positions
    /// of this block.
    fn adopt(&mut self, length: usize, other: Slices<'_>, tokens: usize, width: usize) {
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

/// The keys and values of consecutive positions of a [`Block`].
#[derive(Clone, Copy)]
struct Slices<'a> {
    keys: &'a [f32],
    values: &'a [f32],
}

/// Keys and values of consecutive tokens of one sequence. They are one allocation: many small ones
/// that live long would fragment the memory between the short-lived ones of requests.
#[derive(Debug)]
pub(crate) struct KvPiece {
    /// Per layer and head: keys, then values.
    numbers: Numbers,
    /// Numbers of the keys of a head, and of its values.
    sizes: [usize; 2],
}

impl KvPiece {
    /// Returns the keys and values of the `index`-th head, counted through all layers.
    fn slices(&self, index: usize) -> Slices<'_> {
        let [keys, values] = self.sizes;
        let (keys, values) = self.numbers[index * (keys + values)..][..keys + values].split_at(keys);
        Slices { keys, values }
    }
}

/// The blocks of several sequences of one length.
#[derive(Debug, Clone)]
pub(crate) struct KvCache {
    /// Per layer: `sequences × heads`, the heads of a sequence side by side.
    layers: Vec<Vec<Block>>,
    heads: usize,
    width: usize,
    sequences: usize,
    /// Tokens of each sequence.
    pub(super) length: usize,
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
        }
    }

    pub(crate) fn layer(&self, layer: usize) -> &[Block] {
        &self.layers[layer]
    }

    pub(crate) fn layer_mut(&mut self, layer: usize) -> &mut [Block] {
        &mut self.layers[layer]
    }
}

impl Sequences for KvCache {
    fn len(&self) -> usize {
        self.length
    }

    fn lanes(&self) -> usize {
        self.sequences
    }

    fn bytes(&self) -> usize {
        self.layers.iter().flatten().map(|b| size_of_val::<[f32]>(&b.keys) + size_of_val::<[f32]>(&b.values)).sum()
    }

    fn truncate(&mut self, length: usize) {
        assert!(length <= self.length, "cannot truncate {} tokens to {length}", self.length);
        if length < self.length {
            self.layers.iter_mut().flatten().for_each(|block| block.truncate(length, self.width));
            self.length = length;
        }
    }

    /// Keeps the given sequences in the given order. Blocks are moved, and copied only if a
    /// sequence occurs more than once.
    fn select_lanes(&mut self, sequences: &[usize]) {
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
}

impl PrefixCache for KvCache {
    type Suffix = Self;

    fn join_lanes(&mut self, other: Self) {
        assert_eq!(self.length, other.length, "prefixes of different lengths cannot be joined");
        for (own, new) in self.layers.iter_mut().zip(other.layers) {
            own.extend(new);
        }
        self.sequences += other.sequences;
    }

    fn adopt(&mut self, suffix: &Self, row: usize, tokens: usize) {
        let rows = suffix.sequences / self.sequences;
        for (own, other) in self.layers.iter_mut().zip(&suffix.layers) {
            for (index, block) in own.iter_mut().enumerate() {
                let (sequence, head) = (index / self.heads, index % self.heads);
                let slices = other[(sequence * rows + row) * self.heads + head].slices(0, tokens, self.width);
                block.adopt(self.length, slices, tokens, self.width);
            }
        }
        self.length += tokens;
    }

    type Piece = KvPiece;

    fn copy(&self, lane: usize, first: usize, count: usize) -> Option<KvPiece> {
        let sizes = [count.next_multiple_of(WIDTH) * self.width, count * self.width.next_multiple_of(WIDTH)];
        let mut numbers = Numbers::default();
        numbers.reserve(self.layers.len() * self.heads * (sizes[0] + sizes[1]));
        for block in self.layers.iter().flat_map(|blocks| &blocks[lane * self.heads..][..self.heads]) {
            let Slices { keys, values } = block.slices(first, count, self.width);
            numbers.append(keys);
            numbers.append(values);
        }
        Some(KvPiece { numbers, sizes })
    }

    fn paste(&mut self, lanes: &[Vec<&KvPiece>], count: usize) {
        let (heads, width, length) = (self.heads, self.width, self.length);
        let pieces = lanes.first().map_or(0, Vec::len);
        let in_layer = self.sequences * heads;
        let mut blocks: Vec<&mut Block> = self.layers.iter_mut().flatten().collect();
        for_each_mut(&mut blocks, |index, block| {
            let (layer, lane, head) = (index / in_layer, index % in_layer / heads, index % heads);
            // Reserve room for later tokens too, since growing copies the block.
            block.reserve((pieces + pieces / 8 + 1) * count, width);
            for (at, piece) in lanes[lane].iter().enumerate() {
                block.adopt(length + at * count, piece.slices(layer * heads + head), count, width);
            }
        });
        self.length += pieces * count;
    }
}

impl SuffixCache for KvCache {
    fn len(&self) -> usize {
        self.length
    }

    fn select_rows(&mut self, lanes: usize, rows: &[usize]) -> bool {
        let per_lane = self.sequences / lanes;
        let sequences: Vec<usize> = (0..lanes).flat_map(|lane| rows.iter().map(move |row| lane * per_lane + row)).collect();
        self.select_lanes(&sequences);
        true
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

    /// Tokens: more than two panels.
    const TOKENS: usize = 75;

    struct Tokens {
        keys: Vec<f32>,
        values: Vec<f32>,
    }

    impl Tokens {
        fn new() -> Self {
            Self { keys: numbers(TOKENS * D, 1), values: numbers(TOKENS * D, 2) }
        }

        /// Returns a block of the tokens from `first` on, appended in steps up to each of `ends`.
        /// Token i has position i + 9.
        fn block(&self, first: usize, ends: &[usize]) -> Block {
            let table = Rotations::new(D, 100.0).reach(TOKENS + 9);
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
    fn keys_are_turned_to_their_places() {
        let (tokens, half) = (Tokens::new(), D / 2);
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
        let tokens = Tokens::new();
        let whole = tokens.block(0, &[TOKENS]);
        let singly: Vec<usize> = (1..=TOKENS).collect();
        same(&whole, &tokens.block(0, &singly));
        same(&whole, &tokens.block(0, &[5, 40, 64, TOKENS]));
    }

    #[test]
    fn what_is_adopted_is_what_would_have_been_appended() {
        let tokens = Tokens::new();
        for (length, count) in [(0, 7), (5, 30), (31, 33), (32, 43), (40, 1)] {
            let mut block = tokens.block(0, &[length]);
            let other = tokens.block(length, &[TOKENS]);
            block.adopt(length, other.slices(0, count, D), count, D);
            same(&block, &tokens.block(0, &[length + count]));
            // Truncated tokens leave no trace.
            block.truncate(length, D);
            block.adopt(length, other.slices(0, count, D), count, D);
            same(&block, &tokens.block(0, &[length + count]));
        }
    }

    #[test]
    fn pieces_paste_what_was_copied() {
        let tokens = Tokens::new();
        let (heads, width) = (2, D);
        // Every block of two layers, three sequences and two heads begins with another token.
        let layers = |end: usize| -> Vec<Vec<Block>> {
            let blocks: Vec<Block> = (0..12).map(|first| tokens.block(first, &[first + end])).collect();
            blocks.chunks(6).map(<[Block]>::to_vec).collect()
        };
        let whole = KvCache { layers: layers(2 * WIDTH), heads, width, sequences: 3, length: 2 * WIDTH };
        let pieces = [2, 0].map(|lane| [0, WIDTH].map(|first| whole.copy(lane, first, WIDTH).expect("it can be copied")));
        let mut copy = KvCache { layers: vec![vec![Block::default(); 4]; 2], heads, width, sequences: 2, length: 0 };
        copy.paste(&pieces.each_ref().map(|pieces| pieces.iter().collect()), WIDTH);
        assert_eq!(copy.length, 2 * WIDTH);
        for (copy, whole) in copy.layers.iter().zip(&whole.layers) {
            for (copy, whole) in copy.iter().zip([4, 5, 0, 1].map(|at| &whole[at])) {
                same(copy, whole);
            }
        }
    }
}
