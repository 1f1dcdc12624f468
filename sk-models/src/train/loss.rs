//! Cross-entropy of a large vocabulary without keeping its logits.

use burn::tensor::{IndexingUpdateOp, Int, Tensor, activation};

/// Rows whose logits are in memory at a time.
pub(super) const CHUNK: usize = 2048;

/// The sum of next-token losses: a value, and a surrogate for `backward`.
pub(super) struct SummedLoss {
    /// A scalar whose gradient is that of `scale · Σ −log p`. Its value is meaningless.
    pub(super) surrogate: Tensor<1>,
    /// `Σ −log p`, in nats.
    pub(super) value: f64,
}

/// Returns the log-probability of each target: `[M, V]` logits and `[M]` targets to `[M]`.
///
/// `log p_t = z_t − max z − log Σ e^{z − max z}`.
#[must_use]
pub fn target_log_probs(logits: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
    let [rows, _] = logits.dims();
    let max = logits.clone().detach().max_dim(1);
    let centred = logits - max;
    let log_total = centred.clone().exp().sum_dim(1).log();
    (centred.gather(1, targets.reshape([rows, 1])) - log_total).reshape([rows])
}

/// Sums per-token values into their sequences: `[M]` values and their owners to `[sequences]`.
#[must_use]
pub fn sum_by_sequence(values: Tensor<1>, owners: Tensor<1, Int>, sequences: usize) -> Tensor<1> {
    let zeros = Tensor::zeros([sequences], &values.device());
    zeros.select_assign(0, owners, values, IndexingUpdateOp::Add)
}

/// Returns the cross-entropy of hidden states `[M, H]` under a head of shape `[V, H]`, one target
/// per row.
///
/// The gradient with respect to the hidden states and the head is computed here, chunk by chunk, in
/// closed form (`softmax − one-hot`). Autodiff receives it as the coefficients of a linear
/// surrogate. Only the logits of one chunk are in memory at a time: memory is `O(CHUNK·V)` instead
/// of several times `M·V`, and the backward pass needs no further pass over the vocabulary.
pub(super) fn chunked_cross_entropy(hidden: Tensor<2>, head: Tensor<2>, targets: Tensor<1, Int>, scale: f64) -> SummedLoss {
    let [rows, width] = hidden.dims();
    let states = hidden.clone().inner();
    let weights = head.clone().inner();
    let targets = if targets.is_autodiff() { targets.inner() } else { targets };
    let device = states.device();
    let mut value = 0.0;
    let mut state_grads = Vec::new();
    let mut weight_grad: Option<Tensor<2>> = None;
    for start in (0..rows).step_by(CHUNK) {
        let end = (start + CHUNK).min(rows);
        let count = end - start;
        let chunk = states.clone().slice([start..end, 0..width]);
        let target = targets.clone().slice(start..end).reshape([count, 1]);
        let logits = chunk.clone().matmul(weights.clone().transpose());
        let picked = logits.clone().gather(1, target.clone());
        // log Σ e^z = max z − log max p, which needs no second exponential of the whole matrix.
        let max = logits.clone().max_dim(1);
        let probabilities = activation::softmax(logits, 1);
        let log_total = max - probabilities.clone().max_dim(1).log();
        value += f64::from((log_total - picked).sum().into_scalar::<f32>());
        let residual = probabilities.scatter(1, target, Tensor::full([count, 1], -1.0, &device), IndexingUpdateOp::Add);
        state_grads.push(residual.clone().matmul(weights.clone()));
        let own = residual.transpose().matmul(chunk);
        weight_grad = Some(match weight_grad {
            None => own,
            Some(sum) => sum + own,
        });
    }
    let state_grad = Tensor::cat(state_grads, 0).mul_scalar(scale);
    let weight_grad = weight_grad.expect("at least one row").mul_scalar(scale);
    let surrogate = (hidden * Tensor::from_inner(state_grad)).sum() + (head * Tensor::from_inner(weight_grad)).sum();
    SummedLoss { surrogate, value }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Distribution, TensorData};

    use super::*;

    /// f32, a softmax over a few dozen entries.
    const TOLERANCE: f32 = 1e-5;

    #[test]
    fn the_surrogate_has_the_gradient_of_the_loss() {
        let graph = Device::flex().autodiff();
        // More rows than one chunk holds.
        let (rows, width, vocab) = (CHUNK + 37, 6, 23);
        let leaf = |shape: [usize; 2]| Tensor::<2>::random(shape, Distribution::Normal(0.0, 1.0), &graph).detach().require_grad();
        let (hidden, head) = (leaf([rows, width]), leaf([vocab, width]));
        let ids: Vec<i32> = (0..rows as i32).map(|i| i * 7 % vocab as i32).collect();
        let targets = Tensor::<1, Int>::from_data(TensorData::new(ids, [rows]), &graph);
        let scale = 1.0 / rows as f64;

        let fused = chunked_cross_entropy(hidden.clone(), head.clone(), targets.clone(), scale);
        let grads = fused.surrogate.backward();
        let logits = hidden.clone().matmul(head.clone().transpose());
        let plain = target_log_probs(logits, targets).neg().sum();
        let value = f64::from(plain.clone().inner().into_scalar::<f32>());
        assert!(((fused.value - value) / value).abs() < f64::from(TOLERANCE));
        let expected = plain.mul_scalar(scale).backward();
        for leaf in [hidden, head] {
            let (found, expected) = (leaf.grad(&grads).unwrap(), leaf.grad(&expected).unwrap());
            let size = expected.clone().abs().max().into_scalar::<f32>();
            let error = (found - expected).abs().max().into_scalar::<f32>();
            assert!(error < TOLERANCE * size.max(1e-2), "off by {error:e} at size {size:e}");
        }
    }
}
