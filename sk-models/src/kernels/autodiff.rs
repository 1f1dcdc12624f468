//! The fused kernels in the autodiff graph.

use burn::backend::{
    Autodiff, Flex,
    autodiff::{
        checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
        grads::Gradients,
        ops::{Backward, Ops, OpsKind},
    },
    flex::FlexTensor,
    tensor::FloatTensor,
};

use super::{AttentionShape, FusedOps, Values, attention, norm, swiglu, tensor_like};

/// Registers the gradients of the inputs, which `of` returns for the state and the gradient of the
/// output.
fn propagate<S, const N: usize>(ops: Ops<S, N>, grads: &mut Gradients, of: impl FnOnce(S, FlexTensor) -> [FlexTensor; N]) {
    let grad = grads.consume::<Flex>(&ops.node);
    for (parent, grad) in ops.parents.into_iter().zip(of(ops.state, grad)) {
        if let Some(parent) = parent {
            grads.register::<Flex>(parent.id, grad);
        }
    }
}

#[derive(Debug)]
struct NormBackward;

impl Backward<Flex, 2> for NormBackward {
    type State = (FlexTensor, FlexTensor, f32);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        propagate(ops, grads, |(x, w, epsilon), grad| {
            let [x_values, w_values, grad] = [&x, &w, &grad].map(Values::of);
            let (dx, dw) = norm::backward(x_values.slice(), w_values.slice(), grad.slice(), epsilon);
            [tensor_like(dx, &x), tensor_like(dw, &w)]
        });
    }
}

#[derive(Debug)]
struct SwigluBackward;

impl Backward<Flex, 2> for SwigluBackward {
    type State = (FlexTensor, FlexTensor);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        propagate(ops, grads, |(gate, up), grad| {
            let [gate_values, up_values, grad] = [&gate, &up, &grad].map(Values::of);
            let (dgate, dup) = swiglu::backward(gate_values.slice(), up_values.slice(), grad.slice());
            [tensor_like(dgate, &gate), tensor_like(dup, &up)]
        });
    }
}

#[derive(Debug)]
struct ProductBackward;

impl Backward<Flex, 1> for ProductBackward {
    /// The weight, which is frozen.
    type State = FlexTensor;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        propagate(ops, grads, |w, grad| [Flex::fused_product(grad, w.transpose(0, 1))]);
    }
}

#[derive(Debug)]
struct AttentionBackward;

impl Backward<Flex, 3> for AttentionBackward {
    /// Queries, keys, values and the rotary tables, which are constants.
    type State = ([FlexTensor; 5], AttentionShape);

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        propagate(ops, grads, |([q, k, v, cos, sin], shape), grad| {
            let [q_values, k_values, v_values, cos, sin, grad] = [&q, &k, &v, &cos, &sin, &grad].map(Values::of);
            let tables = (cos.slice(), sin.slice());
            let (dq, dk, dv) =
                attention::backward(q_values.slice(), k_values.slice(), v_values.slice(), grad.slice(), tables, shape);
            [tensor_like(dq, &q), tensor_like(dk, &k), tensor_like(dv, &v)]
        });
    }
}

/// A tensor in the autodiff graph.
type GraphTensor = FloatTensor<Autodiff<Flex>>;

/// Adds an operation to the graph: computes `output` from the inputs and, if an input needs a
/// gradient, the `state` that the gradient `op` needs.
fn record<B: Backward<Flex, N>, C: CheckpointStrategy, const N: usize>(
    op: B,
    inputs: [GraphTensor; N],
    output: impl FnOnce([FlexTensor; N]) -> FlexTensor,
    state: impl FnOnce([FlexTensor; N]) -> B::State,
) -> GraphTensor {
    let nodes = inputs.each_ref().map(GraphTensor::node);
    let inputs = inputs.map(GraphTensor::into_primitive);
    match op.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let output = output(inputs.clone());
            prep.finish(state(inputs), output)
        }
        OpsKind::UnTracked(prep) => prep.finish(output(inputs)),
    }
}

impl<C: CheckpointStrategy> FusedOps for Autodiff<Flex, C> {
    fn fused_norm(x: FloatTensor<Self>, w: FloatTensor<Self>, epsilon: f32) -> FloatTensor<Self> {
        record::<_, C, 2>(NormBackward, [x, w], |[x, w]| Flex::fused_norm(x, w, epsilon), |[x, w]| (x, w, epsilon))
    }

    fn fused_swiglu(gate: FloatTensor<Self>, up: FloatTensor<Self>) -> FloatTensor<Self> {
        record::<_, C, 2>(SwigluBackward, [gate, up], |[gate, up]| Flex::fused_swiglu(gate, up), |[gate, up]| (gate, up))
    }

    fn fused_product(x: FloatTensor<Self>, w: FloatTensor<Self>) -> FloatTensor<Self> {
        let w = w.into_primitive();
        record::<_, C, 1>(ProductBackward, [x], |[x]| Flex::fused_product(x, w.clone()), |_| w.clone())
    }

    fn fused_attention(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
        shape: AttentionShape,
    ) -> FloatTensor<Self> {
        let (cos, sin) = (cos.into_primitive(), sin.into_primitive());
        record::<_, C, 3>(
            AttentionBackward,
            [q, k, v],
            |[q, k, v]| Flex::fused_attention(q, k, v, cos.clone(), sin.clone(), shape),
            |[q, k, v]| ([q, k, v, cos.clone(), sin.clone()], shape),
        )
    }
}
