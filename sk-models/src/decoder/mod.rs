//! The inference decoder, on which the slots of a scheme run.
//!
//! A [`Decoder`] holds one of two engines, which implement `engine::Engine`. On a CPU, `cpu` packs
//! the weights for the loops that read them and uses no tensors between layers. On a GPU, `gpu`
//! uses Burn's tensors with as few kernel launches as possible. Rows are grouped by lane, one lane
//! per adapter. A [`Prefix`] holds the keys and values of the context of each lane. A [`Suffix`]
//! holds those that each row has added.
//!
//! If several threads decode on one GPU, open it by [`DeviceName`](crate::device::DeviceName),
//! which makes the threads share one queue. Caches are written in place: with a queue for each
//! thread, one thread could read data that another has not written yet.
//!
//! Prefixes, suffixes, seats and states belong to the decoder that made them: with another one,
//! methods panic.

mod cpu;
mod engine;
mod gpu;
mod heads;
mod kv;
mod logits;
mod prefix_tree;
mod rope;
mod scheduler;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use burn::tensor::{DType, Device};
use sk_core::TokenId;

#[cfg(target_arch = "x86_64")]
pub(crate) use cpu::PairProducts;
pub use cpu::instructions;
pub(crate) use cpu::piece::NODE_TOKENS;
pub(crate) use cpu::{FUSED, PANEL, QUERIES, low_rank_bytes, products};
pub use engine::Formats;
pub(crate) use gpu::draw::{DeviceDraw, draw as draw_on_device};
pub(crate) use gpu::ops::multiply;
pub use kv::{Prefix, Suffix};
#[cfg(test)]
pub(crate) use logits::HostLogits;
pub(crate) use logits::Logits;
pub(crate) use scheduler::check_stopped;
pub use scheduler::{Away, LONGEST_WAIT, PassSize, Request, Scheduler, Stop, Stopped};

use engine::{AnyEngine, Cache, HostJob};
use prefix_tree::PrefixTree;
use scheduler::PassKey;

use crate::config::Qwen2Config;
pub use crate::device::DeviceFailure;
use crate::device::block_recording;
use crate::kernels::is_fused;
use crate::lora::{AdapterError, LoraAdapter};
use crate::model::Qwen2;
use crate::model::initial::Initial;
use crate::model::parts::{ModelParts, OwnedParts};
pub use crate::precision::{Precision, PrecisionError};

/// A decoder with weights that are prepared for inference.
#[derive(Debug)]
pub struct Decoder {
    engine: Box<dyn AnyEngine>,
    scheduler: Option<Scheduler>,
    /// The prefix tree, if contexts share prefixes.
    prefixes: Option<PrefixTree>,
    /// The number of tokens whose keys and values are in memory, summed over lanes and rows.
    held: Arc<AtomicUsize>,
}

/// Work of a request between passes that uses all threads of the CPU.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HostWork {
    /// Tokens are drawn from logits.
    Draw,
    /// Log-probabilities are computed from states.
    Read,
}

/// The adapter of each lane, in the form that the engine uses.
#[derive(Debug, Clone)]
pub struct Seats {
    of: Arc<dyn Any + Send + Sync>,
    lanes: Arc<[Option<Weak<LoraAdapter>>]>,
}

/// Final-norm states of the tokens of one pass.
#[derive(Debug)]
pub struct Hidden(Box<dyn Any + Send + Sync>);

impl Seats {
    /// Returns the number of lanes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lanes.len()
    }
}

impl Decoder {
    /// Prepares a model for inference with weights of the given precision.
    ///
    /// [`Checkpoint::decoder`](crate::hf::Checkpoint::decoder) and [`random`](Self::random) take
    /// less memory: they hold at most one part of the weights in two forms at a time.
    ///
    /// # Errors
    ///
    /// If the device has no weights of that precision.
    pub fn new(model: Qwen2, precision: Precision) -> Result<Self, PrecisionError> {
        let (mut config, device) = (model.config.clone(), model.device());
        config.tie_word_embeddings = model.lm_head.is_none();
        precision.check(&device)?;
        let Ok(decoder) = Self::assemble(&config, OwnedParts::from(model), precision, &device);
        Ok(decoder)
    }

    /// Returns a decoder with the weights of [`Qwen2::random`].
    ///
    /// # Errors
    ///
    /// If the device has no weights of that precision.
    pub fn random(config: &Qwen2Config, seed: u64, device: &Device, precision: Precision) -> Result<Self, PrecisionError> {
        precision.check(device)?;
        let Ok(decoder) = Self::assemble(config, Initial::from_seed(seed, config, device), precision, device);
        Ok(decoder)
    }

    /// Prepares the parts of a model one after the other. The device must support `precision`.
    pub(crate) fn assemble<P: ModelParts>(
        config: &Qwen2Config,
        mut parts: P,
        precision: Precision,
        device: &Device,
    ) -> Result<Self, P::Error> {
        let _blocked = block_recording(device);
        let embedding = parts.embedding()?;
        let engine: Box<dyn AnyEngine> = if is_fused(&embedding.device(), embedding.dtype()) {
            Box::new(cpu::CpuEngine::assemble(embedding, config, parts, precision)?)
        } else {
            let format = (precision == Precision::Bf16).then_some(DType::BF16);
            Box::new(gpu::GpuEngine::assemble(embedding, config, parts, format)?)
        };
        Ok(Self { engine, scheduler: None, prefixes: None, held: Arc::default() })
    }

    /// Makes the decoder join the passes of threads that have joined `scheduler`. On a GPU, only
    /// passes under the same seats are joined.
    #[must_use]
    pub fn scheduled(self, scheduler: &Scheduler) -> Self {
        Self { scheduler: Some(scheduler.clone()), ..self }
    }

    /// Makes the decoder cache up to `bytes` of keys and values for contexts with a common prefix.
    ///
    /// Contexts under one adapter share whole blocks of 64 tokens. On a GPU, nothing is cached.
    #[must_use]
    pub fn sharing_prefixes(self, bytes: usize) -> Self {
        Self { prefixes: (bytes > 0).then(|| PrefixTree::new(bytes)), ..self }
    }

    /// Returns the bytes that are cached for contexts with a common prefix.
    #[must_use]
    pub fn shared_bytes(&self) -> usize {
        self.prefixes.as_ref().map_or(0, PrefixTree::bytes)
    }

    /// Returns the most bytes that are cached for contexts with a common prefix.
    pub(crate) fn shared_limit(&self) -> usize {
        self.prefixes.as_ref().map_or(0, PrefixTree::budget)
    }

    /// Returns the bytes of the keys and values of all existing contexts and candidates. A block
    /// counts for each context that holds it, and once more in [`shared_bytes`](Self::shared_bytes)
    /// while it is cached.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.load(Ordering::Relaxed) * self.bytes_per_token()
    }

    /// Frees the memory that is kept for later passes.
    pub(crate) fn free_buffers(&self) {
        self.engine.free_buffers();
    }

    /// Drops the keys and values that are cached for contexts with a common prefix.
    pub fn forget_prefixes(&self) {
        if let Some(tree) = &self.prefixes {
            tree.clear();
        }
    }

    /// Fills an empty prefix with the cached blocks at the beginning of `tokens`. Returns the
    /// number of tokens in these blocks.
    pub(crate) fn recall(&self, tokens: &[TokenId], seats: &Seats, prefix: &mut Prefix) -> usize {
        let Some(tree) = self.prefixes.as_ref().filter(|_| prefix.is_empty()) else { return 0 };
        let lanes = tree.find(&seats.lanes, tokens);
        let blocks = lanes.first().map_or(0, Vec::len);
        prefix.change();
        prefix.cache.attach(lanes);
        prefix.count();
        blocks * NODE_TOKENS
    }

    /// Caches the whole blocks of `tokens` from token `from` on, which must begin a block. The
    /// prefix must hold at least `tokens`.
    pub(crate) fn keep(&self, tokens: &[TokenId], from: usize, seats: &Seats, prefix: &mut Prefix) {
        let Some(tree) = &self.prefixes else { return };
        let blocks = from / NODE_TOKENS..tokens.len() / NODE_TOKENS;
        let Some(lanes) = prefix.cache.share(blocks.end) else { return };
        for block in blocks {
            let pieces = seats.lanes.iter().zip(lanes).map(|(lane, pieces)| (lane.as_ref(), &pieces[block]));
            if !tree.insert(tokens, block, pieces) {
                return;
            }
        }
    }

    /// Returns the result of `work`.
    ///
    /// If passes run on the CPU, the scheduler treats `work` as a job of `positions` positions, so
    /// that it does not compete with a pass for threads. Jobs of one kind share a turn.
    ///
    /// # Panics
    ///
    /// If `work` panics. `work` must not submit a job, which would wait for itself.
    pub(crate) fn in_turn<T: Send>(&self, kind: HostWork, positions: usize, work: impl FnOnce() -> T + Send) -> T {
        let Some(scheduler) = self.scheduler().filter(|_| self.engine.is_cpu()) else { return work() };
        let (mut work, mut out) = (Some(work), None);
        let mut run = || out = work.take().map(|work| catch_unwind(AssertUnwindSafe(work)));
        let key = PassKey { seats: 0, kind: kind as usize };
        Scheduler::run(Some(scheduler), &*self.engine, key, positions, &mut HostJob(&mut run));
        // A panic reaches this request only.
        out.expect("a job runs once").unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Returns the scheduler if the calling thread has joined it.
    fn scheduler(&self) -> Option<&Scheduler> {
        self.scheduler.as_ref().filter(|scheduler| scheduler.has_joined())
    }

    /// Returns the precision of the weights.
    #[must_use]
    pub fn precision(&self) -> Precision {
        match self.engine.formats().weights {
            DType::BF16 => Precision::Bf16,
            DType::I8 => Precision::Int8,
            _ => Precision::F32,
        }
    }

    /// Returns the shape of the model.
    #[must_use]
    pub fn config(&self) -> &Qwen2Config {
        self.engine.config()
    }

    /// Returns the device that holds the weights.
    #[must_use]
    pub fn device(&self) -> Device {
        self.engine.device()
    }

    /// Returns seats with one lane, which runs the backbone without an adapter.
    #[must_use]
    pub fn alone(&self) -> Seats {
        self.seat(&[None]).unwrap_or_else(|error| panic!("the backbone fits itself: {error}"))
    }

    /// Returns seats with a lane for each entry; an entry without an adapter is the backbone.
    ///
    /// On a CPU, an adapter is packed the first time it is seated, in O(its parameters). After
    /// that, seating it clones a reference. On other devices, adapters are stacked into one tensor
    /// per layer and target. Seats that exist at the same time and list the same adapters in the
    /// same order share these tensors.
    ///
    /// # Errors
    ///
    /// If an adapter was made for another shape. The error names the adapter by its lane.
    ///
    /// # Panics
    ///
    /// If there is no lane.
    pub fn seat(&self, lanes: &[Option<Arc<LoraAdapter>>]) -> Result<Seats, AdapterError> {
        assert!(!lanes.is_empty(), "seats need at least one lane");
        let of = self.engine.seat(lanes)?;
        Ok(Seats { of, lanes: lanes.iter().map(|lane| lane.as_ref().map(Arc::downgrade)).collect() })
    }

    /// Returns an empty prefix for `lanes` lanes.
    #[must_use]
    pub fn prefix(&self, lanes: usize) -> Prefix {
        Prefix::new(self.engine.prefix(lanes), &self.held)
    }

    /// Returns an empty suffix for `rows` rows in each of `lanes` lanes.
    #[must_use]
    pub fn suffix(&self, lanes: usize, rows: usize) -> Suffix {
        Suffix::new(self.engine.suffix(lanes, rows), [lanes, rows], &self.held)
    }

    /// Appends `tokens` to the context of every lane. Only keys and values are kept.
    ///
    /// # Panics
    ///
    /// If the prefix has another number of lanes than there are seats, or a token is not in the
    /// vocabulary.
    pub fn prefill(&self, tokens: &[TokenId], seats: &Seats, prefix: &mut Prefix) {
        if !tokens.is_empty() {
            let _ = self.continue_prefix(tokens, seats, prefix, false);
        }
    }

    /// Appends one token to the context of every lane. Returns the state after it in each lane, one
    /// row per lane.
    ///
    /// # Panics
    ///
    /// As [`prefill`](Self::prefill).
    pub fn advance(&self, token: TokenId, seats: &Seats, prefix: &mut Prefix) -> Hidden {
        self.continue_prefix(&[token], seats, prefix, true)
    }

    /// Checks tokens before they join a pass, which other requests share.
    fn check_tokens(&self, tokens: &[TokenId]) {
        let vocab_size = self.config().vocab_size;
        assert!(tokens.iter().all(|&token| (token as usize) < vocab_size), "a token is outside the vocabulary of {vocab_size}");
    }

    fn continue_prefix(&self, tokens: &[TokenId], seats: &Seats, prefix: &mut Prefix, states: bool) -> Hidden {
        self.check_tokens(tokens);
        assert_eq!(seats.count(), prefix.lanes(), "one lane of the prefix per seat");
        prefix.change();
        let cache = Cache { prefix: &mut *prefix.cache, suffix: None };
        let hidden = Hidden(self.engine.forward(vec![tokens], &*seats.of, cache, states, self.scheduler()));
        prefix.cache.advance(tokens.len());
        prefix.count();
        hidden
    }

    /// Reads `rows` in every lane. Each row continues the prefix of its lane and its own part of
    /// the suffix. Returns the states of all tokens of the rows.
    ///
    /// If the suffix is empty, rows may differ in length. Such a suffix can be adopted from, but
    /// not extended again. On a CPU, rows with a common beginning share its states, and no padding
    /// is computed. On other devices, short rows are padded to the longest.
    ///
    /// # Panics
    ///
    /// If the caches were made for other lanes or rows, the suffix holds rows of different lengths
    /// or is not valid any more, or a token is not in the vocabulary.
    pub fn extend(&self, rows: &[impl AsRef<[TokenId]>], seats: &Seats, prefix: &mut Prefix, suffix: &mut Suffix) -> Hidden {
        assert_eq!(seats.count(), prefix.lanes(), "one lane of the prefix per seat");
        assert_eq!((seats.count(), rows.len()), (suffix.lanes(), suffix.rows()), "one place in the suffix per row and lane");
        let rows: Vec<&[TokenId]> = rows.iter().map(AsRef::as_ref).collect();
        rows.iter().for_each(|row| self.check_tokens(row));
        let width = rows.iter().map(|row| row.len()).max().unwrap_or(0);
        prefix.continue_with(suffix);
        suffix.grow(rows.iter().all(|row| row.len() == width));
        let cache = Cache { prefix: &mut *prefix.cache, suffix: Some(&mut *suffix.cache) };
        let hidden = Hidden(self.engine.forward(rows, &*seats.of, cache, true, self.scheduler()));
        // Every row counts as the longest, since rows of different lengths are not extended again.
        suffix.cache.advance(width);
        suffix.count();
        hidden
    }

    /// Returns the logits of states in the order of lanes, rows and tokens: `[M, V]`.
    ///
    /// Each token must have a state of its own: one token per row, or one row.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn logits(&self, hidden: &Hidden, seats: &Seats) -> Result<Vec<f32>, DeviceFailure> {
        self.logits_in_place(hidden, seats).into_values()
    }

    /// Returns the logits of [`logits`](Self::logits) without copying them to the host.
    pub(crate) fn logits_in_place(&self, hidden: &Hidden, seats: &Seats) -> Logits {
        self.engine.logits(&*hidden.0, &*seats.of, self.scheduler())
    }

    /// Returns the argmax of the logits of each state, in the order of [`logits`](Self::logits).
    /// Among equal logits, the first wins. The result is `None` if a logit is NaN or +∞.
    ///
    /// On a GPU, two numbers per state are copied to the host, not the logits of the whole
    /// vocabulary.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn argmax(&self, hidden: &Hidden, seats: &Seats) -> Result<Vec<Option<TokenId>>, DeviceFailure> {
        self.logits_in_place(hidden, seats).argmax()
    }

    /// Returns `[log p, H_∞]` in nats for each lane, row and target. Token t of `targets[row]` is
    /// the token that follows token t of the row. `H_∞ = logsumexp(z) − max(z)` is the min-entropy
    /// of the next-token distribution.
    ///
    /// Two numbers per token leave the device. Logits never do, and on a CPU they are never all in
    /// memory.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If there are more rows of targets than rows, or more targets than tokens in one.
    pub fn read(&self, hidden: &Hidden, seats: &Seats, targets: &[&[TokenId]]) -> Result<Vec<Vec<Vec<[f32; 2]>>>, DeviceFailure> {
        let place = |row: usize, step: usize| self.engine.place(&*hidden.0, 0, seats.count(), row, step);
        let mut at = Vec::new();
        for (row, targets) in targets.iter().enumerate() {
            at.extend(targets.iter().enumerate().map(|(step, &target)| (place(row, step), target)));
        }
        let (states, positions) = (&*hidden.0, seats.count() * at.len());
        let mut pairs = self.in_turn(HostWork::Read, positions, || self.engine.read(states, &*seats.of, &at))?.into_iter();
        let mut row = |targets: &&[TokenId]| pairs.by_ref().take(targets.len()).collect();
        Ok((0..seats.count()).map(|_| targets.iter().map(&mut row).collect()).collect())
    }

    /// Returns `w·h + b` for the state h of lane `lane` at each `(row, token)` of `at` and for each
    /// `(w, b)` of `heads`: `[at, heads]`.
    ///
    /// # Errors
    ///
    /// If the device fails.
    ///
    /// # Panics
    ///
    /// If the width of a `w` differs from the width of the states.
    pub(crate) fn project(
        &self,
        hidden: &Hidden,
        seats: &Seats,
        lane: usize,
        at: &[(usize, usize)],
        heads: &[(&[f32], f32)],
    ) -> Result<Vec<f32>, DeviceFailure> {
        let width = self.config().hidden_size;
        assert!(heads.iter().all(|(weight, _)| weight.len() == width), "heads read {width} numbers");
        let place = |&(row, step): &(usize, usize)| self.engine.place(&*hidden.0, lane, seats.count(), row, step);
        let places: Vec<usize> = at.iter().map(place).collect();
        self.engine.project(&*hidden.0, &places, heads)
    }

    /// Returns the number formats in memory.
    #[must_use]
    pub fn formats(&self) -> Formats {
        self.engine.formats()
    }

    /// Returns the bytes of the keys and values of a token in one lane.
    #[must_use]
    pub(crate) fn bytes_per_token(&self) -> usize {
        let config = self.config();
        let width = config.head_dim;
        // On a CPU, a value is padded to a whole panel.
        let value = if self.engine.is_cpu() { width.next_multiple_of(PANEL) } else { width };
        config.num_hidden_layers * config.num_key_value_heads * (width + value) * self.formats().keys.size()
    }

    /// Returns the bytes of the weights in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.engine.bytes()
    }
}
