//! Recordings of passes that repeat.
//!
//! If few rows read one token each, launching the three hundred kernels of a pass takes longer than
//! running them. While a response grows, that pass is the same every time except for its tokens and
//! positions. It is recorded once as a CUDA graph and then launched as a whole.

use std::fmt;
use std::thread::{self, ThreadId};

use burn::backend::{Backend, BackendGraph, Dispatch, ExecutionError};
use burn::tensor::{Int, Tensor};

use super::ops;

/// The identity of a repeated pass: the number of rows, the engine, the lanes and the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RepeatKey {
    rows: usize,
    decoder: u64,
    stack: u64,
    thread: ThreadId,
}

impl RepeatKey {
    pub(super) fn new(rows: usize, decoder: u64, stack: u64) -> Self {
        Self { rows, decoder, stack, thread: thread::current().id() }
    }
}

/// The repeated passes over one prefix: how often the last one has run, and its recording.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    key: Option<RepeatKey>,
    times: usize,
    recording: Option<Recording>,
}

/// A recorded pass on the device, with its input and output.
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

/// The number of passes before one is recorded. A recording takes as long as a few passes, and all
/// kernels must have been compiled.
const PASSES_BEFORE_RECORDING: usize = 4;

/// Passes before the recorded one. They allocate the memory that the recording must find.
const REHEARSALS: usize = 2;

impl Repeats {
    /// Drops the recording, since its memory has moved.
    pub(super) fn forget(&mut self) {
        self.recording = None;
    }

    /// Drops a recording of another thread, since the device may not have finished that thread's
    /// requests.
    pub(super) fn meet(&mut self) {
        if self.key.is_some_and(|key| key.thread != thread::current().id()) {
            *self = Self::default();
        }
    }

    /// Counts a pass. Returns whether it has a recording or should get one.
    pub(super) fn is_due(&mut self, key: RepeatKey) -> bool {
        if self.key != Some(key) {
            *self = Self { key: Some(key), ..Self::default() };
        }
        self.times += 1;
        self.recording.is_some() || self.times > PASSES_BEFORE_RECORDING
    }

    /// Stores a recording.
    pub(super) fn keep(&mut self, recording: Option<Recording>) {
        self.recording = recording;
    }

    /// Replays the recorded pass with `numbers` and returns its states.
    pub(super) fn replay(&mut self, numbers: &Tensor<1, Int>) -> Option<Tensor<2>> {
        let recording = self.recording.as_mut()?;
        // SAFETY: `is_due` has compared the key of this recording, which contains the engine, the
        // lanes and the thread. So the weights, the adapters and the thread are those of the
        // recording. The cache is that of the prefix that owns the recording, and moving its memory
        // forgets the recording.
        Some(unsafe { recording.replay(numbers) }.expect("a recording that was tested replays"))
    }

    #[cfg(all(test, any(feature = "cuda", feature = "wgpu")))]
    pub(super) fn is_recorded(&self) -> bool {
        self.recording.is_some()
    }
}

impl Recording {
    /// Records a pass that reads `numbers`; `None` if the device cannot. Nothing else may use the
    /// device meanwhile: see [`if_only_user`].
    ///
    /// If recording starts and fails, what the pass wrote is invalid.
    pub(super) fn new(numbers: &Tensor<1, Int>, mut pass: impl FnMut(&Tensor<1, Int>) -> Tensor<2>) -> Option<Self> {
        // A copy that shares memory with no other tensor.
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

    /// Replays the pass with `numbers` and returns its states.
    ///
    /// # Safety
    ///
    /// The memory that the pass reads and writes still exists, and this is the thread of the
    /// recording, whose requests the device serves in order. (The graph itself keeps its own
    /// memory.)
    pub(super) unsafe fn replay(&mut self, numbers: &Tensor<1, Int>) -> Result<Tensor<2>, ExecutionError> {
        self.numbers.inplace(|own| ops::refresh(own, numbers.clone()));
        // SAFETY: the caller's promise.
        unsafe { Dispatch::graph_replay(self.states.device().as_dispatch(), &self.graph) }?;
        // The next pass overwrites these states, so the caller gets a copy.
        Ok(self.states.clone().mul_scalar(1.0))
    }
}
