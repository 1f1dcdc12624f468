//! One decoder layer.

use burn::{module::Module, tensor::Tensor};

use super::{
    attention::{Attention, Pass},
    mlp::Mlp,
    norm::Norm,
    projection::Projection,
};
use crate::{
    config::Qwen2Config,
    lora::{LayerDeltas, Target},
};

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
    /// Assembles a layer from the norms before attention and before the feed-forward layer, and from
    /// the projection of each target.
    pub(crate) fn assemble<E>(
        config: &Qwen2Config,
        [input_layernorm, post_attention_layernorm]: [Norm; 2],
        mut projection: impl FnMut(Target) -> Result<Projection, E>,
    ) -> Result<Self, E> {
        // Seeded weights depend on this order.
        let output = projection(Target::Output)?;
        let attention = [projection(Target::Query)?, projection(Target::Key)?, projection(Target::Value)?, output];
        let mlp =
            Mlp { gate_proj: projection(Target::Gate)?, up_proj: projection(Target::Up)?, down_proj: projection(Target::Down)? };
        Ok(Self { input_layernorm, self_attn: Attention::new(config, attention), post_attention_layernorm, mlp })
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
