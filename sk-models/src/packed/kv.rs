//! Keys and values, laid out as the right-hand sides of attention's two products.

use super::rope::Table;
use super::tile::{Place, WIDTH};
use crate::config::Qwen2Config;

/// Keys and values of one head of one sequence.
#[derive(Debug, Clone, Default)]
pub(crate) struct Block {
    /// Kᵀ `[D, T]` in panels of 32 positions, zero beyond the last one.
    keys: Vec<f32>,
    /// `[T, D]`, rows padded to whole panels.
    values: Vec<f32>,
}

impl Block {
    /// Forgets all but the first `length` positions.
    fn truncate(&mut self, length: usize, width: usize) {
        self.keys.truncate(length.div_ceil(WIDTH) * width * WIDTH);
        self.values.truncate(length * width.next_multiple_of(WIDTH));
    }

    /// Appends a key, turned to its place by `table`, and a value.
    #[inline(always)]
    pub(crate) fn push_turned(&mut self, index: usize, table: &Table, position: usize, key: &[f32], value: &[f32]) {
        let line = self.reserve(index, key.len());
        table.turn_strided(position, key, &mut self.keys[line..], WIDTH);
        self.push_value(index, value);
    }

    /// Makes room for the key of position `index`, and returns where its first component goes; the others follow [`WIDTH`] apart.
    fn reserve(&mut self, index: usize, width: usize) -> usize {
        let panel = index / WIDTH * width * WIDTH;
        if panel == self.keys.len() {
            self.keys.resize(panel + width * WIDTH, 0.0);
        }
        panel + index % WIDTH
    }

    fn push_value(&mut self, index: usize, value: &[f32]) {
        self.values.extend_from_slice(value);
        self.values.resize((index + 1) * value.len().next_multiple_of(WIDTH), 0.0);
    }

    /// Panel `panel` of Kᵀ.
    pub(crate) fn keys(&self, panel: usize, width: usize) -> Place<*const f32> {
        Place { start: self.keys[panel * width * WIDTH..].as_ptr(), stride: WIDTH }
    }

    /// Columns `column..` of V.
    pub(crate) fn values(&self, column: usize, width: usize) -> Place<*const f32> {
        Place { start: self.values[column.min(self.values.len())..].as_ptr(), stride: width.next_multiple_of(WIDTH) }
    }

    /// Appends the first `tokens` positions of another block.
    fn adopt(&mut self, length: usize, other: &Self, tokens: usize, width: usize) {
        let stride = width.next_multiple_of(WIDTH);
        for token in 0..tokens {
            let from = token / WIDTH * width * WIDTH + token % WIDTH;
            let to = self.reserve(length + token, width);
            for component in 0..width {
                self.keys[to + component * WIDTH] = other.keys[from + component * WIDTH];
            }
            self.push_value(length + token, &other.values[token * stride..][..width]);
        }
    }
}

/// The blocks of some sequences, filled to one length.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    /// Per layer: `sequences × heads`, the heads of a sequence side by side.
    layers: Vec<Vec<Block>>,
    heads: usize,
    width: usize,
    sequences: usize,
    length: usize,
}

impl Store {
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

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    pub(crate) fn sequences(&self) -> usize {
        self.sequences
    }

    pub(crate) fn layer(&self, layer: usize) -> &[Block] {
        &self.layers[layer]
    }

    pub(crate) fn layer_mut(&mut self, layer: usize) -> &mut [Block] {
        &mut self.layers[layer]
    }

    /// Counts the tokens that every layer has appended.
    pub(crate) fn advance(&mut self, tokens: usize) {
        self.length += tokens;
    }

    pub(crate) fn truncate(&mut self, length: usize) {
        assert!(length <= self.length, "cannot truncate {} tokens to {length}", self.length);
        if length < self.length {
            self.layers.iter_mut().flatten().for_each(|block| block.truncate(length, self.width));
            self.length = length;
        }
    }

    /// Keeps sequences in the given order: blocks move, unless one is asked for twice.
    pub(crate) fn select(&mut self, sequences: &[usize]) {
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

    /// Appends the sequences of another store.
    pub(crate) fn join(&mut self, other: Self) {
        assert_eq!(self.length, other.length, "prefixes of different lengths cannot be joined");
        for (own, new) in self.layers.iter_mut().zip(other.layers) {
            own.extend(new);
        }
        self.sequences += other.sequences;
    }

    /// Appends to each sequence the first `tokens` positions of sequence `pick(sequence)` of another store.
    pub(crate) fn adopt(&mut self, other: &Self, tokens: usize, pick: impl Fn(usize) -> usize) {
        for (own, other) in self.layers.iter_mut().zip(&other.layers) {
            for (index, block) in own.iter_mut().enumerate() {
                let (sequence, head) = (index / self.heads, index % self.heads);
                block.adopt(self.length, &other[pick(sequence) * self.heads + head], tokens, self.width);
            }
        }
        self.length += tokens;
    }

    /// Bytes in use.
    pub(crate) fn bytes(&self) -> usize {
        self.layers.iter().flatten().map(|b| size_of_val::<[f32]>(&b.keys) + size_of_val::<[f32]>(&b.values)).sum()
    }
}
