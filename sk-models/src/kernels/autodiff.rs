//! The fused kernels in the autodiff graph.

use burn::backend::{
    Autodiff,
    autodiff::{
        checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
        grads::Gradients,
        ops::{Backward, Ops, OpsKind},
    },
    tensor::FloatTensor,
};

use super::{FusedOps, Shape};

impl<B: FusedOps, C: CheckpointStrategy> FusedOps for Autodiff<B, C> {
    fn fused_norm(x: FloatTensor<Self>, w: FloatTensor<Self>, epsilon: f32) -> FloatTensor<Self> {
        #[derive(Debug)]
        struct Norm;

        impl<B: FusedOps> Backward<B, 2> for Norm {
            type State = (FloatTensor<B>, FloatTensor<B>, f32);

            fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
                let (x, w, epsilon) = ops.state;
                let grad = grads.consume::<B>(&ops.node);
                let (dx, dw) = B::fused_norm_backward(x, w, grad, epsilon);
                for (parent, grad) in ops.parents.into_iter().zip([dx, dw]) {
                    if let Some(parent) = parent {
                        grads.register::<B>(parent.id, grad);
                    }
                }
            }
        }

        let nodes = [x.node(), w.node()];
        let (x, w) = (x.into_primitive(), w.into_primitive());
        match Norm.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let y = B::fused_norm(x.clone(), w.clone(), epsilon);
                prep.finish((x, w, epsilon), y)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::fused_norm(x, w, epsilon)),
        }
    }

    fn fused_norm_backward(
        _x: FloatTensor<Self>,
        _w: FloatTensor<Self>,
        _grad: FloatTensor<Self>,
        _epsilon: f32,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        panic!("the gradient of the fused norm has no gradient");
    }

    fn fused_swiglu(gate: FloatTensor<Self>, up: FloatTensor<Self>) -> FloatTensor<Self> {
        #[derive(Debug)]
        struct Swiglu;

        impl<B: FusedOps> Backward<B, 2> for Swiglu {
            type State = (FloatTensor<B>, FloatTensor<B>);

            fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
                let (gate, up) = ops.state;
                let grad = grads.consume::<B>(&ops.node);
                let (dgate, dup) = B::fused_swiglu_backward(gate, up, grad);
                for (parent, grad) in ops.parents.into_iter().zip([dgate, dup]) {
                    if let Some(parent) = parent {
                        grads.register::<B>(parent.id, grad);
                    }
                }
            }
        }

        let nodes = [gate.node(), up.node()];
        let (gate, up) = (gate.into_primitive(), up.into_primitive());
        match Swiglu.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let y = B::fused_swiglu(gate.clone(), up.clone());
                prep.finish((gate, up), y)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::fused_swiglu(gate, up)),
        }
    }

    fn fused_swiglu_backward(
        _gate: FloatTensor<Self>,
        _up: FloatTensor<Self>,
        _grad: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        panic!("the gradient of the fused activation has no gradient");
    }

    fn fused_product(x: FloatTensor<Self>, w: FloatTensor<Self>) -> FloatTensor<Self> {
        #[derive(Debug)]
        struct Product;

        impl<B: FusedOps> Backward<B, 1> for Product {
            type State = FloatTensor<B>;

            fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
                let grad = grads.consume::<B>(&ops.node);
                let [x] = ops.parents;
                if let Some(x) = x {
                    grads.register::<B>(x.id, B::fused_product_backward(ops.state, grad));
                }
            }
        }

        // The weight is frozen.
        let nodes = [x.node()];
        let (x, w) = (x.into_primitive(), w.into_primitive());
        match Product.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let y = B::fused_product(x, w.clone());
                prep.finish(w, y)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::fused_product(x, w)),
        }
    }

    fn fused_product_backward(_w: FloatTensor<Self>, _grad: FloatTensor<Self>) -> FloatTensor<Self> {
        panic!("the gradient of the product with a frozen weight has no gradient");
    }

    fn fused_attention(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
        shape: Shape,
    ) -> FloatTensor<Self> {
        #[derive(Debug)]
        struct Attention;

        impl<B: FusedOps> Backward<B, 3> for Attention {
            type State = ([FloatTensor<B>; 5], Shape);

            fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
                let ([q, k, v, cos, sin], shape) = ops.state;
                let grad = grads.consume::<B>(&ops.node);
                let (dq, dk, dv) = B::fused_attention_backward(q, k, v, cos, sin, grad, shape);
                for (parent, grad) in ops.parents.into_iter().zip([dq, dk, dv]) {
                    if let Some(parent) = parent {
                        grads.register::<B>(parent.id, grad);
                    }
                }
            }
        }

        // The rotary tables are constants.
        let nodes = [q.node(), k.node(), v.node()];
        let (q, k, v) = (q.into_primitive(), k.into_primitive(), v.into_primitive());
        let (cos, sin) = (cos.into_primitive(), sin.into_primitive());
        match Attention.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let out = B::fused_attention(q.clone(), k.clone(), v.clone(), cos.clone(), sin.clone(), shape);
                prep.finish(([q, k, v, cos, sin], shape), out)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::fused_attention(q, k, v, cos, sin, shape)),
        }
    }

    fn fused_attention_backward(
        _q: FloatTensor<Self>,
        _k: FloatTensor<Self>,
        _v: FloatTensor<Self>,
        _cos: FloatTensor<Self>,
        _sin: FloatTensor<Self>,
        _grad: FloatTensor<Self>,
        _shape: Shape,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        panic!("the gradient of the fused attention has no gradient");
    }
}
