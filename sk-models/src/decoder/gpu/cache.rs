use burn::tensor::{DType, Device, Tensor};

use super::ops::adopt;
use super::recording::Repeats;
use crate::config::Qwen2Config;
use crate::decoder::engine::{PrefixCache, SuffixCache, of, of_box};

/// The keys and values of the context of each lane. Per layer, one buffer `[G, 2·Hkv, P, D]` with
/// spare room holds keys before values.
///
/// The tokens that the rows of a [`DeviceSuffix`] have added follow the context: token t of row n
/// of N is at `P + t·N + n`, with P the length of the context. So the rows of a lane and the
/// context that they share are one block of keys. An adopted row is moved to the front.
#[derive(Debug)]
pub(crate) struct DevicePrefix {
    layers: Vec<Tensor<4>>,
    lanes: usize,
    length: usize,
    /// The record of repeated passes over this prefix.
    pub(super) repeats: Repeats,
}

/// The number of rows, and the number of tokens that each row has added to a prefix.
#[derive(Debug)]
pub(crate) struct DeviceSuffix {
    rows: usize,
    length: usize,
}

impl DeviceSuffix {
    pub(crate) fn new(rows: usize) -> Self {
        Self { rows, length: 0 }
    }
}

impl DevicePrefix {
    /// Returns an empty prefix; see [`GpuEngine::prefix_with`](super::GpuEngine::prefix_with).
    pub(super) fn new(config: &Qwen2Config, lanes: usize, capacity: usize, format: DType, device: &Device) -> Self {
        let shape = [lanes, 2 * config.num_key_value_heads, capacity.max(1), config.head_dim];
        let layers = (0..config.num_hidden_layers).map(|_| Tensor::zeros(shape, (device, format))).collect();
        Self { layers, lanes, length: 0, repeats: Repeats::default() }
    }

    /// Makes room for `more` tokens after the first `used` tokens of a layer, which are kept. A
    /// full buffer is doubled.
    pub(super) fn reserve(&mut self, layer: usize, used: usize, more: usize) -> &mut Tensor<4> {
        let buffer = &mut self.layers[layer];
        let [lanes, heads, capacity, width] = buffer.dims();
        let mut target = capacity;
        while target < used + more {
            target *= 2;
        }
        if target > capacity {
            self.repeats.forget();
            let kept = buffer.clone().slice([0..lanes, 0..heads, 0..used, 0..width]);
            let room = Tensor::zeros([lanes, heads, target - used, width], (&buffer.device(), buffer.dtype()));
            *buffer = if used == 0 { room } else { Tensor::cat(vec![kept, room], 2) };
        }
        buffer
    }

    /// Calls [`reserve`](Self::reserve) for every layer and returns the capacity.
    pub(super) fn make_room(&mut self, used: usize, more: usize) -> usize {
        (0..self.layers.len()).map(|layer| self.reserve(layer, used, more).dims()[2]).min().unwrap_or(0)
    }
}

impl PrefixCache for DevicePrefix {
    fn len(&self) -> usize {
        self.length
    }

    fn lanes(&self) -> usize {
        self.lanes
    }

    fn advance(&mut self, tokens: usize) {
        self.length += tokens;
    }

    fn truncate(&mut self, length: usize) {
        assert!(length <= self.length, "cannot truncate {} tokens to {length}", self.length);
        self.length = length;
    }

    fn select_lanes(&mut self, lanes: &[usize]) {
        assert!(!lanes.is_empty(), "a prefix needs at least one lane");
        if lanes.iter().copied().eq(0..self.lanes) {
            return;
        }
        self.repeats.forget();
        for buffer in &mut self.layers {
            *buffer = buffer.clone().select(0, Tensor::from_data(lanes, &buffer.device()));
        }
        self.lanes = lanes.len();
    }

    fn adopt(&mut self, suffix: &dyn SuffixCache, row: usize, tokens: usize) {
        let suffix: &DeviceSuffix = of(suffix);
        assert!(tokens <= suffix.length, "{tokens} tokens of a suffix of {}", suffix.length);
        let start = self.length;
        self.length += tokens;
        if suffix.rows == 1 || tokens == 0 {
            return;
        }
        for buffer in &mut self.layers {
            buffer.inplace(|buffer| adopt(buffer, start, tokens, suffix.rows, row));
        }
    }

    fn join_lanes(&mut self, other: Box<dyn PrefixCache>) {
        let other: Self = of_box(other);
        assert_eq!(self.length, other.length, "prefixes of different lengths cannot be joined");
        self.repeats.forget();
        for (own, new) in self.layers.iter_mut().zip(&other.layers) {
            // The capacity is that of the shorter buffer, which holds all tokens and grows on
            // demand.
            let capacity = own.dims()[2].min(new.dims()[2]);
            let part = |buffer: &Tensor<4>| {
                let [lanes, heads, _, width] = buffer.dims();
                buffer.clone().slice([0..lanes, 0..heads, 0..capacity, 0..width])
            };
            *own = Tensor::cat(vec![part(own), part(new)], 0);
        }
        self.lanes += other.lanes;
    }
}

impl SuffixCache for DeviceSuffix {
    fn len(&self) -> usize {
        self.length
    }

    fn advance(&mut self, tokens: usize) {
        self.length += tokens;
    }
}
