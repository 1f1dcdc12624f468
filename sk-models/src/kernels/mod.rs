//! Fused CPU kernels with gradients of their own.
//!
//! Burn's CPU backend runs element-wise operations one by one on a single thread, and its autodiff
//! keeps every intermediate. Four parts of the decoder are worth a kernel: RMSNorm, the gated
//! activation, causal attention of whole sequences, and products with frozen matrices in bf16. They
//! are added by Burn's backend extension: the CPU backend gets the kernel, and autodiff its gradient.
//! On every other device the same functions are composed of Burn's own operations.

mod attention;
mod autodiff;
mod frozen;
pub(crate) mod logits;
pub(crate) mod norm;
mod product;
pub(crate) mod simd;
mod swiglu;

use burn::{
    backend::{
        Backend, Dispatch, DispatchDevice, Flex, TensorMetadata, backend_extension, flex::FlexTensor, tensor::FloatTensor,
    },
    tensor::{DType, Device, Tensor, TensorData, activation, module::linear},
};
use half::bf16;

pub(crate) use attention::AttentionShape;

/// Operations that a backend may fuse.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait FusedOps: Backend {
    /// RMSNorm of `[M, H]` with weights `[H]`.
    fn fused_norm(x: FloatTensor<Self>, w: FloatTensor<Self>, epsilon: f32) -> FloatTensor<Self>;

    /// `silu(gate) ⊙ up`.
    fn fused_swiglu(gate: FloatTensor<Self>, up: FloatTensor<Self>) -> FloatTensor<Self>;

    /// `x·W` of `[M, in]` in f32 and a frozen W `[in, out]` in bf16.
    fn fused_product(x: FloatTensor<Self>, w: FloatTensor<Self>) -> FloatTensor<Self>;

    /// Causal attention of whole sequences with rotary tables `[S, D]`.
    fn fused_attention(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
        shape: AttentionShape,
    ) -> FloatTensor<Self>;
}

/// The values of a contiguous tensor.
struct Values(FlexTensor);

impl Values {
    fn of(tensor: &FlexTensor) -> Self {
        Self(tensor.to_contiguous())
    }

    fn slice(&self) -> &[f32] {
        let start = self.0.layout().start_offset();
        &self.0.storage::<f32>()[start..start + self.0.layout().num_elements()]
    }
}

fn tensor_like(values: Vec<f32>, like: &FlexTensor) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, like.shape()))
}

impl FusedOps for Flex {
    fn fused_norm(x: FlexTensor, w: FlexTensor, epsilon: f32) -> FlexTensor {
        let y = norm::forward(Values::of(&x).slice(), Values::of(&w).slice(), epsilon);
        tensor_like(y, &x)
    }

    fn fused_swiglu(gate: FlexTensor, up: FlexTensor) -> FlexTensor {
        tensor_like(swiglu::forward(Values::of(&gate).slice(), Values::of(&up).slice()), &gate)
    }

    fn fused_product(x: FlexTensor, w: FlexTensor) -> FlexTensor {
        let (input, output) = (w.shape()[0], w.shape()[1]);
        // The memory may hold the transpose.
        let is_transposed = w.transpose(0, 1).is_contiguous();
        let (rows, columns) = if is_transposed { (output, input) } else { (input, output) };
        let w = if is_transposed { w } else { w.to_contiguous() };
        let start = w.layout().start_offset();
        let stored = frozen::FrozenWeight { values: &w.storage::<bf16>()[start..start + rows * columns], rows, columns };
        let values = Values::of(&x);
        let y = if is_transposed { stored.times_transposed(values.slice()) } else { stored.times(values.slice()) };
        FlexTensor::from_data(TensorData::new(y, [x.shape()[0], output]))
    }

    fn fused_attention(
        q: FlexTensor,
        k: FlexTensor,
        v: FlexTensor,
        cos: FlexTensor,
        sin: FlexTensor,
        shape: AttentionShape,
    ) -> FlexTensor {
        let [q_values, k, v, cos, sin] = [&q, &k, &v, &cos, &sin].map(Values::of);
        let tables = (cos.slice(), sin.slice());
        tensor_like(attention::forward(q_values.slice(), k.slice(), v.slice(), tables, shape), &q)
    }
}

/// Returns whether the fused kernels support this device and type.
pub(crate) fn is_fused(device: &Device, dtype: DType) -> bool {
    let plain = device.clone().without_autodiff();
    dtype == DType::F32 && matches!(plain.as_dispatch(), DispatchDevice::Flex(_))
}

/// Computes RMSNorm of `[M, H]`: `x / sqrt(mean(x²) + ε) · w`.
pub(crate) fn rms_norm(x: Tensor<2>, w: Tensor<1>, epsilon: f64) -> Tensor<2> {
    if is_fused(&x.device(), x.dtype()) {
        let y = <Dispatch as FusedOps>::fused_norm(x.into_dispatch(), w.into_dispatch(), epsilon as f32);
        return Tensor::from_dispatch(y);
    }
    let mean_square = x.clone().square().mean_dim(1);
    x * mean_square.add_scalar(epsilon).sqrt().recip() * w.unsqueeze::<2>()
}

/// Computes `silu(gate) ⊙ up`, element by element.
pub(crate) fn swiglu(gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
    if is_fused(&gate.device(), gate.dtype()) {
        let y = <Dispatch as FusedOps>::fused_swiglu(gate.into_dispatch(), up.into_dispatch());
        return Tensor::from_dispatch(y);
    }
    activation::silu(gate) * up
}

/// Computes `x·W + b` of `[M, in]` and W `[in, out]`.
///
/// W may be in bf16 if x is in f32. W is then frozen: only x and b get gradients. On a CPU the
/// weights are widened, which is exact; on other devices x, and its gradient, are rounded to bf16.
pub(crate) fn affine(x: Tensor<2>, w: Tensor<2>, b: Option<Tensor<1>>) -> Tensor<2> {
    if w.dtype() == x.dtype() {
        return linear(x, w, b);
    }
    let y = if is_fused(&x.device(), x.dtype()) {
        Tensor::from_dispatch(<Dispatch as FusedOps>::fused_product(x.into_dispatch(), w.into_dispatch()))
    } else {
        let dtype = x.dtype();
        x.cast(w.dtype()).matmul(w).cast(dtype)
    };
    match b {
        Some(b) => y + b.unsqueeze::<2>(),
        None => y,
    }
}

/// Computes causal attention of whole sequences: queries `[B·S, Hq·D]`, keys and values `[B·S,
/// Hkv·D]`, before rotation.
///
/// Only for devices for which [`is_fused`] holds.
pub(crate) fn causal_attention(inputs: [Tensor<2>; 3], tables: [Tensor<2>; 2], shape: AttentionShape) -> Tensor<2> {
    let ([q, k, v], [cos, sin]) = (inputs.map(Tensor::into_dispatch), tables.map(Tensor::into_dispatch));
    Tensor::from_dispatch(<Dispatch as FusedOps>::fused_attention(q, k, v, cos, sin, shape))
}

#[cfg(test)]
mod tests {
    use burn::tensor::Distribution;

    use super::*;
    use crate::model::rope::Rope;

    /// f32 sums of a few hundred terms, in two orders.
    const TOLERANCE: f32 = 2e-5;

    fn random(shape: [usize; 2], device: &Device) -> Tensor<2> {
        Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
    }

    fn assert_close<const D: usize>(name: &str, found: Tensor<D>, expected: Tensor<D>) {
        let size = expected.clone().abs().max().into_scalar::<f32>().max(1.0);
        let error = (found - expected).abs().max().into_scalar::<f32>();
        assert!(error <= TOLERANCE * size, "{name}: off by {error:e} at size {size}");
    }

    /// Compares values and, under a random cotangent, gradients of two functions of the same
    /// tensors.
    fn compare(inputs: &[Tensor<2>], fused: impl Fn(&[Tensor<2>]) -> Tensor<2>, composed: impl Fn(&[Tensor<2>]) -> Tensor<2>) {
        let graph = Device::flex().autodiff();
        let run = |f: &dyn Fn(&[Tensor<2>]) -> Tensor<2>, cotangent: Option<Tensor<2>>| {
            let leaves: Vec<Tensor<2>> = inputs.iter().map(|x| Tensor::from_data(x.to_data(), &graph).require_grad()).collect();
            let y = f(&leaves);
            let value = y.clone().inner();
            let weight = cotangent.unwrap_or_else(|| random(value.dims(), &Device::flex()));
            let grads = (y * Tensor::from_inner(weight.clone())).sum().backward();
            let grads: Vec<Tensor<2>> = leaves.iter().map(|leaf| leaf.grad(&grads).expect("a tracked leaf")).collect();
            (value, grads, weight)
        };
        let (value, grads, weight) = run(&fused, None);
        let (expected, expected_grads, _) = run(&composed, Some(weight));
        assert_close("value", value, expected);
        for (index, (found, expected)) in grads.into_iter().zip(expected_grads).enumerate() {
            assert_close(&format!("gradient {index}"), found, expected);
        }
    }

    #[test]
    fn the_norm_and_its_gradient_agree_with_the_composition() {
        let device = Device::flex();
        // More rows than one task, and a width that fills no vector evenly.
        for shape in [[1, 8], [3, 37], [150, 96]] {
            let inputs = [random(shape, &device), random([1, shape[1]], &device)];
            compare(
                &inputs,
                |x| rms_norm(x[0].clone(), x[1].clone().reshape([shape[1]]), 1e-6),
                |x| {
                    let mean = x[0].clone().square().mean_dim(1);
                    x[0].clone() * mean.add_scalar(1e-6).sqrt().recip() * x[1].clone()
                },
            );
        }
    }

    #[test]
    fn a_product_with_a_bf16_weight_equals_that_with_the_widened_weight() {
        let device = Device::flex();
        // The last weight is wider than a block.
        for [rows, input, output] in [[1, 5, 3], [7, 33, 130], [3, 40, 70_000]] {
            let x = random([rows, input], &device);
            for transposed in [false, true] {
                let stored = if transposed { [output, input] } else { [input, output] };
                let weight = random(stored, &device).cast(DType::BF16);
                let lain = |weight: Tensor<2>| if transposed { weight.transpose() } else { weight };
                let on_graph = |weight: Tensor<2>| lain(Tensor::from_inner(weight));
                let wide = weight.clone().cast(DType::F32);
                compare(
                    std::slice::from_ref(&x),
                    |x| affine(x[0].clone(), on_graph(weight.clone()), None),
                    |x| x[0].clone().matmul(on_graph(wide.clone())),
                );
            }
        }
    }

    #[test]
    fn the_gated_activation_and_its_gradient_agree_with_the_composition() {
        let device = Device::flex();
        for shape in [[1, 5], [70, 300]] {
            let inputs = [random(shape, &device) * 6.0, random(shape, &device)];
            compare(&inputs, |x| swiglu(x[0].clone(), x[1].clone()), |x| activation::silu(x[0].clone()) * x[1].clone());
        }
    }

    #[test]
    fn attention_and_its_gradient_agree_with_the_composition() {
        let device = Device::flex();
        // Lengths below, at and beyond one block of queries.
        for (batch, length, heads, groups, width) in [(2, 5, 1, 1, 4), (1, 64, 2, 3, 8), (3, 131, 2, 2, 6)] {
            let shape = AttentionShape { length, heads, groups, width, scale: (width as f32).sqrt().recip() };
            let rows = batch * length;
            let inputs = [
                random([rows, heads * groups * width], &device),
                random([rows, heads * width], &device),
                random([rows, heads * width], &device),
            ];
            let graph = device.clone().autodiff();
            let rope = Rope::new(width, 10_000.0, length, &graph);
            let hidden = Tensor::<2>::ones([length, length], &graph).triu(1).mul_scalar(-1e30).unsqueeze::<4>();
            compare(
                &inputs,
                |x| causal_attention([x[0].clone(), x[1].clone(), x[2].clone()], rope.tables(), shape),
                |x| {
                    let split = |x: &Tensor<2>, heads: usize| x.clone().reshape([batch, length, heads, width]).swap_dims(1, 2);
                    // Every query head gets its own copy of its key head.
                    let shared = |x: Tensor<4>| {
                        x.unsqueeze_dim::<5>(2).expand([batch, heads, groups, length, width]).reshape([
                            batch,
                            heads * groups,
                            length,
                            width,
                        ])
                    };
                    let query = rope.apply(split(&x[0], heads * groups));
                    let key = shared(rope.apply(split(&x[1], heads)));
                    let scores = query.matmul(key.swap_dims(2, 3)).mul_scalar(shape.scale) + hidden.clone();
                    let mixed = activation::softmax(scores, 3).matmul(shared(split(&x[2], heads)));
                    mixed.swap_dims(1, 2).reshape([rows, heads * groups * width])
                },
            );
        }
    }
}
