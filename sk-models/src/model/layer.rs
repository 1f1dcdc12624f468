//! One decoder layer.

use burn::{module::Module, tensor::Tensor};

use super::{
    attention::{Attention, Pass},
    initial::Initial,
    mlp::Mlp,
    norm::Norm,
    projection::Projection,
};
use crate::{config::Qwen2Config, lora::LayerDeltas};

/// `h = x + attention(norm(x))`, then `h + mlp(norm(h))`.
#[derive(Module, Debug)]
pub struct Layer {
    /// Before attention.
    pub input_layernorm: Norm,
    /// Attention.
    pub self_attn: Attention,
    /// Before the feed-forward layer.
    pub post_attention_layernorm: Norm,
    /// The feed-forward layer.
    pub mlp: Mlp,
}

impl Layer {
    pub(super) fn initial(config: &Qwen2Config, initial: &mut Initial<'_>) -> Self {
        let device = initial.device;
        let norm = || Norm::ones(config.hidden_size, config.rms_norm_eps, device);
        Self {
            input_layernorm: norm(),
            self_attn: Attention::initial(config, initial),
            post_attention_layernorm: norm(),
            mlp: Mlp::initial(config, initial),
        }
    }

    /// Returns the linear layers, in the order of the forward pass.
    pub(super) fn projections_mut(&mut self) -> [&mut Projection; 7] {
        let (attention, mlp) = (&mut self.self_attn, &mut self.mlp);
        [
            &mut attention.q_proj,
            &mut attention.k_proj,
            &mut attention.v_proj,
            &mut attention.o_proj,
            &mut mlp.gate_proj,
            &mut mlp.up_proj,
            &mut mlp.down_proj,
        ]
    }

    /// Maps `[G·N·S, H]` to `[G·N·S, H]`.
    #[must_use]
    pub fn forward(&self, x: Tensor<2>, pass: &Pass, deltas: Option<&LayerDeltas>) -> Tensor<2> {
        let mixed = self.self_attn.forward(self.input_layernorm.forward(x.clone()), pass, deltas);
        let x = x + mixed;
        let inner = self.mlp.forward(self.post_attention_layernorm.forward(x.clone()), deltas);
        x + inner
    }
}
