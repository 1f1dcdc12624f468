//! Low-rank adapters, and several of them stacked so that one pass serves all.
//!
//! An adapter adds `s·(x·A)·B` to the output of a frozen linear layer (Hu et al. 2022). A batch whose rows are grouped
//! by lane applies a different adapter to each group in two batched products, whatever the number of adapters.

use std::sync::atomic::{AtomicU64, Ordering};

use burn::tensor::{Device, Int, Tensor};
use thiserror::Error;

mod random;
mod soup;

pub use soup::{Merge, MergeError};

use crate::config::Qwen2Config;
use crate::device::settled;

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

    /// Its module name, as PEFT's `target_modules` lists it.
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

    /// Its path inside a layer.
    #[must_use]
    pub fn path(self) -> String {
        let parent = match self {
            Self::Query | Self::Key | Self::Value | Self::Output => "self_attn",
            Self::Gate | Self::Up | Self::Down => "mlp",
        };
        format!("{parent}.{}", self.name())
    }

    /// The target with the given module name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.name() == name)
    }

    /// Input and output width of the frozen layer.
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

/// `s·A·B`: a low-rank change of one linear layer.
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
    /// The rank r.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.a.dims()[1]
    }
}

/// The changes of one decoder layer.
#[derive(Debug, Clone, Default)]
pub struct LayerAdapter {
    targets: [Option<LowRank>; Target::ALL.len()],
}

impl LayerAdapter {
    /// The change of a target.
    #[must_use]
    pub fn get(&self, target: Target) -> Option<&LowRank> {
        self.targets[target as usize].as_ref()
    }

    /// Sets the change of a target.
    pub fn set(&mut self, target: Target, delta: LowRank) {
        self.targets[target as usize] = Some(delta);
    }
}

/// A low-rank adapter of a whole decoder.
#[derive(Debug, Clone, Default)]
pub struct LoraAdapter {
    /// One entry per decoder layer.
    pub layers: Vec<LayerAdapter>,
    /// The change of the embedding.
    pub embed_tokens: Option<LowRank>,
    /// The change of the head.
    pub lm_head: Option<LowRank>,
}

impl LoraAdapter {
    /// An adapter that changes nothing.
    #[must_use]
    pub fn empty(config: &Qwen2Config) -> Self {
        Self { layers: vec![LayerAdapter::default(); config.num_hidden_layers], embed_tokens: None, lm_head: None }
    }

    /// Numbers of all its matrices.
    #[must_use]
    pub fn parameters(&self) -> usize {
        let layers = self.layers.iter().flat_map(|layer| &layer.targets).flatten();
        let count =
            |delta: &LowRank| [&delta.a, &delta.b].iter().map(|matrix| matrix.dims().iter().product::<usize>()).sum::<usize>();
        layers.chain(&self.embed_tokens).chain(&self.lm_head).map(count).sum()
    }
}

/// An adapter does not fit the decoder it is stacked for.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AdapterError {
    /// Another number of layers.
    #[error("adapter {adapter} has {found} layers, the model {expected}")]
    Layers {
        /// Index of the adapter.
        adapter: usize,
        /// Its layers.
        found: usize,
        /// The model's.
        expected: usize,
    },
    /// A matrix of another shape.
    #[error("adapter {adapter}, {module}: A is {a:?} and B {b:?}, but the layer maps {input} to {output}")]
    Shape {
        /// Index of the adapter.
        adapter: usize,
        /// The layer.
        module: String,
        /// Shape of A.
        a: [usize; 2],
        /// Shape of B.
        b: [usize; 2],
        /// Input width of the layer.
        input: usize,
        /// Output width of the layer.
        output: usize,
    },
}

/// One target's matrices for every lane, ranks padded with zeros to the largest.
#[derive(Debug, Clone)]
pub struct LaneDelta {
    /// `[G, in, r]`.
    a: Tensor<3>,
    /// `[G, r, out]`, the scale multiplied in.
    b: Tensor<3>,
}

impl LaneDelta {
    /// Adds each lane's change of `x` to `frozen`: `[M, in]` and `[M, out]`, rows grouped by lane.
    #[must_use]
    pub fn add(&self, frozen: Tensor<2>, x: Tensor<2>) -> Tensor<2> {
        frozen + self.change(x, 1, Tensor::matmul)
    }

    /// Each lane's change of `x`: `[M, in]` to `[M, out]`, where the sums over `in` are taken in so many pieces, which divide it, and
    /// matrices are multiplied by `product`.
    ///
    /// A product with r columns has little that can be computed side by side; its pieces can be.
    pub(crate) fn change(&self, x: Tensor<2>, pieces: usize, product: impl Fn(Tensor<4>, Tensor<4>) -> Tensor<4>) -> Tensor<2> {
        let [lanes, input, rank] = self.a.dims();
        let [_, _, output] = self.b.dims();
        let total = x.dims()[0];
        let (rows, width) = (total / lanes, input / pieces);
        let x = x.reshape([lanes, rows, pieces, width]).swap_dims(1, 2);
        let low = product(x, self.a.clone().reshape([lanes, pieces, width, rank]));
        let low = if pieces == 1 { low } else { low.sum_dim(1) };
        product(low, self.b.clone().reshape([lanes, 1, rank, output])).reshape([total, output])
    }

    /// Width of what it changes.
    pub(crate) fn input(&self) -> usize {
        self.a.dims()[1]
    }

    fn lanes(&self) -> usize {
        self.a.dims()[0]
    }

    /// Stacks one entry per lane; none if no lane has one.
    fn stack(
        module: &str,
        entries: &[Option<&LowRank>],
        (input, output): (usize, usize),
        device: &Device,
    ) -> Result<Option<Self>, AdapterError> {
        let Some(rank) = entries.iter().flatten().map(|entry| entry.rank()).max() else {
            return Ok(None);
        };
        let mut a = Vec::with_capacity(entries.len());
        let mut b = Vec::with_capacity(entries.len());
        for (adapter, entry) in entries.iter().enumerate() {
            let Some(entry) = entry else {
                a.push(Tensor::zeros([1, input, rank], device));
                b.push(Tensor::zeros([1, rank, output], device));
                continue;
            };
            let own = entry.rank();
            if entry.a.dims() != [input, own] || entry.b.dims() != [own, output] {
                return Err(AdapterError::Shape {
                    adapter,
                    module: module.to_owned(),
                    a: entry.a.dims(),
                    b: entry.b.dims(),
                    input,
                    output,
                });
            }
            let (mut down, mut up) = (entry.a.clone(), entry.b.clone().mul_scalar(entry.scale));
            if own < rank {
                down = Tensor::cat(vec![down, Tensor::zeros([input, rank - own], device)], 1);
                up = Tensor::cat(vec![up, Tensor::zeros([rank - own, output], device)], 0);
            }
            a.push(down.unsqueeze::<3>());
            b.push(up.unsqueeze::<3>());
        }
        let join = |mut parts: Vec<Tensor<3>>| settled(if parts.len() == 1 { parts.remove(0) } else { Tensor::cat(parts, 0) });
        Ok(Some(Self { a: join(a), b: join(b) }))
    }
}

/// The changes of one decoder layer for every lane.
#[derive(Debug, Clone, Default)]
pub struct LayerDeltas {
    targets: [Option<LaneDelta>; Target::ALL.len()],
}

impl LayerDeltas {
    /// The change of a target.
    #[must_use]
    pub fn get(&self, target: Target) -> Option<&LaneDelta> {
        self.targets[target as usize].as_ref()
    }
}

/// Adapters of several lanes, stacked per layer and target. A lane without an adapter is the backbone.
#[derive(Debug, Clone)]
pub struct AdapterStack {
    lanes: usize,
    layers: Vec<LayerDeltas>,
    embed_tokens: Option<LaneDelta>,
    lm_head: Option<LaneDelta>,
    /// By which it is told from others; that of a copy is the same.
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
        // None is that of the backbone alone.
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let mut layers = Vec::with_capacity(config.num_hidden_layers);
        for index in 0..config.num_hidden_layers {
            let mut deltas = LayerDeltas::default();
            for target in Target::ALL {
                let entries: Vec<_> = adapters.iter().map(|entry| entry.and_then(|e| e.layers[index].get(target))).collect();
                let module = format!("layers.{index}.{}", target.path());
                deltas.targets[target as usize] = LaneDelta::stack(&module, &entries, target.dims(config), device)?;
            }
            layers.push(deltas);
        }
        let embed: Vec<_> = adapters.iter().map(|entry| entry.and_then(|e| e.embed_tokens.as_ref())).collect();
        let head: Vec<_> = adapters.iter().map(|entry| entry.and_then(|e| e.lm_head.as_ref())).collect();
        let (vocab, hidden) = (config.vocab_size, config.hidden_size);
        Ok(Self {
            lanes: adapters.len(),
            layers,
            embed_tokens: LaneDelta::stack("embed_tokens", &embed, (vocab, hidden), device)?,
            lm_head: LaneDelta::stack("lm_head", &head, (hidden, vocab), device)?,
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// Lanes.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.lanes
    }
}

/// The lanes of a forward pass: how many, and which adapter each runs under.
#[derive(Debug, Clone, Copy)]
pub struct Lanes<'a> {
    stack: Option<&'a AdapterStack>,
}

impl<'a> Lanes<'a> {
    /// One lane, the backbone itself.
    #[must_use]
    pub fn backbone() -> Self {
        Self { stack: None }
    }

    /// The lanes of a stack.
    #[must_use]
    pub fn of(stack: &'a AdapterStack) -> Self {
        Self { stack: Some(stack) }
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.stack.map_or(1, AdapterStack::lanes)
    }

    /// Where the stack lies; zero for the backbone alone.
    pub(crate) fn address(&self) -> usize {
        self.stack.map_or(0, |stack| std::ptr::from_ref(stack).addr())
    }

    /// The number of the stack; zero for the backbone alone.
    pub(crate) fn number(&self) -> u64 {
        self.stack.map_or(0, |stack| stack.number)
    }

    pub(crate) fn layer(&self, index: usize) -> Option<&'a LayerDeltas> {
        self.stack.map(|stack| &stack.layers[index])
    }

    pub(crate) fn head(&self) -> Option<&'a LaneDelta> {
        self.stack.and_then(|stack| stack.lm_head.as_ref())
    }

    /// The change of the embeddings of `[G·N, S]` tokens, `[G·N·S, H]`, where matrices are multiplied by `product`.
    pub(crate) fn embedding(
        &self,
        tokens: Tensor<2, Int>,
        product: impl Fn(Tensor<4>, Tensor<4>) -> Tensor<4>,
    ) -> Option<Tensor<2>> {
        let delta = self.stack?.embed_tokens.as_ref()?;
        let lanes = delta.lanes();
        let [_, vocab, rank] = delta.a.dims();
        let [batch, length] = tokens.dims();
        let per_lane = batch * length / lanes;
        let device = tokens.device();
        // Row t of lane g is row g·V + t of the tables laid end to end.
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
