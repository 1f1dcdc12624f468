//! Root-mean-square normalisation.

use burn::{
    module::{Module, Param},
    tensor::{Device, Tensor},
};

use crate::device::persistent;
use crate::kernels::rms_norm;

/// `y = x / sqrt(mean(x²) + ε) · w`, the mean over the last axis.
#[derive(Module, Debug)]
pub struct Norm {
    /// `[H]`.
    pub weight: Param<Tensor<1>>,
    epsilon: f64,
}

impl Norm {
    /// Returns a norm with the given weights `[H]`.
    #[must_use]
    pub fn new(weight: Tensor<1>, epsilon: f64) -> Self {
        Self { weight: Param::from_tensor(weight), epsilon }
    }

    /// Returns a norm with unit weights.
    #[must_use]
    pub fn ones(size: usize, epsilon: f64, device: &Device) -> Self {
        Self::new(Tensor::ones([size], device), epsilon)
    }

    /// Returns the norm with its weights [`persistent`].
    pub(crate) fn persistent(self) -> Self {
        Self { weight: self.weight.map(persistent), ..self }
    }

    /// Returns ε.
    #[must_use]
    pub fn epsilon(&self) -> f64 {
        self.epsilon
    }

    /// Normalises each row of `[M, H]`.
    #[must_use]
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        rms_norm(x, self.weight.val(), self.epsilon)
    }
}
