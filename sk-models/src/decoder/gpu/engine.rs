//! The [`Engine`] implementation on a GPU.

use std::slice;
use std::sync::{Arc, PoisonError, Weak};

use burn::tensor::{Device, Int, Tensor, TensorData};
use sk_core::TokenId;

use super::attention::PassInput;
use super::cache::{DevicePrefix, DeviceSuffix};
use super::draw::read;
use super::layer::FusedLayer;
use super::recording::{Recording, RepeatKey};
use super::{GpuEngine, Stacked, bytes, ops};
use crate::config::Qwen2Config;
use crate::decoder::engine::{Cache, Engine, EngineProperties, Formats, Group};
use crate::decoder::heads::Heads;
use crate::decoder::logits::Logits;
use crate::decoder::scheduler::PassKey;
use crate::device::{DeviceFailure, block_recording, if_only_user, register_thread};
use crate::lora::{AdapterError, AdapterStack, Lanes, LoraAdapter};

/// The capacity of a new prefix in tokens. It is doubled as needed.
const CAPACITY: usize = 256;

/// The largest number of logits in memory while states are read. Larger batches are read in pieces,
/// each of which reads the whole head again: 512 MiB of f32. The logits of 7 spans of 24 tokens under
/// four policies with the vocabulary of Qwen2.5 take 390 MiB.
const LOGITS_AT_ONCE: usize = 128 << 20;

/// The states of a pass: `[M, H]`, ordered by lane, token and row.
#[derive(Debug)]
pub(crate) struct StateTensor {
    values: Tensor<2>,
    rows: usize,
}

/// The adapters of the lanes in one stack, or `None` for a single lane without an adapter.
#[derive(Debug)]
pub(crate) struct StackSeats(pub(super) Option<Arc<AdapterStack>>);

impl StackSeats {
    pub(super) fn lanes(&self) -> Lanes<'_> {
        self.0.as_deref().map_or(Lanes::backbone(), Lanes::of)
    }
}

impl EngineProperties for GpuEngine {
    fn config(&self) -> &Qwen2Config {
        &self.config
    }

    fn device(&self) -> Device {
        self.embedding.device()
    }

    fn formats(&self) -> Formats {
        Formats { weights: self.weight_format(), keys: self.weight_format(), states: self.state_format() }
    }

    fn is_cpu(&self) -> bool {
        false
    }

    fn bytes(&self) -> usize {
        let layers: usize = self.layers.iter().map(FusedLayer::bytes).sum();
        bytes(&self.embedding) + layers + bytes(&self.norm.weight.val()) + self.head.as_ref().map_or(0, bytes)
    }
}

impl Engine for GpuEngine {
    type Prefix = DevicePrefix;
    type Suffix = DeviceSuffix;
    type Seats = StackSeats;
    type States = StateTensor;

    fn prefix(&self, lanes: usize) -> DevicePrefix {
        self.prefix_with(lanes, CAPACITY)
    }

    fn suffix(&self, _lanes: usize, rows: usize) -> DeviceSuffix {
        DeviceSuffix::new(rows)
    }

    fn seat(&self, lanes: &[Option<Arc<LoraAdapter>>]) -> Result<StackSeats, AdapterError> {
        if matches!(lanes, [None]) {
            return Ok(StackSeats(None));
        }
        self.stack(lanes).map(|stack| StackSeats(Some(stack)))
    }

    fn forward_key(&self, group: &Group<'_, Self>, _states: bool) -> PassKey {
        self.logits_key(group.seats)
    }

    fn forward(&self, mut groups: Vec<Group<'_, Self>>, _states: bool, joined: bool) -> Vec<StateTensor> {
        let counts: Vec<usize> = groups.iter().map(|group| group.rows.len()).collect();
        let values = match &mut groups[..] {
            // In decoding, every row reads one token.
            [group] if !joined && group.width() == 1 => vec![self.repeat(group)],
            groups => self.forward_all(groups),
        };
        values.into_iter().zip(counts).map(|(values, rows)| StateTensor { values, rows }).collect()
    }

    fn logits_key(&self, seats: &StackSeats) -> PassKey {
        PassKey { seats: seats.lanes().number(), kind: 0 }
    }

    fn logits(&self, of: &[(&StateTensor, &StackSeats)]) -> Vec<Logits> {
        let Some(lanes) = of.first().map(|(_, seats)| seats.lanes()) else { return Vec::new() };
        let states: Vec<&Tensor<2>> = of.iter().map(|(states, _)| &states.values).collect();
        self.logits_of(&states, lanes).into_iter().map(|logits| Logits::Device(Box::new(logits))).collect()
    }

    fn place(states: &StateTensor, lane: usize, lanes: usize, row: usize, step: usize) -> usize {
        lane * (states.values.dims()[0] / lanes) + step * states.rows + row
    }

    fn read(&self, states: &StateTensor, seats: &StackSeats, at: &[(usize, TokenId)]) -> Result<Vec<[f32; 2]>, DeviceFailure> {
        let (device, lanes) = (self.device(), seats.lanes());
        let count = lanes.count();
        let [total, size] = states.values.dims();
        let hidden = states.values.clone().reshape([count, total / count, size]);
        let piece = (LOGITS_AT_ONCE / (self.config.vocab_size * count)).max(1);
        // One synchronisation for all pieces.
        let mut pieces = Vec::new();
        for at in at.chunks(piece) {
            let m = at.len();
            let (places, targets): (Vec<usize>, Vec<TokenId>) = at.iter().copied().unzip();
            let states = hidden.clone().select(1, Tensor::from_data(&places[..], &device)).reshape([count * m, size]);
            let logits = self.head_logits(&states, lanes);
            let targets = Tensor::from_data(&targets.repeat(count)[..], &device);
            pieces.push(ops::read(logits, targets).reshape([count, m, 2]));
        }
        if pieces.is_empty() {
            return Ok(Vec::new());
        }
        let pairs = read(Tensor::cat(pieces, 1))?;
        Ok(pairs.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect())
    }

    fn project(states: &StateTensor, places: &[usize], heads: &[(&[f32], f32)]) -> Result<Vec<f32>, DeviceFailure> {
        let device = states.values.device();
        let [_, size] = states.values.dims();
        let weights: Vec<f32> = heads.iter().flat_map(|(weight, _)| weight.iter().copied()).collect();
        let biases: Vec<f32> = heads.iter().map(|(_, bias)| *bias).collect();
        let weights = Tensor::<2>::from_data(TensorData::new(weights, [heads.len(), size]), &device).transpose();
        let biases = Tensor::<2>::from_data(TensorData::new(biases, [1, heads.len()]), &device);
        let states = states.values.clone().select(0, Tensor::from_data(places, &device));
        // The heads are in f32, so the product is too.
        let values = ops::product(states.unsqueeze::<4>(), weights.unsqueeze::<4>());
        read(values.reshape([places.len(), heads.len()]) + biases)
    }
}

impl GpuEngine {
    /// Returns the adapters in one stack, which all seats with the same adapters in the same order
    /// share.
    fn stack(&self, lanes: &[Option<Arc<LoraAdapter>>]) -> Result<Arc<AdapterStack>, AdapterError> {
        let mut known = self.stacks.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, stack)| stack.strong_count() > 0);
        let same = |(seated, _): &&Stacked| {
            let seated = seated.iter().map(|lane| lane.as_ref().map(Weak::as_ptr));
            seated.eq(lanes.iter().map(|lane| lane.as_ref().map(Arc::as_ptr)))
        };
        if let Some(stack) = known.iter().find(same).and_then(|(_, stack)| stack.upgrade()) {
            return Ok(stack);
        }
        let device = self.device();
        let _blocked = block_recording(&device);
        let adapters: Vec<Option<&LoraAdapter>> = lanes.iter().map(Option::as_deref).collect();
        let stack = Arc::new(AdapterStack::new(&self.config, &adapters, &device)?);
        known.push((lanes.iter().map(|lane| lane.as_ref().map(Arc::downgrade)).collect(), Arc::downgrade(&stack)));
        Ok(stack)
    }

    /// Runs a pass over one group whose rows read one token each. If such a pass repeats and the
    /// device can record it, the recording is replayed.
    ///
    /// While a pass is recorded, nothing else may use the device.
    ///
    /// # Panics
    ///
    /// As [`forward_all`](Self::forward_all).
    pub(crate) fn repeat(&self, group: &mut Group<'_, Self>) -> Tensor<2> {
        register_thread(&self.embedding.device());
        let lanes = group.seats.lanes();
        let key = RepeatKey::new(group.rows.len(), self.number, lanes.number());
        let heads = Heads::new(&self.config);
        if !ops::reads_place(&self.embedding.device(), heads, lanes.count(), group.rows.len())
            || !group.cache.prefix.repeats.is_due(key)
        {
            return self.forward_all(slice::from_mut(group)).remove(0);
        }
        let (visibility, numbers) = (group.visibility(), self.upload_input(slice::from_ref(group), lanes));
        let room = group.cache.prefix.make_room(visibility.keys() - visibility.places, visibility.places);
        if let Some(states) = group.cache.prefix.repeats.replay(&numbers) {
            return states;
        }
        let recording = if_only_user(|| {
            let can = *self.records.get_or_init(|| self.rehearse(visibility.rows, group.seats));
            can.then(|| self.record(&numbers, room, slice::from_mut(group), lanes)).flatten()
        });
        let repeats = &mut group.cache.prefix.repeats;
        repeats.keep(recording.flatten());
        repeats.replay(&numbers).unwrap_or_else(|| self.forward_all(slice::from_mut(group)).remove(0))
    }

    /// Records a pass over groups whose caches have room for `room` tokens.
    fn record(
        &self,
        numbers: &Tensor<1, Int>,
        room: usize,
        groups: &mut [Group<'_, Self>],
        lanes: Lanes<'_>,
    ) -> Option<Recording> {
        let (heads, angles) = (Heads::new(&self.config), self.angles(room));
        Recording::new(numbers, |numbers| {
            let pass = PassInput { lanes, heads, numbers: numbers.clone(), angles: angles.clone(), room: Some(room) };
            self.read(&pass, groups)
        })
    }

    /// Returns whether the device replays a recorded pass correctly. Tries it with `rows` rows on
    /// temporary caches.
    fn rehearse(&self, rows: usize, seats: &StackSeats) -> bool {
        let (lanes, room) = (seats.lanes(), rows.next_power_of_two());
        let (mut prefix, mut suffix) = (self.prefix_with(lanes.count(), room), DeviceSuffix::new(rows));
        let cache = Cache { prefix: &mut prefix, suffix: Some(&mut suffix) };
        let groups = &mut [Group { rows: vec![&[0][..]; rows], seats, cache }];
        let Some(mut recording) = self.record(&self.upload_input(groups, lanes), room, groups, lanes) else { return false };
        groups[0].rows = vec![&[1]; rows];
        // SAFETY: the cache still exists, nothing has happened since the recording, and this is its
        // thread.
        let replayed = unsafe { recording.replay(&self.upload_input(groups, lanes)) };
        let expected = self.forward_all(groups).remove(0);
        let bits = |states: Tensor<2>| {
            let values = states.try_into_vec_as::<f32>().ok()?;
            Some(values.into_iter().map(f32::to_bits).collect::<Vec<_>>())
        };
        let (replayed, expected) = (replayed.ok().and_then(bits), bits(expected));
        replayed.is_some() && replayed == expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::initial::Initial;
    use crate::model::parts::ModelParts;

    #[test]
    fn adapters_that_are_seated_again_are_the_same_stack() {
        let device = Device::flex();
        let config = Qwen2Config::small([40, 32, 48, 1, 4, 4]);
        let mut parts = Initial::from_seed(3, &config, &device);
        let Ok(embedding) = parts.embedding();
        let Ok(engine) = GpuEngine::assemble(embedding, &config, parts, None);
        let [a, b] = [1, 2].map(|seed| Some(Arc::new(LoraAdapter::random(&config, 2, seed, &device))));
        let number = |seats: &StackSeats| seats.lanes().number();
        let first = engine.seat(&[None, a.clone()]).unwrap();
        assert_eq!(number(&first), number(&engine.seat(&[None, a.clone()]).unwrap()));
        let others = [vec![a.clone(), None], vec![None, b.clone()], vec![None, a.clone(), b], vec![None, None]];
        let others = others.map(|lanes| engine.seat(&lanes).unwrap());
        assert!(others.iter().all(|other| number(other) != number(&first)));
        assert_eq!((number(&engine.seat(&[None]).unwrap()), engine.stacks.lock().unwrap().len()), (0, 5));
        drop((first, others));
        let _ = engine.seat(&[a]).unwrap();
        assert_eq!(engine.stacks.lock().unwrap().len(), 1, "what nobody holds is forgotten");
    }
}
