//! The decoder on a GPU, on Burn's tensors.
//!
//! In decoding, kernel launches are the bottleneck: a kernel that reads a matrix for a few rows
//! takes microseconds, and so does its launch. Therefore, products that read the same input are
//! joined into one, and the steps between two products are one kernel. The keys that rows add
//! follow the context that the rows share, so that one attention kernel covers both.
//!
//! The rows of a pass are ordered by lane, group, token and row: row n of token t of a group of N
//! rows is place `t·N + n` of its lane. Matrices are stored in column-major order.

mod attention;
mod cache;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube;
pub(crate) mod draw;
mod engine;
mod group;
mod layer;
mod operands;
pub(crate) mod ops;
mod recording;
mod shape;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, Weak};

use burn::tensor::{DType, Device, Int, Tensor, TensorData, module::embedding};

use super::engine::Group;
use super::heads::Heads;
use super::rope::Rotations;
use crate::config::Qwen2Config;
use crate::device::{persistent, register_thread};
use crate::lora::{AdapterStack, Lanes, LoraAdapter};
use crate::model::Norm;
use crate::model::parts::ModelParts;
use attention::{PassInput, numbers};
use cache::DevicePrefix;
use group::{join_lanes, split_lanes};
use layer::{FusedLayer, side_by_side};
use ops::{low_rank, multiply_whole, product};

/// A model on Burn's tensors.
#[derive(Debug)]
pub(crate) struct GpuEngine {
    /// `[V, H]`.
    embedding: Tensor<2>,
    layers: Vec<FusedLayer>,
    norm: Norm,
    /// `[H, V]`; `None` if the head is the embedding.
    head: Option<Tensor<2>>,
    config: Qwen2Config,
    /// `[positions, D]`: cosines and sines, for as many positions as were needed so far.
    angles: Mutex<Tensor<2>>,
    /// A number that identifies this engine.
    number: u64,
    /// Whether the device can record passes; empty until it has been tried.
    records: OnceLock<bool>,
    /// Stacks of adapters that are in use.
    stacks: Mutex<Vec<Stacked>>,
}

/// The adapters of a stack, and the stack while it is in use. A weak reference keeps the address of
/// an adapter from being reused.
type Stacked = (Vec<Option<Weak<LoraAdapter>>>, Weak<AdapterStack>);

/// Positions whose angles are computed in advance.
const POSITIONS: usize = 512;

impl GpuEngine {
    /// Prepares a decoder with matrices in `format`, or in the format of the parts.
    pub(crate) fn assemble<P: ModelParts>(
        embedding: Tensor<2>,
        config: &Qwen2Config,
        mut parts: P,
        format: Option<DType>,
    ) -> Result<Self, P::Error> {
        let cast = |matrix: Tensor<2>| match format {
            Some(format) => matrix.cast(format),
            None => matrix,
        };
        let embedding = persistent(cast(embedding));
        let layers = (0..config.num_hidden_layers)
            .map(|index| Ok(FusedLayer::new(parts.layer(index)?, config, cast)))
            .collect::<Result<_, _>>()?;
        let norm = parts.norm()?.persistent();
        let head = parts.head()?.map(|head| side_by_side([cast(head)]));
        let angles = Mutex::new(angles(config, POSITIONS, &embedding.device()));
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            embedding,
            layers,
            norm,
            head,
            config: config.clone(),
            angles,
            number,
            records: OnceLock::new(),
            stacks: Mutex::default(),
        })
    }

    /// Returns the format of the matrices, and of keys and values.
    pub(crate) fn weight_format(&self) -> DType {
        self.embedding.dtype()
    }

    /// Returns the format of adapters and states.
    pub(crate) fn state_format(&self) -> DType {
        self.norm.weight.val().dtype()
    }

    /// Returns an empty prefix for `lanes` lanes with room for `capacity` tokens. The room is
    /// doubled as needed.
    fn prefix_with(&self, lanes: usize, capacity: usize) -> DevicePrefix {
        DevicePrefix::new(&self.config, lanes, capacity, self.weight_format(), &self.embedding.device())
    }

    /// Runs one pass over groups that share their lanes. Returns the final-norm states of each
    /// group, `[G·places, H]`.
    ///
    /// # Panics
    ///
    /// If a prefix has another number of lanes.
    pub(crate) fn forward_all(&self, groups: &mut [Group<'_, Self>]) -> Vec<Tensor<2>> {
        let Some(lanes) = groups.first().map(|group| group.seats.lanes()) else { return Vec::new() };
        register_thread(&self.embedding.device());
        groups.iter_mut().for_each(|group| group.cache.prefix.repeats.meet());
        let positions = groups.iter().map(|group| group.visibility().last() + 1).max().unwrap_or(0);
        let (numbers, angles) = (self.upload_input(groups, lanes), self.angles(positions));
        let states = self.read(&PassInput { lanes, heads: Heads::new(&self.config), numbers, angles, room: None }, groups);
        let places: Vec<usize> = groups.iter().map(Group::places).collect();
        split_lanes(states, lanes.count(), &places)
    }

    /// Copies the tokens and positions of a pass to the device.
    fn upload_input(&self, groups: &[Group<'_, Self>], lanes: Lanes<'_>) -> Tensor<1, Int> {
        Tensor::from_data(&numbers(groups, lanes.count())[..], (&self.embedding.device(), DType::I32))
    }

    /// Returns the angles of at least `positions` positions.
    fn angles(&self, positions: usize) -> Tensor<2> {
        // The table is replaced as a whole, so it is consistent even after a panic.
        let mut known = self.angles.lock().unwrap_or_else(PoisonError::into_inner);
        if known.dims()[0] < positions {
            *known = angles(&self.config, positions, &self.embedding.device());
        }
        known.clone()
    }

    /// Returns the states of a pass, `[G·M, H]`.
    fn read(&self, pass: &PassInput<'_>, groups: &mut [Group<'_, Self>]) -> Tensor<2> {
        let (count, total) = (pass.lanes.count(), groups.iter().map(Group::places).sum::<usize>());
        let tokens = pass.numbers.clone().narrow(0, 0, count * total).reshape([count, total]);
        let x = embedding(self.embedding.clone(), tokens.clone()).reshape([count * total, self.config.hidden_size]);
        let mut x = x.cast(self.state_format());
        if let Some(delta) = pass.lanes.embedding(tokens, product) {
            x = x + delta;
        }
        let mut change = None;
        for (index, layer) in self.layers.iter().enumerate() {
            let next = layer.forward((x, change), index, pass, groups);
            (x, change) = (next.0, Some(next.1));
        }
        ops::add_norm(x, change, &self.norm, self.state_format()).1
    }

    /// Computes logits in f32 for states in the order of lanes: `[M, H]` to `[M, V]`.
    fn head_logits(&self, states: &Tensor<2>, lanes: Lanes<'_>) -> Tensor<2> {
        let head = match &self.head {
            Some(head) => head.clone(),
            // The row-major embedding is the column-major head.
            None => self.embedding.clone().transpose(),
        };
        let logits = multiply_whole(states, &head);
        match lanes.head() {
            None => logits,
            Some(delta) => logits + low_rank(states, delta),
        }
    }

    /// Computes the logits of several states, whose rows divide into the same lanes.
    pub(crate) fn logits_of(&self, states: &[&Tensor<2>], lanes: Lanes<'_>) -> Vec<Tensor<2>> {
        let count = lanes.count();
        let places: Vec<usize> = states.iter().map(|states| states.dims()[0] / count).collect();
        let joined = join_lanes(states.iter().map(|states| (*states).clone()).collect(), count);
        split_lanes(self.head_logits(&joined, lanes), count, &places)
    }
}

/// Returns the bytes of a tensor in memory.
fn bytes<const D: usize>(tensor: &Tensor<D>) -> usize {
    tensor.shape().num_elements() * tensor.dtype().size()
}

/// Returns the cosines, then the sines, of at least `positions` positions.
fn angles(config: &Qwen2Config, positions: usize, device: &Device) -> Tensor<2> {
    let table = Rotations::new(config.head_dim, config.rope_theta).reach(positions);
    let values = table.values().to_vec();
    let positions = values.len() / config.head_dim;
    Tensor::from_data(TensorData::new(values, [positions, config.head_dim]), device)
}
