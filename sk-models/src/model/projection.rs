//! A linear layer whose weight is stored input-major.

use burn::{
    module::{Module, Param},
    tensor::{Device, Distribution, Tensor, module::linear},
};

use crate::lora::LaneDelta;

/// `y = x·W + b`, with W of shape `[in, out]`.
///
/// The layout is the one in which a row of `x` meets contiguous rows of `W`; files store the transpose.
#[derive(Module, Debug)]
pub struct Projection {
    /// `[in, out]`.
    pub weight: Param<Tensor<2>>,
    /// `[out]`.
    pub bias: Option<Param<Tensor<1>>>,
}

impl Projection {
    /// Normal weights of the given standard deviation and, if asked for, a zero bias.
    #[must_use]
    pub fn random(input: usize, output: usize, bias: bool, std: f64, device: &Device) -> Self {
        Self {
            weight: Param::from_tensor(Tensor::random([input, output], Distribution::Normal(0.0, std), device)),
            bias: bias.then(|| Param::from_tensor(Tensor::zeros([output], device))),
        }
    }

    /// Applies the layer to `[M, in]`, then adds the low-rank term of each row's lane.
    ///
    /// One frozen product serves every lane; see [`LaneDelta::add`].
    #[must_use]
    pub fn forward(&self, x: Tensor<2>, delta: Option<&LaneDelta>) -> Tensor<2> {
        let bias = self.bias.as_ref().map(Param::val);
        match delta {
            None => linear(x, self.weight.val(), bias),
            Some(delta) => {
                let frozen = linear(x.clone(), self.weight.val(), bias);
                delta.add(frozen, x)
            }
        }
    }
}
