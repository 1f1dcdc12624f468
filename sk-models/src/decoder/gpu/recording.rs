//! Passes that repeat, recorded.
//!
//! Asking a GPU for the three hundred kernels of a pass takes longer than it needs to run them, where few rows read one token each. While a
//! response grows, that pass is the same every time but for the tokens and for where they are. It is recorded once, and from then on asked for
//! as a whole: a CUDA graph.

use std::fmt;
use std::thread::{self, ThreadId};

use burn::backend::{Backend, BackendGraph, Dispatch, ExecutionError};
use burn::tensor::{Int, Tensor};
use sk_core::TokenId;

use super::attention::{Pass, heads};
use super::{Cache, GpuEngine, Group, Suffix, advance, ops};
use crate::device::{arrive, quietly};
use crate::lora::Lanes;

/// What repeats: as many rows, of one decoder, under the same lanes, on one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    rows: usize,
    decoder: u64,
    stack: u64,
    thread: ThreadId,
}

impl Key {
    pub(super) fn new(rows: usize, decoder: u64, stack: u64) -> Self {
        Self { rows, decoder, stack, thread: thread::current().id() }
    }
}

/// Passes over one prefix: how often the last of them has been repeated, and its recording.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    key: Option<Key>,
    times: usize,
    recording: Option<Recording>,
}

/// A pass on the device, and what it reads and writes.
pub(super) struct Recording {
    graph: BackendGraph<Dispatch>,
    numbers: Tensor<1, Int>,
    states: Tensor<2>,
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").field("states", &self.states.dims()).finish_non_exhaustive()
    }
}

/// Passes of a kind before it is recorded, which takes as long as a few of them. Whatever is chosen by trying has been chosen by then.
const PATIENCE: usize = 4;

/// Passes before the one that is recorded, which find room for what they compute; it must find that room and no other.
const REHEARSALS: usize = 2;

impl Repeats {
    /// Forgets the recording: what it reads or writes has moved.
    pub(super) fn forget(&mut self) {
        self.recording = None;
    }

    /// Forgets a recording of another thread: the device may still be at what it was asked for by this one.
    pub(super) fn meet(&mut self) {
        if self.key.is_some_and(|key| key.thread != thread::current().id()) {
            *self = Self::default();
        }
    }

    /// Whether there is or can be a recording by now.
    pub(super) fn is_due(&mut self, key: Key) -> bool {
        if self.key != Some(key) {
            *self = Self { key: Some(key), ..Self::default() };
        }
        self.times += 1;
        self.recording.is_some() || self.times > PATIENCE
    }

    /// Takes a recording over.
    pub(super) fn keep(&mut self, recording: Option<Recording>) {
        self.recording = recording;
    }

    /// The states of the recorded pass with other numbers.
    pub(super) fn replay(&mut self, numbers: &Tensor<1, Int>) -> Option<Tensor<2>> {
        let recording = self.recording.as_mut()?;
        // SAFETY: the weights are those of the decoder that was recorded, the lanes those of its stack and the cache that of the prefix that owns
        // this, or else the key is another or the recording forgotten; and the thread is that of the recording.
        Some(unsafe { recording.replay(numbers) }.expect("what has been replayed before is replayed"))
    }

    #[cfg(all(test, any(feature = "cuda", feature = "wgpu")))]
    pub(super) fn is_recorded(&self) -> bool {
        self.recording.is_some()
    }
}

impl Recording {
    /// Records a pass, which reads such numbers; none where the device cannot. Nobody else may use the device meanwhile: see [`quietly`].
    ///
    /// A device that begins and does not end well leaves what the pass wrote of no use.
    pub(super) fn new(numbers: &Tensor<1, Int>, mut pass: impl FnMut(&Tensor<1, Int>) -> Tensor<2>) -> Option<Self> {
        // Numbers that no other tensor stands for.
        let numbers = numbers.clone().mul_scalar(1);
        let device = numbers.device();
        let device = device.as_dispatch();
        Dispatch::graph_prepare(device).ok()?;
        for _ in 0..REHEARSALS {
            let states = pass(&numbers);
            let _ = Dispatch::sync(device);
            drop(states);
        }
        Dispatch::graph_start_capture(device).ok()?;
        let states = pass(&numbers);
        let graph = Dispatch::graph_stop_capture(device).ok()?;
        Some(Self { graph, numbers, states })
    }

    /// The states of the pass with other numbers.
    ///
    /// # Safety
    ///
    /// What the pass read and wrote is still there, and the thread, whose requests the device serves in order, is that of the recording. (The memory
    /// itself is guarded by the graph.)
    pub(super) unsafe fn replay(&mut self, numbers: &Tensor<1, Int>) -> Result<Tensor<2>, ExecutionError> {
        self.numbers.inplace(|own| ops::refresh(own, numbers.clone()));
        // SAFETY: the caller's.
        unsafe { Dispatch::graph_replay(self.states.device().as_dispatch(), &self.graph) }?;
        // The next pass writes its states over these: what is held by somebody else is written anew.
        Ok(self.states.clone().mul_scalar(1.0))
    }
}

impl GpuEngine {
    /// The same of one group whose rows read a token each, as they have before and will again: such a pass is recorded where a device can do that.
    ///
    /// While it is recorded, nothing else may use the device.
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward).
    pub(crate) fn repeat(&self, group: Group<'_>, lanes: Lanes<'_>) -> Tensor<2> {
        arrive(&self.embedding.device());
        let groups = &mut [group];
        let [group] = groups;
        let key = Key::new(group.rows.len(), self.number, lanes.number());
        let heads = heads(&self.config);
        if !ops::reads_place(&self.embedding.device(), heads, lanes.count(), group.rows.len())
            || !group.prefix().repeats().is_due(key)
        {
            return self.forward_all(groups, lanes).remove(0);
        }
        let (sight, numbers) = (group.sight(), self.tell(std::slice::from_ref(group), lanes));
        let room = group.prefix().make_room(sight.keys() - sight.places, sight.places);
        if let Some(states) = group.prefix().repeats().replay(&numbers) {
            advance(groups);
            return states;
        }
        let recording = quietly(|| {
            let can = *self.records.get_or_init(|| self.rehearse(sight.rows, lanes));
            can.then(|| self.record(&numbers, room, groups, lanes)).flatten()
        });
        let [group] = groups;
        let repeats = group.prefix().repeats();
        repeats.keep(recording.flatten());
        match repeats.replay(&numbers) {
            None => self.forward_all(groups, lanes).remove(0),
            Some(states) => {
                advance(groups);
                states
            }
        }
    }

    /// A recording of a pass over groups whose caches have so much room.
    fn record(&self, numbers: &Tensor<1, Int>, room: usize, groups: &mut [Group<'_>], lanes: Lanes<'_>) -> Option<Recording> {
        let angles = self.angles(room);
        Recording::new(numbers, |numbers| {
            let pass = Pass::new(&self.config, lanes.count(), groups, numbers.clone(), angles.clone(), Some(room));
            self.read(&pass, groups, lanes)
        })
    }

    /// Whether the device records passes and then does what it recorded: tried with so many rows on caches that nothing is lost with.
    fn rehearse(&self, rows: usize, lanes: Lanes<'_>) -> bool {
        let [first, second] = [0, 1].map(|token| vec![[token as TokenId]; rows]);
        let room = rows.next_power_of_two();
        let (mut prefix, mut suffix) = (self.prefix_with(lanes.count(), room), Suffix::new(rows));
        let mut group = |rows: &[[TokenId; 1]], work: &mut dyn FnMut(&mut [Group<'_>]) -> Option<Tensor<2>>| {
            let cache = Cache::Extend { prefix: &mut prefix, suffix: &mut suffix };
            work(&mut [Group { rows: rows.iter().map(<[TokenId; 1]>::as_slice).collect(), cache }])
        };
        let mut recording = None;
        let _ = group(&first, &mut |groups| {
            recording = self.record(&self.tell(groups, lanes), room, groups, lanes);
            None
        });
        let Some(mut recording) = recording else { return false };
        let replayed = group(&second, &mut |groups| {
            // SAFETY: the cache is there still, and nothing has happened since.
            unsafe { recording.replay(&self.tell(groups, lanes)) }.ok()
        });
        let expected = group(&second, &mut |groups| {
            let pass = Pass::new(&self.config, lanes.count(), groups, self.tell(groups, lanes), self.angles(room), None);
            Some(self.read(&pass, groups, lanes))
        });
        let bits = |states: Option<Tensor<2>>| {
            let values = states?.try_into_vec_as::<f32>().ok()?;
            Some(values.into_iter().map(f32::to_bits).collect::<Vec<_>>())
        };
        let (replayed, expected) = (bits(replayed), bits(expected));
        replayed.is_some() && replayed == expected
    }
}
