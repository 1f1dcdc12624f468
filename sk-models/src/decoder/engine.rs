//! The contract of an inference engine.
//!
//! An engine runs one model on one kind of device and chooses its own types for KV caches,
//! adapters, states and logits. To add an engine, implement [`Engine`] and construct it in
//! [`Decoder::assemble`](super::Decoder). The types are erased once, by the blanket implementation
//! of [`AnyEngine`].

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use burn::tensor::{DType, Device};
use sk_core::TokenId;

use super::cpu::piece::KvPiece;
use super::logits::Logits;
use super::scheduler::{Job, PassKey, Scheduler};
use crate::config::Qwen2Config;
use crate::device::DeviceFailure;
use crate::lora::{AdapterError, LoraAdapter};

/// The properties of an engine.
pub(super) trait EngineProperties: fmt::Debug + Send + Sync {
    /// Returns the shape of the model.
    fn config(&self) -> &Qwen2Config;
    /// Returns the device that holds the weights.
    fn device(&self) -> Device;
    /// Returns the number formats in memory.
    fn formats(&self) -> Formats;
    /// Returns the bytes of the weights in memory.
    fn bytes(&self) -> usize;
    /// Returns whether passes run on threads of this process.
    fn is_cpu(&self) -> bool;
    /// Frees the memory that is kept for later passes.
    fn free_buffers(&self) {}
}

/// An inference engine: a model whose weights are laid out for a device.
///
/// A pass reads rows of tokens in *lanes*. A lane is the model under one adapter, or under none.
/// Every lane reads the same rows, each with its own keys and values. On a CPU, results are
/// bit-identical whether passes are joined or run one by one.
pub(super) trait Engine: EngineProperties + Sized + 'static {
    /// Keys and values of a context, one sequence per lane.
    type Prefix: PrefixCache;
    /// Keys and values that rows have added to a prefix.
    type Suffix: SuffixCache;
    /// The adapters of the lanes.
    type Seats: fmt::Debug + Send + Sync + 'static;
    /// Final-norm states of one pass.
    type States: fmt::Debug + Send + Sync + 'static;

    /// Returns an empty prefix for `lanes` lanes.
    fn prefix(&self, lanes: usize) -> Self::Prefix;
    /// Returns an empty suffix for `rows` rows in each of `lanes` lanes.
    fn suffix(&self, lanes: usize, rows: usize) -> Self::Suffix;
    /// Prepares the adapters of at least one lane.
    ///
    /// # Errors
    ///
    /// If an adapter was made for another shape. The error names the adapter by its lane.
    fn seat(&self, lanes: &[Option<Arc<LoraAdapter>>]) -> Result<Self::Seats, AdapterError>;

    /// Returns the key of a pass over a group. Passes with equal keys can be joined.
    fn forward_key(&self, group: &Group<'_, Self>, states: bool) -> PassKey;
    /// Reads groups of rows with equal keys. Returns the states of each group, which are empty if
    /// `states` is false. Keys and values are appended, and the lengths of the caches stay as they
    /// are.
    ///
    /// `joined` is true if the pass may include groups of other threads.
    fn forward(&self, groups: Vec<Group<'_, Self>>, states: bool, joined: bool) -> Vec<Self::States>;
    /// Returns the key of a pass that computes logits under `seats`. Passes with equal keys can be
    /// joined.
    fn logits_key(&self, seats: &Self::Seats) -> PassKey;
    /// Computes the logits `[M, V]` of each of the given states, which have equal keys.
    fn logits(&self, of: &[(&Self::States, &Self::Seats)]) -> Vec<Logits>;

    /// Returns the place of token `step` of row `row` among the states of lane `lane` of `lanes`.
    fn place(states: &Self::States, lane: usize, lanes: usize, row: usize, step: usize) -> usize;
    /// Returns `[log p(target), H_∞]` in nats for each lane and `(place, target)`, lanes outermost.
    /// Places are those of the first lane.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn read(&self, states: &Self::States, seats: &Self::Seats, at: &[(usize, TokenId)]) -> Result<Vec<[f32; 2]>, DeviceFailure>;
    /// Returns `w·h + b` for the state h at each place and for each `(w, b)`: `[places, heads]`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    fn project(states: &Self::States, places: &[usize], heads: &[(&[f32], f32)]) -> Result<Vec<f32>, DeviceFailure>;
}

/// Keys and values of a context, one sequence per lane.
///
/// # Panics
///
/// Methods panic if a cache was made by another kind of engine.
pub(super) trait PrefixCache: Any + fmt::Debug + Send {
    /// Returns the number of tokens held.
    fn len(&self) -> usize;
    /// Returns the number of lanes.
    fn lanes(&self) -> usize;
    /// Returns the number of leading tokens whose keys and values are canonical: bit-identical to
    /// those of the same tokens read into an empty prefix, in any passes without states.
    fn canonical_len(&self) -> usize {
        0
    }
    /// Adds the tokens that a pass has appended to the length.
    fn advance(&mut self, tokens: usize);
    /// Keeps the first `length` tokens.
    fn truncate(&mut self, length: usize);
    /// Keeps the given lanes in the given order; `lanes` is not empty.
    fn select_lanes(&mut self, lanes: &[usize]);
    /// Appends, in every lane, the first `tokens` tokens of row `row` of a suffix with the same
    /// lanes.
    fn adopt(&mut self, suffix: &dyn SuffixCache, row: usize, tokens: usize);
    /// Appends the lanes of another prefix of the same tokens.
    fn join_lanes(&mut self, other: Box<dyn PrefixCache>);
    /// Divides the first tokens of each lane into at least `pieces` pieces and returns all pieces.
    /// The prefix must hold these tokens. Returns `None` if the engine does not share pieces.
    fn share(&mut self, pieces: usize) -> Option<&[Vec<Arc<KvPiece>>]> {
        let _ = pieces;
        None
    }
    /// Appends pieces to each lane of an empty prefix. All lanes get the same number of pieces,
    /// which is zero if the engine does not share pieces.
    fn attach(&mut self, lanes: Vec<Vec<Arc<KvPiece>>>) {
        let _ = lanes;
    }
}

/// Keys and values that rows have added to a prefix.
pub(super) trait SuffixCache: Any + fmt::Debug + Send {
    /// Returns the number of tokens of the longest row.
    fn len(&self) -> usize;
    /// Adds the tokens that a pass has appended to the longest row to the length.
    fn advance(&mut self, tokens: usize);
    /// Keeps the given rows of each of `lanes` lanes in the given order. A row may occur more than
    /// once. Returns `false` and changes nothing if the engine does not support this.
    fn select_rows(&mut self, lanes: usize, rows: &[usize]) -> bool {
        let _ = (lanes, rows);
        false
    }
}

/// The number formats of a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Formats {
    /// Weights.
    pub weights: DType,
    /// Keys and values.
    pub keys: DType,
    /// Adapters and states.
    pub states: DType,
}

/// Rows of tokens to read in every lane, and the caches that they continue.
pub(super) struct Group<'a, E: Engine> {
    /// The tokens of each row.
    pub(super) rows: Vec<&'a [TokenId]>,
    /// The adapters of the lanes.
    pub(super) seats: &'a E::Seats,
    /// The caches that the pass reads and writes.
    pub(super) cache: Cache<&'a mut E::Prefix, &'a mut E::Suffix>,
}

impl<E: Engine> Group<'_, E> {
    /// Returns the number of tokens of the longest row.
    pub(super) fn width(&self) -> usize {
        self.rows.iter().map(|row| row.len()).max().unwrap_or(0)
    }

    /// Returns the number of tokens in all lanes.
    pub(super) fn positions(&self) -> usize {
        self.cache.prefix.lanes() * self.rows.iter().map(|row| row.len()).sum::<usize>()
    }
}

/// The caches of a pass.
#[derive(Debug)]
pub(crate) struct Cache<P, S> {
    /// The context of each lane, which the rows of the lane share.
    pub(crate) prefix: P,
    /// The tokens that each row has added. If `None`, there is one row, which continues the
    /// context.
    pub(crate) suffix: Option<S>,
}

/// A group to read, as a job for the [`Scheduler`].
struct ForwardJob<'a, E: Engine> {
    engine: &'a E,
    /// Taken when the job runs.
    group: Option<Group<'a, E>>,
    states: bool,
    joined: bool,
    out: Option<E::States>,
}

// SAFETY: `ForwardJob`, `LogitsJob` and `HostJob` are the only types of jobs, and differ in `TYPE`.
unsafe impl<E: Engine> Job for ForwardJob<'_, E> {
    const TYPE: u8 = 0;

    fn run(jobs: &mut [&mut Self]) {
        let Some(ForwardJob { engine, states, joined, .. }) = jobs.first().map(|job| &**job) else { return };
        let (engine, states, joined) = (*engine, *states, *joined);
        let groups = jobs.iter_mut().filter_map(|job| job.group.take()).collect();
        let out = engine.forward(groups, states, joined);
        jobs.iter_mut().zip(out).for_each(|(job, states)| job.out = Some(states));
    }
}

/// The computation of logits from states, as a job for the [`Scheduler`].
struct LogitsJob<'a, E: Engine> {
    engine: &'a E,
    states: &'a E::States,
    seats: &'a E::Seats,
    out: Option<Logits>,
}

// SAFETY: as for `ForwardJob`.
unsafe impl<E: Engine> Job for LogitsJob<'_, E> {
    const TYPE: u8 = 1;

    fn run(jobs: &mut [&mut Self]) {
        let Some(engine) = jobs.first().map(|job| job.engine) else { return };
        let of: Vec<_> = jobs.iter().map(|job| (job.states, job.seats)).collect();
        let out = engine.logits(&of);
        jobs.iter_mut().zip(out).for_each(|(job, logits)| job.out = Some(logits));
    }
}

/// Work that uses all threads of the host, as a job for the [`Scheduler`].
pub(super) struct HostJob<'a>(pub(super) &'a mut (dyn FnMut() + Send));

// SAFETY: as for `ForwardJob`.
unsafe impl Job for HostJob<'_> {
    const TYPE: u8 = 2;
    const IS_PASS: bool = false;

    fn run(jobs: &mut [&mut Self]) {
        jobs.iter_mut().for_each(|HostJob(work)| work());
    }
}

/// An [`Engine`] with erased types, as [`Decoder`](super::Decoder) holds it.
///
/// # Panics
///
/// Methods panic if a cache, seats or states were made by another kind of engine.
pub(super) trait AnyEngine: EngineProperties {
    fn prefix(&self, lanes: usize) -> Box<dyn PrefixCache>;
    fn suffix(&self, lanes: usize, rows: usize) -> Box<dyn SuffixCache>;
    fn seat(&self, lanes: &[Option<Arc<LoraAdapter>>]) -> Result<Arc<dyn Any + Send + Sync>, AdapterError>;
    fn forward(
        &self,
        rows: Vec<&[TokenId]>,
        seats: &dyn Any,
        cache: Cache<&mut dyn PrefixCache, &mut dyn SuffixCache>,
        states: bool,
        scheduler: Option<&Scheduler>,
    ) -> Box<dyn Any + Send + Sync>;
    fn logits(&self, states: &dyn Any, seats: &dyn Any, scheduler: Option<&Scheduler>) -> Logits;
    fn place(&self, states: &dyn Any, lane: usize, lanes: usize, row: usize, step: usize) -> usize;
    fn read(&self, states: &dyn Any, seats: &dyn Any, at: &[(usize, TokenId)]) -> Result<Vec<[f32; 2]>, DeviceFailure>;
    fn project(&self, states: &dyn Any, places: &[usize], heads: &[(&[f32], f32)]) -> Result<Vec<f32>, DeviceFailure>;
}

/// The panic message of a failed downcast: a value was passed to an engine that did not make it.
const FOREIGN: &str = "caches, seats and states belong to the decoder that made them";

pub(super) fn of<T: 'static>(value: &dyn Any) -> &T {
    value.downcast_ref().expect(FOREIGN)
}

fn of_mut<T: 'static>(value: &mut dyn Any) -> &mut T {
    value.downcast_mut().expect(FOREIGN)
}

pub(super) fn of_box<T: 'static>(value: Box<dyn Any>) -> T {
    *value.downcast().expect(FOREIGN)
}

impl<E: Engine> AnyEngine for E {
    fn prefix(&self, lanes: usize) -> Box<dyn PrefixCache> {
        Box::new(Engine::prefix(self, lanes))
    }
    fn suffix(&self, lanes: usize, rows: usize) -> Box<dyn SuffixCache> {
        Box::new(Engine::suffix(self, lanes, rows))
    }
    fn seat(&self, lanes: &[Option<Arc<LoraAdapter>>]) -> Result<Arc<dyn Any + Send + Sync>, AdapterError> {
        Ok(Arc::new(Engine::seat(self, lanes)?))
    }

    fn forward(
        &self,
        rows: Vec<&[TokenId]>,
        seats: &dyn Any,
        cache: Cache<&mut dyn PrefixCache, &mut dyn SuffixCache>,
        states: bool,
        scheduler: Option<&Scheduler>,
    ) -> Box<dyn Any + Send + Sync> {
        let cache: Cache<&mut E::Prefix, &mut E::Suffix> =
            Cache { prefix: of_mut(cache.prefix), suffix: cache.suffix.map(|suffix| of_mut(suffix)) };
        let group = Group { rows, seats: of(seats), cache };
        let (key, positions) = (self.forward_key(&group, states), group.positions());
        let mut job = ForwardJob { engine: self, group: Some(group), states, joined: scheduler.is_some(), out: None };
        Scheduler::run(scheduler, self, key, positions, &mut job);
        Box::new(job.out.expect("an engine returns the states of every group"))
    }

    fn logits(&self, states: &dyn Any, seats: &dyn Any, scheduler: Option<&Scheduler>) -> Logits {
        let mut job = LogitsJob { engine: self, states: of(states), seats: of(seats), out: None };
        Scheduler::run(scheduler, self, self.logits_key(job.seats), 1, &mut job);
        job.out.expect("an engine returns the logits of all states")
    }

    fn place(&self, states: &dyn Any, lane: usize, lanes: usize, row: usize, step: usize) -> usize {
        E::place(of(states), lane, lanes, row, step)
    }

    fn read(&self, states: &dyn Any, seats: &dyn Any, at: &[(usize, TokenId)]) -> Result<Vec<[f32; 2]>, DeviceFailure> {
        Engine::read(self, of(states), of(seats), at)
    }

    fn project(&self, states: &dyn Any, places: &[usize], heads: &[(&[f32], f32)]) -> Result<Vec<f32>, DeviceFailure> {
        E::project(of(states), places, heads)
    }
}
