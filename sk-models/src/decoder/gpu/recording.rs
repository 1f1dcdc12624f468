//! Passes that repeat, recorded.
//!
//! Asking a GPU for the three hundred kernels of a pass takes longer than it needs to run them, where few rows read one token each. While a
//! response grows, that pass is the same every time but for the tokens and for where they are. It is recorded once, and from then on asked for
//! as a whole: a CUDA graph.

use std::fmt;
use std::thread::{self, ThreadId};

use burn::backend::{Backend, BackendGraph, Dispatch, ExecutionError};
use burn::tensor::{Int, Tensor};

use super::ops;

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
