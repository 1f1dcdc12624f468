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

use super::{FusedOps, Shape, Values, attention, norm, swiglu, tensor_like};

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
struct Norm;

impl Backward<Flex, 2> for Norm {
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
struct Swiglu;

impl Backward<Flex, 2> for Swiglu {
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
struct Product;

impl Backward<Flex, 1> for Product {
    /// The weight, which is frozen.
    type State = FlexTensor;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        propagate(ops, grads, |w, grad| [Flex::fused_product(grad, w.transpose(0, 1))]);
    }
}

#[derive(Debug)]
struct Attention;

impl Backward<Flex, 3> for Attention {
    /// Queries, keys, values and the rotary tables, which are constants.
    type State = ([FlexTensor; 5], Shape);

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

impl<C: CheckpointStrategy> FusedOps for Autodiff<Flex, C> {
    fn fused_norm(x: FloatTensor<Self>, w: FloatTensor<Self>, epsilon: f32) -> FloatTensor<Self> {
        let nodes = [x.node(), w.node()];
        let (x, w) = (x.into_primitive(), w.into_primitive());
        match Norm.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let y = Flex::fused_norm(x.clone(), w.clone(), epsilon);
                prep.finish((x, w, epsilon), y)
            }
            OpsKind::UnTracked(prep) => prep.finish(Flex::fused_norm(x, w, epsilon)),
        }
    }

    fn fused_swiglu(gate: FloatTensor<Self>, up: FloatTensor<Self>) -> FloatTensor<Self> {
        let nodes = [gate.node(), up.node()];
        let (gate, up) = (gate.into_primitive(), up.into_primitive());
        match Swiglu.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let y = Flex::fused_swiglu(gate.clone(), up.clone());
                prep.finish((gate, up), y)
            }
            OpsKind::UnTracked(prep) => prep.finish(Flex::fused_swiglu(gate, up)),
        }
    }

    fn fused_product(x: FloatTensor<Self>, w: FloatTensor<Self>) -> FloatTensor<Self> {
        let nodes = [x.node()];
        let (x, w) = (x.into_primitive(), w.into_primitive());
        match Product.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let y = Flex::fused_product(x, w.clone());
                prep.finish(w, y)
            }
            OpsKind::UnTracked(prep) => prep.finish(Flex::fused_product(x, w)),
        }
    }

    fn fused_attention(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
        shape: Shape,
    ) -> FloatTensor<Self> {
        let nodes = [q.node(), k.node(), v.node()];
        let (q, k, v) = (q.into_primitive(), k.into_primitive(), v.into_primitive());
        let (cos, sin) = (cos.into_primitive(), sin.into_primitive());
        match Attention.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let out = Flex::fused_attention(q.clone(), k.clone(), v.clone(), cos.clone(), sin.clone(), shape);
                prep.finish(([q, k, v, cos, sin], shape), out)
            }
            OpsKind::UnTracked(prep) => prep.finish(Flex::fused_attention(q, k, v, cos, sin, shape)),
        }
    }
}
