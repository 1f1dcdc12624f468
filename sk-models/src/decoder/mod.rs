//! A decoder for inference: what the slots of a scheme run on.
//!
//! On a CPU the weights are packed for the sweeps that read them, and no tensor lies between the layers; on a GPU it is the
//! [`Qwen2`] module on Burn's tensors. Both follow one contract: rows are grouped by lane, one lane per adapter; a [`Prefix`] holds the
//! context of each lane, a [`Suffix`] what each row has added to it.

mod cache;
mod hidden;
mod precision;
mod seats;

use std::sync::{Arc, Mutex, Weak};

use burn::module::Module;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use sk_core::TokenId;

pub use cache::{Prefix, Suffix};
pub use hidden::{DeviceFailure, Hidden};
pub use precision::{Precision, PrecisionError};
pub use seats::Seats;

use cache::Keys;
use hidden::States;

use crate::config::Qwen2Config;
use crate::kernels::is_fused;
use crate::lora::LoraAdapter;
use crate::model::{Cache, Qwen2};
use crate::packed::{Packed, PackedAdapter, PackedCache};

/// A decoder whose weights are ready to be read.
#[derive(Debug)]
pub struct Decoder {
    network: Network,
    /// Adapters that were packed before, for as long as somebody holds them.
    packed: Mutex<Vec<(Weak<LoraAdapter>, Arc<PackedAdapter>)>>,
}

#[derive(Debug)]
enum Network {
    Tensors(Box<Qwen2>),
    Packed(Box<Packed>),
}

impl From<Qwen2> for Decoder {
    /// Prepares a model for inference; see [`Qwen2::prepare`].
    fn from(model: Qwen2) -> Self {
        if is_packed(&model) {
            Self::packed(model, Precision::F32)
        } else {
            Self { network: Network::Tensors(Box::new(model.with_head())), packed: Mutex::default() }
        }
    }
}

/// Whether a model is read from panels: in f32 on a CPU.
fn is_packed(model: &Qwen2) -> bool {
    let weights = model.embed_tokens.val();
    weights.dtype() == DType::F32 && is_fused(&weights.device(), DType::F32)
}

impl Decoder {
    /// Prepares a model for inference with weights of the given precision.
    ///
    /// # Errors
    ///
    /// If the device has no weights of that precision.
    pub fn new(model: Qwen2, precision: Precision) -> Result<Self, PrecisionError> {
        match precision {
            Precision::F32 => Ok(Self::from(model)),
            Precision::Int8 if is_packed(&model) => Ok(Self::packed(model, precision)),
            Precision::Int8 => Err(PrecisionError::Device),
        }
    }

    fn packed(model: Qwen2, precision: Precision) -> Self {
        Self { network: Network::Packed(Box::new(Packed::new(model, precision))), packed: Mutex::default() }
    }

    /// What its weights are kept in.
    #[must_use]
    pub fn precision(&self) -> Precision {
        match &self.network {
            Network::Tensors(_) => Precision::F32,
            Network::Packed(packed) => packed.precision(),
        }
    }

    /// Its shape.
    #[must_use]
    pub fn config(&self) -> &Qwen2Config {
        match &self.network {
            Network::Tensors(model) => &model.config,
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
        match (&self.network, &mut prefix.keys) {
            (Network::Tensors(model), Keys::Tensors(prefix)) => {
                let tokens = token_rows(&vec![tokens; seats.count()], tokens.len(), &model.device());
                Hidden(States::Tensors(Box::new(model.forward(tokens, seats.lanes(), Cache::Prefill(prefix)))))
            }
            (Network::Packed(packed), Keys::Packed(prefix)) => {
                let tokens = tokens.repeat(seats.count());
                Hidden(States::Packed(packed.forward(&tokens, seats.packed(), 1, PackedCache::Prefill(prefix), states)))
            }
            _ => unreachable!("a prefix belongs to the decoder that made it"),
        }
    }

    /// Reads `rows`, the same in every lane, each after the prefix of its lane and what it has of the suffix: the states of
    /// `[lanes · rows · width]` tokens, lanes outermost.
    ///
    /// Shorter rows are filled up to `width`; what comes of the filling is of no use and does no harm.
    ///
    /// # Panics
    ///
    /// If the caches were made for other lanes or rows, a row is longer than `width`, or a token is none of the vocabulary.
    pub fn extend(
        &self,
        rows: &[impl AsRef<[TokenId]>],
        width: usize,
        seats: &Seats,
        prefix: &Prefix,
        suffix: &mut Suffix,
    ) -> Hidden {
        assert_eq!(seats.count(), prefix.lanes(), "one lane of the prefix per seat");
        assert_eq!((seats.count(), rows.len()), (suffix.lanes(), suffix.rows()), "one place in the suffix per row and lane");
        match (&self.network, &prefix.keys, &mut suffix.keys) {
            (Network::Tensors(model), Keys::Tensors(prefix), Keys::Tensors(suffix)) => {
                let rows: Vec<&[TokenId]> = (0..seats.count()).flat_map(|_| rows.iter().map(AsRef::as_ref)).collect();
                let tokens = token_rows(&rows, width, &model.device());
                Hidden(States::Tensors(Box::new(model.forward(tokens, seats.lanes(), Cache::Extend { prefix, suffix }))))
            }
            (Network::Packed(packed), Keys::Packed(prefix), Keys::Packed(suffix)) => {
                let mut tokens = vec![0; rows.len() * width];
                fill(&mut tokens, rows, width, |token| token);
                let tokens = tokens.repeat(seats.count());
                let cache = PackedCache::Extend { prefix, suffix };
                Hidden(States::Packed(packed.forward(&tokens, seats.packed(), rows.len(), cache, true)))
            }
            _ => unreachable!("caches belong to the decoder that made them"),
        }
    }

    /// The logits of states, row by row: `[M, V]`, where the M rows divide into the lanes in order.
    ///
    /// # Errors
    ///
    /// When the device fails.
    pub fn logits(&self, hidden: &Hidden, seats: &Seats) -> Result<Vec<f32>, DeviceFailure> {
        match (&self.network, &hidden.0) {
            (Network::Tensors(model), States::Tensors(hidden)) => hidden::read(model.logits((**hidden).clone(), seats.lanes())),
            (Network::Packed(packed), States::Packed(hidden)) => Ok(packed.logits(hidden, seats.packed())),
            _ => unreachable!("states belong to the decoder that made them"),
        }
    }

    /// What each lane says of `targets` at `places`, rows of a lane's states: per lane and place `[log p, H_∞]` in nats, where
    /// `H_∞ = logsumexp(z) − max(z)` is the min-entropy of the distribution.
    ///
    /// Two numbers per place leave the device; logits never do, and on a CPU they never exist all at once.
    ///
    /// # Errors
    ///
    /// When the device fails.
    ///
    /// # Panics
    ///
    /// If there are not as many targets as places.
    pub fn read(
        &self,
        hidden: &Hidden,
        seats: &Seats,
        places: &[usize],
        targets: &[TokenId],
    ) -> Result<Vec<Vec<[f32; 2]>>, DeviceFailure> {
        assert_eq!(places.len(), targets.len(), "a target for each place");
        let count = seats.count();
        match (&self.network, &hidden.0) {
            (Network::Tensors(model), States::Tensors(hidden)) => {
                hidden::read_pairs(model, (**hidden).clone(), seats.lanes(), places, targets)
            }
            (Network::Packed(packed), States::Packed(hidden)) => {
                let states = hidden::select(hidden, count, places, packed.config().hidden_size);
                let pairs = packed.read(&states, seats.packed(), &targets.repeat(count));
                Ok(if places.is_empty() {
                    vec![Vec::new(); count]
                } else {
                    pairs.chunks_exact(places.len()).map(<[_]>::to_vec).collect()
                })
            }
            _ => unreachable!("states belong to the decoder that made them"),
        }
    }

    /// `w·h + b` for each place of a lane's states and each `(w, b)`: `[places, heads]`.
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
        places: &[usize],
        heads: &[(&[f32], f32)],
    ) -> Result<Vec<f32>, DeviceFailure> {
        let width = self.config().hidden_size;
        assert!(heads.iter().all(|(weight, _)| weight.len() == width), "heads read {width} numbers");
        let lane = (lane, seats.count());
        match &hidden.0 {
            States::Tensors(hidden) => hidden::project_tensors(hidden, lane, places, heads),
            States::Packed(hidden) => Ok(hidden::project_packed(hidden, lane, places, heads)),
        }
    }

    /// Bytes of its weights in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.network {
            Network::Tensors(model) => model.num_params() * model.embed_tokens.val().dtype().size(),
            Network::Packed(packed) => packed.bytes(),
        }
    }
}

/// Rows of tokens as a tensor `[rows, width]`, short rows filled up with token 0 at the end.
fn token_rows(rows: &[impl AsRef<[TokenId]>], width: usize, device: &Device) -> Tensor<2, Int> {
    let mut data = vec![0_i64; rows.len() * width];
    fill(&mut data, rows, width, i64::from);
    Tensor::from_data(TensorData::new(data, [rows.len(), width]), device)
}

fn fill<T>(cells: &mut [T], rows: &[impl AsRef<[TokenId]>], width: usize, cell: impl Fn(TokenId) -> T) {
    for (line, row) in cells.chunks_exact_mut(width.max(1)).zip(rows) {
        let row = row.as_ref();
        assert!(row.len() <= width, "a row of {} tokens in a width of {width}", row.len());
        for (place, &token) in line.iter_mut().zip(row) {
            *place = cell(token);
        }
    }
}
