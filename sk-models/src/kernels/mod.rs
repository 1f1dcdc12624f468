//! Fused CPU kernels with gradients of their own.
//!
//! Burn's CPU backend runs element-wise operations one by one on a single thread, and its autodiff keeps every
//! intermediate. Three parts of the decoder are worth a kernel: RMSNorm, the gated activation, and causal attention of
//! whole sequences. They enter through Burn's backend extension: the CPU backend gets the kernel, autodiff its gradient.
//! On every other device the same functions are composed of Burn's own operations.

mod attention;
mod autodiff;
mod norm;
mod simd;
mod swiglu;

use burn::{
    backend::{
        Backend, Dispatch, DispatchDevice, Flex, TensorMetadata, backend_extension, flex::FlexTensor, tensor::FloatTensor,
    },
    tensor::{DType, Device, Tensor, TensorData, activation},
};

pub use attention::Shape;

/// Operations that a backend may fuse.
#[backend_extension(Autodiff, Flex)]
pub trait FusedOps: Backend {
    /// RMSNorm of `[M, H]` with weights `[H]`.
    fn fused_norm(x: FloatTensor<Self>, w: FloatTensor<Self>, epsilon: f32) -> FloatTensor<Self>;

    /// Gradients of [`fused_norm`](Self::fused_norm) with respect to x and w.
    fn fused_norm_backward(
        x: FloatTensor<Self>,
        w: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        epsilon: f32,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// `silu(gate) ⊙ up`.
    fn fused_swiglu(gate: FloatTensor<Self>, up: FloatTensor<Self>) -> FloatTensor<Self>;

    /// Gradients of [`fused_swiglu`](Self::fused_swiglu) with respect to gate and up.
    fn fused_swiglu_backward(
        gate: FloatTensor<Self>,
        up: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// Causal attention of whole sequences with rotary tables `[S, D]`.
    fn fused_attention(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
        shape: Shape,
    ) -> FloatTensor<Self>;

    /// Gradients of [`fused_attention`](Self::fused_attention) with respect to q, k and v.
    fn fused_attention_backward(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        shape: Shape,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

/// A contiguous tensor's values.
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

    fn fused_norm_backward(x: FlexTensor, w: FlexTensor, grad: FlexTensor, epsilon: f32) -> (FlexTensor, FlexTensor) {
        let (dx, dw) = norm::backward(Values::of(&x).slice(), Values::of(&w).slice(), Values::of(&grad).slice(), epsilon);
        (tensor_like(dx, &x), tensor_like(dw, &w))
    }

    fn fused_swiglu(gate: FlexTensor, up: FlexTensor) -> FlexTensor {
        tensor_like(swiglu::forward(Values::of(&gate).slice(), Values::of(&up).slice()), &gate)
    }

    fn fused_swiglu_backward(gate: FlexTensor, up: FlexTensor, grad: FlexTensor) -> (FlexTensor, FlexTensor) {
        let (dgate, dup) = swiglu::backward(Values::of(&gate).slice(), Values::of(&up).slice(), Values::of(&grad).slice());
        (tensor_like(dgate, &gate), tensor_like(dup, &up))
    }

    fn fused_attention(
        q: FlexTensor,
        k: FlexTensor,
        v: FlexTensor,
        cos: FlexTensor,
        sin: FlexTensor,
        shape: Shape,
    ) -> FlexTensor {
        let (cos, sin) = (Values::of(&cos), Values::of(&sin));
        let out = attention::forward(
            Values::of(&q).slice(),
            Values::of(&k).slice(),
            Values::of(&v).slice(),
            (cos.slice(), sin.slice()),
            shape,
        );
        tensor_like(out, &q)
    }

    fn fused_attention_backward(
        q: FlexTensor,
        k: FlexTensor,
        v: FlexTensor,
        cos: FlexTensor,
        sin: FlexTensor,
        grad: FlexTensor,
        shape: Shape,
    ) -> (FlexTensor, FlexTensor, FlexTensor) {
        let (cos, sin) = (Values::of(&cos), Values::of(&sin));
        let (dq, dk, dv) = attention::backward(
            Values::of(&q).slice(),
            Values::of(&k).slice(),
            Values::of(&v).slice(),
            Values::of(&grad).slice(),
            (cos.slice(), sin.slice()),
            shape,
        );
        (tensor_like(dq, &q), tensor_like(dk, &k), tensor_like(dv, &v))
    }
}

/// Whether the fused kernels serve this device and type.
#[must_use]
pub fn is_fused(device: &Device, dtype: DType) -> bool {
    let plain = device.clone().without_autodiff();
    dtype == DType::F32 && matches!(plain.as_dispatch(), DispatchDevice::Flex(_))
}

/// RMSNorm of `[M, H]`: `x / sqrt(mean(x²) + ε) · w`.
#[must_use]
pub fn rms_norm(x: Tensor<2>, w: Tensor<1>, epsilon: f64) -> Tensor<2> {
    if is_fused(&x.device(), x.dtype()) {
        let y = <Dispatch as FusedOps>::fused_norm(x.into_dispatch(), w.into_dispatch(), epsilon as f32);
        return Tensor::from_dispatch(y);
    }
    let mean_square = x.clone().square().mean_dim(1);
    x * mean_square.add_scalar(epsilon).sqrt().recip() * w.unsqueeze::<2>()
}

/// `silu(gate) ⊙ up`, element by element.
#[must_use]
pub fn swiglu(gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
    if is_fused(&gate.device(), gate.dtype()) {
        let y = <Dispatch as FusedOps>::fused_swiglu(gate.into_dispatch(), up.into_dispatch());
        return Tensor::from_dispatch(y);
    }
    activation::silu(gate) * up
}

/// Causal attention of whole sequences: queries `[B·S, Hq·D]`, keys and values `[B·S, Hkv·D]`, unrotated.
///
/// Serves only devices for which [`is_fused`] holds.
#[must_use]
pub fn causal_attention([q, k, v]: [Tensor<2>; 3], [cos, sin]: [Tensor<2>; 2], shape: Shape) -> Tensor<2> {
    let out = <Dispatch as FusedOps>::fused_attention(
        q.into_dispatch(),
        k.into_dispatch(),
        v.into_dispatch(),
        cos.into_dispatch(),
        sin.into_dispatch(),
        shape,
    );
    Tensor::from_dispatch(out)
}
