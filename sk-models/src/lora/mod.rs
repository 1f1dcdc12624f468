//! Low-rank adapters, and stacks of adapters for one pass.
//!
//! An adapter adds `s·(x·A)·B` to the output of a frozen linear layer (Hu et al. 2022). The rows of
//! a batch are grouped by lane, so two batched products apply a different adapter to each group,
//! for any number of adapters.

use std::sync::atomic::{AtomicU64, Ordering};

use burn::tensor::{Device, Int, Tensor};
use thiserror::Error;

mod random;
mod soup;

pub use soup::{MergeError, merge};

use crate::config::Qwen2Config;
use crate::device::persistent;

/// A linear layer of a decoder layer that an adapter can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// `self_attn.q_proj`
    Query,
    /// `self_attn.k_proj`
    Key,
    /// `self_attn.v_proj`
    Value,
    /// `self_attn.o_proj`
    Output,
    /// `mlp.gate_proj`
    Gate,
    /// `mlp.up_proj`
    Up,
    /// `mlp.down_proj`
    Down,
}

impl Target {
    /// Every target, in the order of the forward pass.
    pub const ALL: [Self; 7] = [Self::Query, Self::Key, Self::Value, Self::Output, Self::Gate, Self::Up, Self::Down];

    /// Returns the module name in PEFT's `target_modules`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Query => "q_proj",
            Self::Key => "k_proj",
            Self::Value => "v_proj",
            Self::Output => "o_proj",
            Self::Gate => "gate_proj",
            Self::Up => "up_proj",
            Self::Down => "down_proj",
        }
    }

    /// Returns the path inside a layer.
    #[must_use]
    pub fn path(self) -> String {
        let parent = match self {
            Self::Query | Self::Key | Self::Value | Self::Output => "self_attn",
            Self::Gate | Self::Up | Self::Down => "mlp",
        };
        format!("{parent}.{}", self.name())
    }

    /// Returns whether the frozen layer has a bias, as those of queries, keys and values do.
    pub(crate) fn has_bias(self) -> bool {
        matches!(self, Self::Query | Self::Key | Self::Value)
    }

    /// Returns the input and output width of the frozen layer.
    #[must_use]
    pub fn dims(self, config: &Qwen2Config) -> (usize, usize) {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        match self {
            Self::Query => (hidden, config.query_size()),
            Self::Key | Self::Value => (hidden, config.key_value_size()),
            Self::Output => (config.query_size(), hidden),
            Self::Gate | Self::Up => (hidden, inner),
            Self::Down => (inner, hidden),
        }
    }
}

/// The inputs of a layer's linear layers. Targets that share an input are stored side by side.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reads {
    /// The normalised state, before attention.
    State,
    /// The output of attention.
    Mixed,
    /// The normalised state, before the feed-forward layers.
    Between,
    /// The output of the gate.
    Gated,
}

impl Reads {
    const ALL: [Self; 4] = [Self::State, Self::Mixed, Self::Between, Self::Gated];

    /// Returns the targets that read this input.
    fn targets(self) -> &'static [Target] {
        match self {
            Self::State => &[Target::Query, Target::Key, Target::Value],
            Self::Mixed => &[Target::Output],
            Self::Between => &[Target::Gate, Target::Up],
            Self::Gated => &[Target::Down],
        }
    }
}

/// `s·A·B`: the low-rank update of a linear layer.
#[derive(Debug, Clone)]
pub struct LowRank {
    /// `[in, r]`; for the embedding `[V, r]`.
    pub a: Tensor<2>,
    /// `[r, out]`.
    pub b: Tensor<2>,
    /// The factor s, `α/r` in the usual parametrisation.
    pub scale: f64,
}

impl LowRank {
    /// Returns the rank r.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.a.dims()[1]
    }

    /// Checks the shapes of the matrices of a layer with these widths. Errors name the adapter by
    /// its index.
    pub(crate) fn check(&self, adapter: usize, module: &str, (input, output): (usize, usize)) -> Result<(), AdapterError> {
        let (a, b, rank) = (self.a.dims(), self.b.dims(), self.rank());
        if a == [input, rank] && b == [rank, output] {
            return Ok(());
        }
        Err(AdapterError::Shape { adapter, module: module.to_owned(), a, b, input, output })
    }
}

/// The low-rank updates of one decoder layer.
#[derive(Debug, Clone, Default)]
pub struct LayerAdapter {
    targets: [Option<LowRank>; Target::ALL.len()],
}

impl LayerAdapter {
    /// Returns the update of a target.
    #[must_use]
    pub fn get(&self, target: Target) -> Option<&LowRank> {
        self.targets[target as usize].as_ref()
    }

    /// Sets the update of a target.
    pub fn set(&mut self, target: Target, delta: LowRank) {
        self.targets[target as usize] = Some(delta);
    }
}

/// A low-rank adapter of a whole decoder.
#[derive(Debug, Clone, Default)]
pub struct LoraAdapter {
    /// One entry per decoder layer.
    pub layers: Vec<LayerAdapter>,
    /// The update of the embedding.
    pub embed_tokens: Option<LowRank>,
    /// The update of the head.
    pub lm_head: Option<LowRank>,
}

impl LoraAdapter {
    /// Returns an adapter without updates.
    #[must_use]
    pub fn empty(config: &Qwen2Config) -> Self {
        Self { layers: vec![LayerAdapter::default(); config.num_hidden_layers], embed_tokens: None, lm_head: None }
    }

    /// Returns the number of entries of all matrices.
    #[must_use]
    pub fn parameters(&self) -> usize {
        let matrices = self.updates().flat_map(|update| [&update.a, &update.b]);
        matrices.map(|matrix| matrix.dims().iter().product::<usize>()).sum()
    }

    /// Returns the updates of all layers, then those of the embedding and the head.
    pub(crate) fn updates(&self) -> impl Iterator<Item = &LowRank> {
        let layers = self.layers.iter().flat_map(|layer| &layer.targets).flatten();
        layers.chain(&self.embed_tokens).chain(&self.lm_head)
    }
}

/// An adapter that does not fit the decoder.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum AdapterError {
    /// Another number of layers.
    #[error("adapter {adapter} has {found} layers, the model {expected}")]
    Layers { adapter: usize, found: usize, expected: usize },
    /// A matrix of another shape.
    #[error("adapter {adapter}, {module}: A is {a:?} and B {b:?}, but the layer maps {input} to {output}")]
    Shape { adapter: usize, module: String, a: [usize; 2], b: [usize; 2], input: usize, output: usize },
}

/// The matrices of every lane for targets that share an input. Ranks are padded with zeros to the
/// largest.
#[derive(Debug, Clone)]
pub struct LaneDelta {
    /// `[G, in, P·r]`: the matrices A of P targets side by side.
    pub(crate) a: Tensor<3>,
    /// `[G, r, Σ out]`: the matrices B side by side, multiplied by the scale.
    pub(crate) b: Tensor<3>,
    /// The output width of each target.
    pub(crate) widths: Vec<usize>,
}

impl LaneDelta {
    /// Returns each lane's update for `x`: `[M, in]` to `[M, Σ out]`, rows grouped by lane.
    pub(crate) fn update(&self, x: Tensor<2>) -> Tensor<2> {
        let [lanes, rank, output] = self.b.dims();
        let [all, input] = x.dims();
        let low = x.reshape([lanes, all / lanes, input]).matmul(self.a.clone());
        let mut start = 0;
        let change = |(part, &width): (usize, &usize)| {
            let (low, b) = (low.clone().narrow(2, part * rank, rank), self.b.clone().narrow(2, start, width));
            start += width;
            low.matmul(b).reshape([all, width])
        };
        let changes = self.widths.iter().enumerate().map(change).collect();
        joined(changes, 1).reshape([all, output])
    }

    /// Returns the update of one target.
    fn part(&self, part: usize) -> Self {
        let rank = self.b.dims()[1];
        let start = self.widths[..part].iter().sum();
        let width = self.widths[part];
        Self { a: self.a.clone().narrow(2, part * rank, rank), b: self.b.clone().narrow(2, start, width), widths: vec![width] }
    }

    /// Stacks the entries of each part, one per lane; `None` if no lane has any.
    fn stack(parts: &[TargetEntries<'_>], input: usize, device: &Device) -> Result<Option<Self>, AdapterError> {
        let Some(rank) = parts.iter().flat_map(|part| part.entries.iter().flatten()).map(|entry| entry.rank()).max() else {
            return Ok(None);
        };
        let lanes = parts[0].entries.len();
        let widths: Vec<usize> = parts.iter().map(|part| part.output).collect();
        let mut a = Tensor::zeros([lanes, input, parts.len() * rank], device);
        let mut b = Tensor::zeros([lanes, rank, widths.iter().sum()], device);
        let mut start = 0;
        for (index, TargetEntries { module, entries, output }) in parts.iter().enumerate() {
            for (lane, entry) in entries.iter().enumerate() {
                let Some(entry) = entry else { continue };
                entry.check(lane, module, (input, *output))?;
                let (own, from) = (entry.rank(), index * rank);
                let (down, up) = (entry.a.clone(), entry.b.clone().mul_scalar(entry.scale));
                a = a.slice_assign([lane..lane + 1, 0..input, from..from + own], down.unsqueeze());
                b = b.slice_assign([lane..lane + 1, 0..own, start..start + output], up.unsqueeze());
            }
            start += output;
        }
        Ok(Some(Self { a: persistent(a), b: persistent(b), widths }))
    }
}

/// One target of a [`LaneDelta`] under construction.
struct TargetEntries<'a> {
    /// The module name in errors.
    module: String,
    /// One per lane.
    entries: Vec<Option<&'a LowRank>>,
    output: usize,
}

/// Concatenates tensors along a dimension. A single tensor is not copied.
fn joined<const D: usize>(mut tensors: Vec<Tensor<D>>, dim: usize) -> Tensor<D> {
    if tensors.len() == 1 { tensors.remove(0) } else { Tensor::cat(tensors, dim) }
}

/// The low-rank updates of one decoder layer for every lane.
#[derive(Debug, Clone, Default)]
pub struct LayerDeltas {
    changes: [Option<LaneDelta>; Reads::ALL.len()],
    /// Whether any lane changes the target.
    changed: [bool; Target::ALL.len()],
}

impl LayerDeltas {
    /// Returns the update of a target, or `None` if no lane has one.
    #[must_use]
    pub fn get(&self, target: Target) -> Option<LaneDelta> {
        let reads = Reads::ALL.into_iter().find(|reads| reads.targets().contains(&target))?;
        let part = reads.targets().iter().position(|other| *other == target)?;
        self.of(reads).filter(|_| self.changed[target as usize]).map(|delta| delta.part(part))
    }

    /// Returns the updates of all targets with this input, side by side, with zeros for targets
    /// without one, or `None` if there are none.
    pub(crate) fn of(&self, reads: Reads) -> Option<&LaneDelta> {
        self.changes[reads as usize].as_ref()
    }

    /// Stacks layer `index` of every lane's adapter.
    fn stack(
        config: &Qwen2Config,
        adapters: &[Option<&LoraAdapter>],
        index: usize,
        device: &Device,
    ) -> Result<Self, AdapterError> {
        let mut deltas = Self::default();
        for reads in Reads::ALL {
            let part = |target: &Target| TargetEntries {
                module: format!("layers.{index}.{}", target.path()),
                entries: adapters.iter().map(|entry| entry.and_then(|adapter| adapter.layers[index].get(*target))).collect(),
                output: target.dims(config).1,
            };
            let parts: Vec<TargetEntries<'_>> = reads.targets().iter().map(part).collect();
            for (target, part) in reads.targets().iter().zip(&parts) {
                deltas.changed[*target as usize] = part.entries.iter().any(Option::is_some);
            }
            let input = reads.targets()[0].dims(config).0;
            deltas.changes[reads as usize] = LaneDelta::stack(&parts, input, device)?;
        }
        Ok(deltas)
    }
}

/// Adapters of several lanes, stacked per layer and target. A lane without an adapter is the
/// backbone.
#[derive(Debug, Clone)]
pub struct AdapterStack {
    lanes: usize,
    layers: Vec<LayerDeltas>,
    embed_tokens: Option<LaneDelta>,
    lm_head: Option<LaneDelta>,
    /// A number that identifies the stack and its copies.
    number: u64,
}

impl AdapterStack {
    /// Stacks the given adapters, one per lane.
    ///
    /// Costs `O(G·r·(in + out))` per layer and target, with r the largest rank.
    ///
    /// # Errors
    ///
    /// If an adapter was made for another shape.
    ///
    /// # Panics
    ///
    /// If there is no lane.
    pub fn new(config: &Qwen2Config, adapters: &[Option<&LoraAdapter>], device: &Device) -> Result<Self, AdapterError> {
        assert!(!adapters.is_empty(), "a stack needs at least one lane");
        for (adapter, entry) in adapters.iter().enumerate() {
            if let Some(entry) = entry
                && entry.layers.len() != config.num_hidden_layers
            {
                return Err(AdapterError::Layers { adapter, found: entry.layers.len(), expected: config.num_hidden_layers });
            }
        }
        // Zero stands for the backbone without a stack.
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let layers = (0..config.num_hidden_layers).map(|index| LayerDeltas::stack(config, adapters, index, device));
        let layers = layers.collect::<Result<_, _>>()?;
        let whole = |module: &str, of: fn(&LoraAdapter) -> Option<&LowRank>, (input, output)| {
            let entries = adapters.iter().map(|entry| entry.and_then(of)).collect();
            LaneDelta::stack(&[TargetEntries { module: module.to_owned(), entries, output }], input, device)
        };
        let (vocab, hidden) = (config.vocab_size, config.hidden_size);
        Ok(Self {
            lanes: adapters.len(),
            layers,
            embed_tokens: whole("embed_tokens", |adapter| adapter.embed_tokens.as_ref(), (vocab, hidden))?,
            lm_head: whole("lm_head", |adapter| adapter.lm_head.as_ref(), (hidden, vocab))?,
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// Returns the number of lanes.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.lanes
    }
}

/// The lanes of a forward pass and their adapters.
#[derive(Debug, Clone, Copy)]
pub struct Lanes<'a> {
    stack: Option<&'a AdapterStack>,
}

impl<'a> Lanes<'a> {
    /// Returns one lane, the backbone without an adapter.
    #[must_use]
    pub fn backbone() -> Self {
        Self { stack: None }
    }

    /// Returns the lanes of a stack.
    #[must_use]
    pub fn of(stack: &'a AdapterStack) -> Self {
        Self { stack: Some(stack) }
    }

    /// Returns the number of lanes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.stack.map_or(1, AdapterStack::lanes)
    }

    /// Returns the number of the stack; zero for the backbone alone.
    pub(crate) fn number(&self) -> u64 {
        self.stack.map_or(0, |stack| stack.number)
    }

    pub(crate) fn layer(&self, index: usize) -> Option<&'a LayerDeltas> {
        self.stack.map(|stack| &stack.layers[index])
    }

    pub(crate) fn head(&self) -> Option<&'a LaneDelta> {
        self.stack.and_then(|stack| stack.lm_head.as_ref())
    }

    /// Computes the update of the embeddings of `[G·N, S]` tokens, `[G·N·S, H]`. `product`
    /// multiplies matrices.
    pub(crate) fn embedding(
        &self,
        tokens: Tensor<2, Int>,
        product: impl Fn(Tensor<4>, Tensor<4>) -> Tensor<4>,
    ) -> Option<Tensor<2>> {
        let delta = self.stack?.embed_tokens.as_ref()?;
        let [lanes, vocab, rank] = delta.a.dims();
        let [batch, length] = tokens.dims();
        let per_lane = batch * length / lanes;
        let device = tokens.device();
        // Row t of lane g is row g·V + t of the concatenated tables.
        let offset = Tensor::<1, Int>::arange(0..lanes as i64, &device)
            .mul_scalar(vocab as i64)
            .reshape([lanes, 1])
            .expand([lanes, per_lane]);
        let index = (tokens.reshape([lanes, per_lane]) + offset).reshape([batch * length]);
        let low = delta.a.clone().reshape([lanes * vocab, rank]).select(0, index);
        let hidden = delta.b.dims()[2];
        let change = product(low.reshape([1, lanes, per_lane, rank]), delta.b.clone().unsqueeze());
        Some(change.reshape([batch * length, hidden]))
    }
}
