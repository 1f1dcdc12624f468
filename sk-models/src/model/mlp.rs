//! The gated feed-forward layer.

use burn::{
    module::Module,
    tensor::{Device, Tensor},
};

use super::projection::Projection;
use crate::{
    config::Qwen2Config,
    kernels::swiglu,
    lora::{LayerDeltas, Target},
};

/// `down(silu(gate(x)) ⊙ up(x))`.
#[derive(Module, Debug)]
pub struct Mlp {
    /// `[H, F]`.
    pub gate_proj: Projection,
    /// `[H, F]`.
    pub up_proj: Projection,
    /// `[F, H]`.
    pub down_proj: Projection,
}

impl Mlp {
    pub(super) fn random(config: &Qwen2Config, std: f64, out_std: f64, device: &Device) -> Self {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        Self {
            gate_proj: Projection::random(hidden, inner, false, std, device),
            up_proj: Projection::random(hidden, inner, false, std, device),
            down_proj: Projection::random(inner, hidden, false, out_std, device),
        }
    }

    /// Maps `[M, H]` to `[M, H]`.
    #[must_use]
    pub fn forward(&self, x: Tensor<2>, deltas: Option<&LayerDeltas>) -> Tensor<2> {
        let delta = |target| deltas.and_then(|deltas| deltas.get(target));
        let gate = self.gate_proj.forward(x.clone(), delta(Target::Gate));
        let up = self.up_proj.forward(x, delta(Target::Up));
        self.down_proj.forward(swiglu(gate, up), delta(Target::Down))
    }
}
