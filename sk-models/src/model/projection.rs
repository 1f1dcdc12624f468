//! A linear layer whose weight is stored input-major.

use burn::{
    module::{Module, Param},
    tensor::Tensor,
};

use crate::kernels::affine;
use crate::lora::LaneDelta;

/// `y = x·W + b`, with W of shape `[in, out]`.
///
/// Files store the transpose. A frozen W may be in bf16 where x is in f32.
#[derive(Module, Debug)]
pub struct Projection {
    /// `[in, out]`.
    pub weight: Param<Tensor<2>>,
    /// `[out]`.
    pub bias: Option<Param<Tensor<1>>>,
}

impl Projection {
    /// Returns a layer with weights `[in, out]` and, if given, a bias `[out]`.
    #[must_use]
    pub fn new(weight: Tensor<2>, bias: Option<Tensor<1>>) -> Self {
        Self { weight: Param::from_tensor(weight), bias: bias.map(Param::from_tensor) }
    }

    /// Applies the layer to `[M, in]`, then adds the low-rank term of each row's lane.
    ///
    /// One frozen product serves every lane.
    #[must_use]
    pub fn forward(&self, x: Tensor<2>, delta: Option<&LaneDelta>) -> Tensor<2> {
        adapted(x, self.weight.val(), self.bias.as_ref().map(Param::val), delta)
    }
}

/// Computes `x·W + b` and adds the low-rank term of each row's lane.
pub(super) fn adapted(x: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<1>>, delta: Option<&LaneDelta>) -> Tensor<2> {
    match delta {
        None => affine(x, weight, bias),
        Some(delta) => affine(x.clone(), weight, bias) + delta.update(x),
    }
}
