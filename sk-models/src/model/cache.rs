//! Keys and values that have been computed: a prefix per lane, and a suffix per row.
//!
//! A step scores N candidates under each of G lanes (the backbone and its adapters). All rows of a lane share the
//! context, so its keys and values are kept once per lane, in the [`Prefix`]; what a row adds is kept in the
//! [`Suffix`]. When a candidate wins, [`Prefix::adopt`] appends its rows: nothing is computed twice, and the prefix is
//! never copied per candidate.

use burn::tensor::{Device, Tensor};

use crate::config::Qwen2Config;

/// Keys and values of one layer, in buffers longer than their content.
#[derive(Debug, Clone)]
struct Buffer {
    /// `[B, Hkv, capacity, D]`.
    keys: Tensor<4>,
    /// `[B, Hkv, capacity, D]`.
    values: Tensor<4>,
}

impl Buffer {
    fn new(shape: [usize; 4], device: &Device) -> Self {
        Self { keys: Tensor::zeros(shape, device), values: Tensor::zeros(shape, device) }
    }

    fn capacity(&self) -> usize {
        self.keys.dims()[2]
    }

    /// Makes room for `needed` positions by doubling, keeping the first `used`.
    fn reserve(&mut self, used: usize, needed: usize) {
        let capacity = self.capacity();
        if needed <= capacity {
            return;
        }
        let mut target = capacity.max(1);
        while target < needed {
            target *= 2;
        }
        let [batch, heads, _, width] = self.keys.dims();
        let device = self.keys.device();
        let mut grown = Self::new([batch, heads, target, width], &device);
        if used > 0 {
            let (keys, values) = self.view(used);
            grown.write(0, keys, values);
        }
        *self = grown;
    }

    fn write(&mut self, start: usize, keys: Tensor<4>, values: Tensor<4>) {
        let [batch, heads, length, width] = keys.dims();
        let place = [0..batch, 0..heads, start..start + length, 0..width];
        self.keys.inplace(|buffer| buffer.slice_assign(place.clone(), keys));
        self.values.inplace(|buffer| buffer.slice_assign(place, values));
    }

    /// The first `length` positions.
    fn view(&self, length: usize) -> (Tensor<4>, Tensor<4>) {
        let [batch, heads, _, width] = self.keys.dims();
        let place = [0..batch, 0..heads, 0..length, 0..width];
        (self.keys.clone().slice(place.clone()), self.values.clone().slice(place))
    }

    /// Keeps the given entries of the batch axis, in the given order.
    fn select(&mut self, rows: &[usize]) {
        let pick = |buffer: Tensor<4>| {
            let [_, heads, capacity, width] = buffer.dims();
            let parts = rows.iter().map(|&row| buffer.clone().slice([row..row + 1, 0..heads, 0..capacity, 0..width])).collect();
            Tensor::cat(parts, 0)
        };
        self.keys = pick(self.keys.clone());
        self.values = pick(self.values.clone());
    }
}

/// The layers' buffers of one batch, filled to one length.
#[derive(Debug, Clone)]
struct Store {
    layers: Vec<Buffer>,
    batch: usize,
    length: usize,
}

impl Store {
    fn new(config: &Qwen2Config, batch: usize, capacity: usize, device: &Device) -> Self {
        let shape = [batch, config.num_key_value_heads, capacity.max(1), config.head_dim];
        Self { layers: (0..config.num_hidden_layers).map(|_| Buffer::new(shape, device)).collect(), batch, length: 0 }
    }

    fn append(&mut self, layer: usize, keys: Tensor<4>, values: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let end = self.length + keys.dims()[2];
        let buffer = &mut self.layers[layer];
        buffer.reserve(self.length, end);
        buffer.write(self.length, keys, values);
        buffer.view(end)
    }
}

/// The shared context of each lane: per layer, keys and values `[G, Hkv, P, D]`.
///
/// Clones share their buffers until one of them is written to.
#[derive(Debug, Clone)]
pub struct Prefix {
    store: Store,
}

impl Prefix {
    /// An empty prefix for `lanes` lanes with room for `capacity` tokens.
    #[must_use]
    pub fn new(config: &Qwen2Config, lanes: usize, capacity: usize, device: &Device) -> Self {
        Self { store: Store::new(config, lanes, capacity, device) }
    }

    /// Tokens held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.store.length
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.store.length == 0
    }

    /// Lanes.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.store.batch
    }

    /// Forgets all but the first `length` tokens. The buffers stay.
    ///
    /// # Panics
    ///
    /// If fewer are held.
    pub fn truncate(&mut self, length: usize) {
        assert!(length <= self.store.length, "cannot truncate {} tokens to {length}", self.store.length);
        self.store.length = length;
    }

    /// Appends, in every lane, the first `tokens` tokens of candidate `row` of a suffix.
    ///
    /// Copies `O(tokens)` keys and values per lane and layer; the prefix itself is not touched.
    ///
    /// # Panics
    ///
    /// If the suffix belongs to another number of lanes, or has no such row or not as many tokens.
    pub fn adopt(&mut self, suffix: &Suffix, row: usize, tokens: usize) {
        assert_eq!(suffix.lanes, self.store.batch, "the suffix is of another number of lanes");
        assert!(row < suffix.rows, "candidate {row} of {}", suffix.rows);
        assert!(tokens <= suffix.store.length, "{tokens} tokens of a suffix of {}", suffix.store.length);
        if tokens == 0 {
            return;
        }
        for (layer, buffer) in suffix.store.layers.iter().enumerate() {
            let pick = |kept: &Tensor<4>| {
                let [_, heads, capacity, width] = kept.dims();
                kept.clone()
                    .reshape([suffix.lanes, suffix.rows, heads, capacity, width])
                    .slice([0..suffix.lanes, row..row + 1, 0..heads, 0..tokens, 0..width])
                    .reshape([suffix.lanes, heads, tokens, width])
            };
            let _ = self.store.append(layer, pick(&buffer.keys), pick(&buffer.values));
        }
        self.store.length += tokens;
    }

    /// Keeps the given lanes, in the given order. An index may occur more than once.
    ///
    /// # Panics
    ///
    /// If `lanes` is empty or an index is out of range.
    pub fn select_lanes(&mut self, lanes: &[usize]) {
        assert!(!lanes.is_empty(), "a prefix needs at least one lane");
        if lanes.iter().copied().eq(0..self.store.batch) {
            return;
        }
        for buffer in &mut self.store.layers {
            buffer.select(lanes);
        }
        self.store.batch = lanes.len();
    }

    /// Appends the lanes of another prefix of the same tokens.
    ///
    /// # Panics
    ///
    /// If the two hold different numbers of tokens.
    pub fn join_lanes(&mut self, other: &Self) {
        assert_eq!(self.store.length, other.store.length, "prefixes of different lengths cannot be joined");
        for (own, new) in self.store.layers.iter_mut().zip(&other.store.layers) {
            // The shorter buffer decides; it holds the tokens, and grows again when more come.
            let capacity = own.capacity().min(new.capacity());
            let ((k, v), (nk, nv)) = (own.view(capacity), new.view(capacity));
            *own = Buffer { keys: Tensor::cat(vec![k, nk], 0), values: Tensor::cat(vec![v, nv], 0) };
        }
        self.store.batch += other.store.batch;
    }

    /// Bytes of its buffers.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let size = |buffer: &Buffer| 2 * buffer.keys.shape().num_elements() * buffer.keys.dtype().size();
        self.store.layers.iter().map(size).sum()
    }

    pub(super) fn view(&self, layer: usize) -> Option<(Tensor<4>, Tensor<4>)> {
        (self.store.length > 0).then(|| self.store.layers[layer].view(self.store.length))
    }

    pub(super) fn append(&mut self, layer: usize, keys: Tensor<4>, values: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        self.store.append(layer, keys, values)
    }

    pub(super) fn advance(&mut self, tokens: usize) {
        self.store.length += tokens;
    }
}

/// What each row has added to its lane's prefix: per layer, keys and values `[G·N, Hkv, T, D]`.
#[derive(Debug, Clone)]
pub struct Suffix {
    store: Store,
    lanes: usize,
    rows: usize,
}

impl Suffix {
    /// An empty suffix for `rows` candidates in each of `lanes` lanes, with room for `capacity` tokens.
    #[must_use]
    pub fn new(config: &Qwen2Config, lanes: usize, rows: usize, capacity: usize, device: &Device) -> Self {
        Self { store: Store::new(config, lanes * rows, capacity, device), lanes, rows }
    }

    /// Tokens held by each row.
    #[must_use]
    pub fn len(&self) -> usize {
        self.store.length
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.store.length == 0
    }

    /// Lanes.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// Candidates per lane.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Forgets all but the first `length` tokens of every row. The buffers stay.
    ///
    /// # Panics
    ///
    /// If fewer are held.
    pub fn truncate(&mut self, length: usize) {
        assert!(length <= self.store.length, "cannot truncate {} tokens to {length}", self.store.length);
        self.store.length = length;
    }

    /// Keeps the given lanes with all their rows, in the given order.
    ///
    /// # Panics
    ///
    /// If `lanes` is empty or an index is out of range.
    pub fn select_lanes(&mut self, lanes: &[usize]) {
        assert!(!lanes.is_empty(), "a suffix needs at least one lane");
        let rows: Vec<usize> = lanes.iter().flat_map(|&lane| lane * self.rows..(lane + 1) * self.rows).collect();
        for buffer in &mut self.store.layers {
            buffer.select(&rows);
        }
        self.store.batch = rows.len();
        self.lanes = lanes.len();
    }

    pub(super) fn append(&mut self, layer: usize, keys: Tensor<4>, values: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        self.store.append(layer, keys, values)
    }

    pub(super) fn advance(&mut self, tokens: usize) {
        self.store.length += tokens;
    }
}
