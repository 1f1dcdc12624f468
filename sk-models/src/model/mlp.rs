//! The gated feed-forward layer.

use burn::{module::Module, tensor::Tensor};

use super::projection::Projection;
use crate::{
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
    /// Maps `[M, H]` to `[M, H]`.
    #[must_use]
    pub fn forward(&self, x: Tensor<2>, deltas: Option<&LayerDeltas>) -> Tensor<2> {
        let delta = |target| deltas.and_then(|deltas| deltas.get(target));
        let gate = self.gate_proj.forward(x.clone(), delta(Target::Gate).as_ref());
        let up = self.up_proj.forward(x, delta(Target::Up).as_ref());
        self.down_proj.forward(swiglu(gate, up), delta(Target::Down).as_ref())
    }
}
