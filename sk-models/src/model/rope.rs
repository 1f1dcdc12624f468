//! Rotary position embedding, in Qwen's half-rotation form.

use burn::tensor::{Device, Tensor, TensorData};

/// Cosines, sines and the quarter-turn matrix for a run of consecutive positions.
///
/// With `d` the head width and `θ_j = base^(−2j/d)`, component `j < d/2` and its partner `j + d/2`
/// are rotated by the angle `p·θ_j` at position `p`: `y = x ⊙ cos + rot(x) ⊙ sin`, where `rot(x) =
/// [−x₂, x₁]` for `x = [x₁, x₂]`. `rot` is applied as a product with a signed permutation matrix.
/// This is exact and takes one kernel; slicing and concatenating would take four.
#[derive(Debug, Clone)]
pub(crate) struct Rope {
    /// `[S, D]`.
    cos: Tensor<2>,
    /// `[S, D]`.
    sin: Tensor<2>,
    /// `[D, D]`.
    rotation: Tensor<2>,
}

impl Rope {
    /// Returns the tables for positions `0..length`.
    ///
    /// Angles are computed in f64 and rounded once.
    pub(crate) fn new(head_dim: usize, base: f64, length: usize, device: &Device) -> Self {
        let frequencies = frequencies(head_dim, base);
        let half = frequencies.len();
        let mut cos = vec![0.0_f32; length * head_dim];
        let mut sin = vec![0.0_f32; length * head_dim];
        for step in 0..length {
            for (j, frequency) in frequencies.iter().enumerate() {
                let (s, c) = (step as f64 * frequency).sin_cos();
                for component in [j, j + half] {
                    cos[step * head_dim + component] = c as f32;
                    sin[step * head_dim + component] = s as f32;
                }
            }
        }
        let table = |values: Vec<f32>, rows| Tensor::<2>::from_data(TensorData::new(values, [rows, head_dim]), device);
        Self { cos: table(cos, length), sin: table(sin, length), rotation: quarter_turn(head_dim, device) }
    }

    /// Returns the tables scaled by `scale` and repeated for `groups` heads folded into the
    /// position axis.
    ///
    /// They apply attention's factor `1/√d` to queries at no cost.
    pub(crate) fn for_queries(&self, groups: usize, scale: f64) -> Self {
        Self {
            cos: self.cos.clone().mul_scalar(scale).repeat_dim(0, groups),
            sin: self.sin.clone().mul_scalar(scale).repeat_dim(0, groups),
            rotation: self.rotation.clone(),
        }
    }

    /// Returns the cosines and sines, `[S, D]` each.
    pub(crate) fn tables(&self) -> [Tensor<2>; 2] {
        [self.cos.clone(), self.sin.clone()]
    }

    /// Rotates `[B, H, S, D]`.
    pub(crate) fn apply(&self, x: Tensor<4>) -> Tensor<4> {
        let [batch, heads, length, width] = x.dims();
        let turned = x
            .clone()
            .reshape([batch * heads * length, width])
            .matmul(self.rotation.clone())
            .reshape([batch, heads, length, width]);
        x * self.cos.clone().unsqueeze::<4>() + turned * self.sin.clone().unsqueeze::<4>()
    }
}

/// Returns the angles per position, `base^(−2j/d)` for j below half the width d of a head.
pub(crate) fn frequencies(head_dim: usize, base: f64) -> Vec<f64> {
    (0..head_dim / 2).map(|j| base.powf(-2.0 * j as f64 / head_dim as f64)).collect()
}

/// Returns the quarter turn of a head, `[D, D]`: `x·R = [−x₂, x₁]` for `x = [x₁, x₂]`.
fn quarter_turn(head_dim: usize, device: &Device) -> Tensor<2> {
    let half = head_dim / 2;
    let mut rotation = vec![0.0_f32; head_dim * head_dim];
    for j in 0..half {
        rotation[(j + half) * head_dim + j] = -1.0;
        rotation[j * head_dim + j + half] = 1.0;
    }
    Tensor::from_data(TensorData::new(rotation, [head_dim, head_dim]), device)
}
