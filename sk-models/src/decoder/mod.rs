//! A decoder for inference: what the slots of a scheme run on.
//!
//! On a CPU the weights are packed for the sweeps that read them, and no tensor lies between the layers; on a GPU they are
//! Burn's tensors, in as few of them as there can be. Both follow one contract: rows are grouped by lane, one lane per adapter; a [`Prefix`] holds the
//! context of each lane, a [`Suffix`] what each row has added to it.
//!
//! A GPU that several threads decode on is to be opened by [`DeviceName`](crate::device::DeviceName), which has them share one queue: caches are written
//! where they lie, and with a queue for each thread one would read what another has only been asked to write.
//!
//! Prefixes, suffixes, seats and states belong to the decoder that made them: with another one, methods panic.

mod cache;
mod hidden;
mod precision;
mod predictions;
mod seats;
#[cfg(test)]
mod tests;
mod together;

use std::convert::Infallible;
use std::sync::{Arc, Mutex, Weak};

use burn::tensor::{DType, Device, Tensor};
use sk_core::TokenId;

pub use cache::{Prefix, Suffix};
pub use hidden::{DeviceFailure, Hidden};
pub use precision::{Precision, PrecisionError};
pub(crate) use predictions::{BLOCK, Blocks, Outline, Predictions};
pub use seats::Seats;
pub use together::{Presence, Together};

use cache::Keys;
use hidden::States;
use seats::Stacked;
use together::Job;

use crate::config::Qwen2Config;
use crate::kernels::is_fused;
use crate::kernels::logits::{are_numbers, likeliest};
use crate::lora::LoraAdapter;
use crate::model::Qwen2;
use crate::model::initial::Initial;
use crate::model::parts::{Apart, Parts};
use crate::packed::{Grid, Group, Packed, PackedAdapter, PackedCache};
use crate::tensors::{self, Tensors};

/// A decoder whose weights are ready to be read.
#[derive(Debug)]
pub struct Decoder {
    network: Network,
    /// Adapters that were packed before, for as long as somebody holds them.
    packed: Mutex<Vec<(Weak<LoraAdapter>, Arc<PackedAdapter>)>>,
    /// Adapters that are seated together.
    stacked: Mutex<Vec<Stacked>>,
    /// Whose passes are joined.
    together: Option<Together>,
}

#[derive(Debug)]
enum Network {
    Tensors(Box<Tensors>),
    Packed(Box<Packed>),
}

impl From<Qwen2> for Decoder {
    /// Prepares a model for inference; see [`Qwen2::prepare`].
    fn from(model: Qwen2) -> Self {
        Self::whole(model, Precision::F32)
    }
}

/// Whether weights are read from panels: in f32 on a CPU.
fn is_packed(weights: &Tensor<2>) -> bool {
    is_fused(&weights.device(), weights.dtype())
}

impl Decoder {
    /// Prepares a model for inference with weights of the given precision.
    ///
    /// A decoder that is not needed as a [`Qwen2`] takes less memory from [`Checkpoint::decoder`](crate::hf::Checkpoint::decoder) or
    /// [`random`](Self::random), where no more than a part of it is there in two forms.
    ///
    /// # Errors
    ///
    /// If the device has no weights of that precision.
    pub fn new(model: Qwen2, precision: Precision) -> Result<Self, PrecisionError> {
        precision.check(&model.device())?;
        Ok(Self::whole(model, precision))
    }

    /// A decoder with the weights of [`Qwen2::random`].
    ///
    /// # Errors
    ///
    /// If the device has no weights of that precision.
    pub fn random(config: &Qwen2Config, seed: u64, device: &Device, precision: Precision) -> Result<Self, PrecisionError> {
        precision.check(device)?;
        Ok(never(Self::assemble(config, Initial::from_seed(seed, config, device), precision, device)))
    }

    fn whole(model: Qwen2, precision: Precision) -> Self {
        let (config, device) = (model.config.clone(), model.device());
        never(Self::assemble(&config, Apart::from(model), precision, &device))
    }

    /// Prepares the parts of a model, one after the other, for the device that they come to, which has that precision.
    pub(crate) fn assemble<P: Parts>(
        config: &Qwen2Config,
        mut parts: P,
        precision: Precision,
        device: &Device,
    ) -> Result<Self, P::Error> {
        let _quiet = tensors::pause(device);
        let embedding = parts.embedding()?;
        let network = if is_packed(&embedding) {
            Network::Packed(Box::new(Packed::assemble(embedding, config, parts, precision)?))
        } else {
            let format = (precision == Precision::Bf16).then_some(DType::BF16);
            Network::Tensors(Box::new(Tensors::assemble(embedding, config, parts, format)?))
        };
        Ok(Self { network, packed: Mutex::default(), stacked: Mutex::default(), together: None })
    }

    /// The decoder, whose passes from threads that have entered `together` are joined; elsewhere than on a CPU, those under the same seats.
    #[must_use]
    pub fn joined(self, together: &Together) -> Self {
        Self { together: Some(together.clone()), ..self }
    }

    /// Does a job, with others' where this thread lets it be joined.
    fn run<'a>(&self, mut job: Job<'a>) -> Job<'a> {
        match self.together.as_ref().filter(|together| together.is_entered()) {
            Some(together) => together.submit(&mut job),
            None => Job::run(&mut [&mut job]),
        }
        job
    }

    fn forward(&self, packed: &Packed, group: Group<'_>, states: bool) -> Hidden {
        match self.run(Job::Forward { packed, group: Some(group), states, out: None }) {
            Job::Forward { out, .. } => Hidden::packed(out.unwrap_or_default()),
            _ => unreachable!("a job stays what it is"),
        }
    }

    fn forward_tensors(&self, model: &Tensors, group: tensors::Group<'_>, seats: &Seats) -> Hidden {
        let rows = group.rows.len();
        let alone = !self.together.as_ref().is_some_and(Together::is_entered);
        if alone && group.is_step() {
            return Hidden::tensors(model.repeat(group, seats.lanes()), rows);
        }
        match self.run(Job::Tensors { model, group: Some(group), lanes: seats.lanes(), out: None }) {
            Job::Tensors { out: Some(states), .. } => Hidden::tensors(states, rows),
            _ => unreachable!("a job stays what it is, and is done"),
        }
    }

    fn logits_tensors(&self, model: &Tensors, states: &Tensor<2>, seats: &Seats) -> Tensor<2> {
        match self.run(Job::TensorLogits { model, states, lanes: seats.lanes(), out: None }) {
            Job::TensorLogits { out: Some(logits), .. } => logits,
            _ => unreachable!("a job stays what it is, and is done"),
        }
    }

    /// What its weights are kept in.
    #[must_use]
    pub fn precision(&self) -> Precision {
        match &self.network {
            Network::Tensors(model) if model.weight_format() == DType::BF16 => Precision::Bf16,
            Network::Tensors(_) => Precision::F32,
            Network::Packed(packed) => packed.precision(),
        }
    }

    /// Its shape.
    #[must_use]
    pub fn config(&self) -> &Qwen2Config {
        match &self.network {
            Network::Tensors(model) => model.config(),
            Network::Packed(packed) => packed.config(),
        }
    }

    /// Where its weights are.
    #[must_use]
    pub fn device(&self) -> Device {
        match &self.network {
            Network::Tensors(model) => model.device(),
            Network::Packed(_) => Device::flex(),
        }
    }

    /// Appends `tokens` to the context of every lane. Only keys and values are kept.
    ///
    /// # Panics
    ///
    /// If the prefix has another number of lanes than there are seats, or a token is none of the vocabulary.
    pub fn prefill(&self, tokens: &[TokenId], seats: &Seats, prefix: &mut Prefix) {
        if !tokens.is_empty() {
            let _ = self.continue_prefix(tokens, seats, prefix, false);
        }
    }

    /// Appends one token to the context of every lane: the state it leaves in each, one row per lane.
    ///
    /// # Panics
    ///
    /// As [`prefill`](Self::prefill).
    pub fn advance(&self, token: TokenId, seats: &Seats, prefix: &mut Prefix) -> Hidden {
        self.continue_prefix(&[token], seats, prefix, true)
    }

    fn continue_prefix(&self, tokens: &[TokenId], seats: &Seats, prefix: &mut Prefix, states: bool) -> Hidden {
        assert_eq!(seats.count(), prefix.lanes(), "one lane of the prefix per seat");
        prefix.change();
        match (&self.network, &mut prefix.keys) {
            (Network::Tensors(model), Keys::Tensors(prefix)) => {
                let cache = tensors::Cache::Prefill(prefix);
                self.forward_tensors(model, tensors::Group { rows: vec![tokens], cache }, seats)
            }
            (Network::Packed(packed), Keys::Packed(prefix)) => {
                let cache = PackedCache::Prefill(prefix);
                self.forward(packed, Group { rows: vec![tokens], seats: seats.packed(), cache }, states)
            }
            _ => unreachable!("a prefix belongs to the decoder that made it"),
        }
    }

    /// Reads `rows`, the same in every lane, each after the prefix of its lane and what it has of the suffix: the states of all their
    /// tokens.
    ///
    /// Rows may be of different lengths where the suffix is empty; it can then be adopted from, and not extended again. On a CPU, rows
    /// that begin alike share the states of their beginning, and no state is computed for what is not there; elsewhere short rows are
    /// filled up to the longest.
    ///
    /// # Panics
    ///
    /// If the caches were made for other lanes or rows, the suffix holds rows of different lengths or is no longer of use, or a token is none
    /// of the vocabulary.
    pub fn extend(&self, rows: &[impl AsRef<[TokenId]>], seats: &Seats, prefix: &mut Prefix, suffix: &mut Suffix) -> Hidden {
        assert_eq!(seats.count(), prefix.lanes(), "one lane of the prefix per seat");
        assert_eq!((seats.count(), rows.len()), (suffix.lanes(), suffix.rows()), "one place in the suffix per row and lane");
        let rows: Vec<&[TokenId]> = rows.iter().map(AsRef::as_ref).collect();
        let width = rows.iter().map(|row| row.len()).max().unwrap_or(0);
        prefix.continue_with(suffix);
        suffix.grow(rows.iter().all(|row| row.len() == width));
        match (&self.network, &mut prefix.keys, &mut suffix.keys) {
            (Network::Tensors(model), Keys::Tensors(prefix), Keys::Tensors(suffix)) => {
                let cache = tensors::Cache::Extend { prefix, suffix };
                self.forward_tensors(model, tensors::Group { rows, cache }, seats)
            }
            (Network::Packed(packed), Keys::Packed(prefix), Keys::Packed(suffix)) => {
                let cache = PackedCache::Extend { prefix, suffix };
                self.forward(packed, Group { rows, seats: seats.packed(), cache }, true)
            }
            _ => unreachable!("caches belong to the decoder that made them"),
        }
    }

    /// The logits of states in the order of lanes, rows and tokens: `[M, V]`.
    ///
    /// For one token per row, or one row, where each token has a state of its own.
    ///
    /// # Errors
    ///
    /// When the device fails.
    pub fn logits(&self, hidden: &Hidden, seats: &Seats) -> Result<Vec<f32>, DeviceFailure> {
        match (&self.network, &hidden.states) {
            (Network::Tensors(model), States::Tensors(states)) => hidden::read(self.logits_tensors(model, states, seats)),
            (Network::Packed(packed), States::Packed(states)) => {
                Ok(self.logits_packed(packed, states, seats).to_values(self.config().vocab_size))
            }
            _ => unreachable!("states belong to the decoder that made them"),
        }
    }

    fn logits_packed(&self, packed: &Packed, states: &Grid, seats: &Seats) -> Grid {
        match self.run(Job::Logits { packed, states, seats: seats.packed(), out: Grid::default() }) {
            Job::Logits { out, .. } => out,
            _ => unreachable!("a job stays what it is"),
        }
    }

    /// The logits of [`logits`](Self::logits), for a draw.
    pub(crate) fn predict(&self, hidden: &Hidden, seats: &Seats) -> Predictions {
        match (&self.network, &hidden.states) {
            (Network::Tensors(model), States::Tensors(states)) => {
                Predictions::Far(Box::new(Blocks::new(self.logits_tensors(model, states, seats))))
            }
            (Network::Packed(packed), States::Packed(states)) => Predictions::Near(self.logits_packed(packed, states, seats)),
            _ => unreachable!("states belong to the decoder that made them"),
        }
    }

    /// The likeliest token after each state, in the order of [`logits`](Self::logits), the first of equals: none where a logit is NaN or +∞.
    ///
    /// On a GPU two numbers per state leave the device, and not one per entry of the vocabulary.
    ///
    /// # Errors
    ///
    /// When the device fails.
    pub fn likeliest(&self, hidden: &Hidden, seats: &Seats) -> Result<Vec<Option<TokenId>>, DeviceFailure> {
        match (&self.network, &hidden.states) {
            (Network::Tensors(model), States::Tensors(states)) => hidden::likeliest(self.logits_tensors(model, states, seats)),
            (Network::Packed(packed), States::Packed(states)) => {
                let (logits, vocabulary) = (self.logits_packed(packed, states, seats), self.config().vocab_size);
                Ok((0..logits.rows()).map(|row| first_of_largest(&logits.row(row)[..vocabulary])).collect())
            }
            _ => unreachable!("states belong to the decoder that made them"),
        }
    }

    /// What each lane says of the tokens that follow those of each row: per lane, row and token `[log p, H_∞]` in nats, where token t of
    /// `targets[row]` follows token t of the row, and `H_∞ = logsumexp(z) − max(z)` is the min-entropy of the distribution.
    ///
    /// Two numbers per token leave the device; logits never do, and on a CPU they never exist all at once.
    ///
    /// # Errors
    ///
    /// When the device fails.
    ///
    /// # Panics
    ///
    /// If there are more rows of targets than rows, or more targets than tokens in one.
    pub fn read(&self, hidden: &Hidden, seats: &Seats, targets: &[&[TokenId]]) -> Result<Vec<Vec<Vec<[f32; 2]>>>, DeviceFailure> {
        let places: Vec<usize> = targets
            .iter()
            .enumerate()
            .flat_map(|(row, targets)| (0..targets.len()).map(move |step| hidden.place(row, step)))
            .collect();
        let flat: Vec<TokenId> = targets.concat();
        let count = seats.count();
        let pairs = match (&self.network, &hidden.states) {
            (Network::Tensors(model), States::Tensors(states)) => {
                hidden::read_pairs(model, (**states).clone(), seats.lanes(), &places, &flat)?
            }
            (Network::Packed(packed), States::Packed(states)) => {
                let states = hidden::select(states, count, &places, packed.config().hidden_size);
                packed.read(&states, seats.packed(), &flat.repeat(count))
            }
            _ => unreachable!("states belong to the decoder that made them"),
        };
        let mut pairs = pairs.into_iter();
        let mut row = |targets: &&[TokenId]| pairs.by_ref().take(targets.len()).collect();
        Ok((0..count).map(|_| targets.iter().map(&mut row).collect()).collect())
    }

    /// `w·h + b` for the states of a lane at each `(row, token)` of `at`, and for each `(w, b)`: `[at, heads]`.
    ///
    /// # Errors
    ///
    /// When the device fails.
    ///
    /// # Panics
    ///
    /// If a w is not as wide as the states.
    pub fn project(
        &self,
        hidden: &Hidden,
        seats: &Seats,
        lane: usize,
        at: &[(usize, usize)],
        heads: &[(&[f32], f32)],
    ) -> Result<Vec<f32>, DeviceFailure> {
        let width = self.config().hidden_size;
        assert!(heads.iter().all(|(weight, _)| weight.len() == width), "heads read {width} numbers");
        let places: Vec<usize> = at.iter().map(|&(row, step)| hidden.place(row, step)).collect();
        let lane = (lane, seats.count());
        match &hidden.states {
            States::Tensors(states) => hidden::project_tensors(states, lane, &places, heads),
            States::Packed(states) => Ok(hidden::project_packed(states, lane, &places, heads)),
        }
    }

    /// The number format of its weights.
    #[must_use]
    pub fn weight_format(&self) -> DType {
        match &self.network {
            Network::Tensors(model) => model.weight_format(),
            Network::Packed(packed) => match packed.precision() {
                Precision::F32 => DType::F32,
                Precision::Bf16 => DType::BF16,
                Precision::Int8 => DType::I8,
            },
        }
    }

    /// The number format of keys and values.
    #[must_use]
    pub fn key_format(&self) -> DType {
        match &self.network {
            Network::Tensors(model) => model.key_format(),
            Network::Packed(_) => DType::F32,
        }
    }

    /// The number format of adapters and states.
    #[must_use]
    pub fn state_format(&self) -> DType {
        match &self.network {
            Network::Tensors(model) => model.state_format(),
            Network::Packed(_) => DType::F32,
        }
    }

    /// Bytes of its weights in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.network {
            Network::Tensors(model) => model.bytes(),
            Network::Packed(packed) => packed.bytes(),
        }
    }
}

/// The first of the largest, where none is NaN or +∞.
fn first_of_largest(logits: &[f32]) -> Option<TokenId> {
    are_numbers(logits).then(|| likeliest(logits))
}

/// What cannot fail.
fn never<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(value) => value,
        Err(never) => match never {},
    }
}
