//! The Qwen2 decoder.
//!
//! Rows of a batch are grouped by lane: lane `g` of `G` owns rows `g·N..(g+1)·N`, and every frozen
//! product is one two-dimensional product over all rows; see [`Lanes`] for adapters. The model
//! reads whole sequences, as in training. For inference with a KV cache, see
//! [`Decoder`](crate::decoder::Decoder).

mod attention;
pub(crate) mod initial;
mod layer;
mod mlp;
mod norm;
pub(crate) mod parts;
mod projection;
pub(crate) mod rope;

use burn::{
    module::{Module, Param},
    tensor::{Device, Int, Tensor, module::embedding},
};

pub use attention::{Attention, Pass};
use initial::Initial;
pub use layer::Layer;
pub use mlp::Mlp;
pub use norm::Norm;
pub use projection::Projection;
use projection::adapted;

use crate::{config::Qwen2Config, lora::Lanes};

/// A Qwen2 decoder: embedding, layers, final norm, head.
#[derive(Module, Debug)]
pub struct Qwen2 {
    /// `[V, H]`.
    pub embed_tokens: Param<Tensor<2>>,
    /// The decoder layers.
    pub layers: Vec<Layer>,
    /// The final norm.
    pub norm: Norm,
    /// `[H, V]`; `None` if the head is the embedding.
    pub lm_head: Option<Param<Tensor<2>>>,
    /// Its shape.
    #[module(skip)]
    pub config: Qwen2Config,
}

impl Qwen2 {
    /// Returns random weights: normal with standard deviation 0.02, residual outputs scaled by
    /// `1/√(2·layers)`, biases zero, norms one.
    ///
    /// Draws from the device's generator: call `device.seed` first for reproducible weights.
    #[must_use]
    pub fn init(config: &Qwen2Config, device: &Device) -> Self {
        Self::drawn(config, Initial::from_device(config, device))
    }

    /// Returns random weights that depend on `seed` alone, on every device and machine: uniform,
    /// with the standard deviations of [`init`](Self::init).
    ///
    /// For tests and benchmarks without a checkpoint. O(parameters) on the CPU.
    #[must_use]
    pub fn random(config: &Qwen2Config, seed: u64, device: &Device) -> Self {
        Self::drawn(config, Initial::from_seed(seed, config, device))
    }

    fn drawn(config: &Qwen2Config, initial: Initial<'_>) -> Self {
        let Ok(model) = Self::assemble(config, initial);
        model
    }

    /// Returns the device of the weights.
    #[must_use]
    pub fn device(&self) -> Device {
        self.embed_tokens.val().device()
    }

    /// Runs one forward pass over `R = G·N` rows of `S` tokens each: `[R, S]` to final-norm hidden
    /// states `[R·S, H]`.
    ///
    /// Each row attends to its own tokens only. For logits, see [`logits`](Self::logits).
    ///
    /// # Panics
    ///
    /// If the rows do not divide into the lanes.
    #[must_use]
    pub fn forward(&self, tokens: Tensor<2, Int>, lanes: Lanes<'_>) -> Tensor<2> {
        let [batch, length] = tokens.dims();
        assert_eq!(batch % lanes.count(), 0, "{batch} rows in {} lanes", lanes.count());
        let pass = Pass::new(&self.config, batch, length, &self.device());
        let x = embedding(self.embed_tokens.val(), tokens.clone()).reshape([batch * length, self.config.hidden_size]);
        // The states between layers have the type of the norms, even if matrices are in bf16.
        let mut x = x.cast(self.norm.weight.val().dtype());
        if let Some(delta) = lanes.embedding(tokens, Tensor::matmul) {
            x = x + delta;
        }
        for (index, layer) in self.layers.iter().enumerate() {
            x = layer.forward(x, &pass, lanes.layer(index));
        }
        self.norm.forward(x)
    }

    /// Computes the logits of hidden states, `[M, H]` to `[M, V]`; the M rows divide into the lanes
    /// in order.
    #[must_use]
    pub fn logits(&self, hidden: Tensor<2>, lanes: Lanes<'_>) -> Tensor<2> {
        let head = match &self.lm_head {
            Some(head) => head.val(),
            None => self.embed_tokens.val().transpose(),
        };
        adapted(hidden, head, None, lanes.head())
    }
}
