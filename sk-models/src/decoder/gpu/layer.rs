use burn::module::Param;
use burn::tensor::Tensor;

use super::attention::{PassInput, attend};
use super::operands::Changed;
use super::ops::{add_norm, gate, low_rank, multiply};
use super::{GpuEngine, bytes};
use crate::config::Qwen2Config;
use crate::decoder::engine::Group;
use crate::device::persistent;
use crate::lora::Reads;
use crate::model::{self, Norm, Projection};

/// One decoder layer.
#[derive(Debug)]
pub(super) struct FusedLayer {
    input_norm: Norm,
    /// `[H, (Hq + 2·Hkv)·D]`: queries, keys, values.
    input: Tensor<2>,
    /// The bias of `input`; zeros if it has none.
    bias: Tensor<1>,
    /// `[Hq·D, H]`.
    output: Tensor<2>,
    inner_norm: Norm,
    /// `[H, 2·F]`: the gate and up projections.
    gate_up: Tensor<2>,
    /// `[F, H]`.
    down: Tensor<2>,
}

impl FusedLayer {
    pub(super) fn new(layer: model::Layer, config: &Qwen2Config, cast: impl Fn(Tensor<2>) -> Tensor<2>) -> Self {
        let model::Layer { input_layernorm, self_attn, post_attention_layernorm, mlp } = layer;
        let weight = |projection: Projection| cast(projection.weight.into_value());
        let (query, key) = (config.query_size(), config.key_value_size());
        let device = input_layernorm.weight.val().device();
        let [q_proj, k_proj, v_proj] = [self_attn.q_proj, self_attn.k_proj, self_attn.v_proj];
        let biases = [&q_proj, &k_proj, &v_proj].map(|projection| projection.bias.as_ref().map(Param::val));
        let filled = biases
            .into_iter()
            .zip([query, key, key])
            .map(|(bias, width)| bias.unwrap_or_else(|| Tensor::zeros([width], &device)));
        let bias = persistent(Tensor::cat(filled.collect(), 0));
        Self {
            input_norm: input_layernorm.persistent(),
            input: side_by_side([q_proj, k_proj, v_proj].map(weight)),
            bias,
            output: side_by_side([weight(self_attn.o_proj)]),
            inner_norm: post_attention_layernorm.persistent(),
            gate_up: side_by_side([mlp.gate_proj, mlp.up_proj].map(weight)),
            down: side_by_side([weight(mlp.down_proj)]),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let matrices = [&self.input, &self.output, &self.gate_up, &self.down].map(bytes);
        let vectors = [&self.input_norm.weight.val(), &self.inner_norm.weight.val(), &self.bias].map(bytes);
        matrices.into_iter().chain(vectors).sum()
    }

    /// Runs the layer. The residual stream `[G·M, H]` is passed and returned as two summands, which
    /// the next norm adds.
    pub(super) fn forward(
        &self,
        (x, change): (Tensor<2>, Option<Changed>),
        index: usize,
        pass: &PassInput<'_>,
        groups: &mut [Group<'_, GpuEngine>],
    ) -> (Tensor<2>, Changed) {
        let deltas = pass.lanes.layer(index);
        let change_of = |reads, x: &Tensor<2>| Some(low_rank(x, deltas?.of(reads)?));
        let format = self.down.dtype();
        let (x, normed) = add_norm(x, change, &self.input_norm, format);
        let frozen = multiply(&normed, &self.input);
        let projected = Changed { frozen, delta: change_of(Reads::State, &normed) };
        let mixed = attend(&projected, &self.bias, index, pass, groups, format);
        let added = Changed { frozen: multiply(&mixed, &self.output), delta: change_of(Reads::Mixed, &mixed) };

        let (x, normed) = add_norm(x, Some(added), &self.inner_norm, format);
        let both = Changed { frozen: multiply(&normed, &self.gate_up), delta: change_of(Reads::Between, &normed) };
        let inner = gate(both, format);
        let added = Changed { frozen: multiply(&inner, &self.down), delta: change_of(Reads::Gated, &inner) };
        (x, added)
    }
}

/// Joins matrices `[in, out]` side by side in column-major order, as in their files, so that the
/// terms of a sum are contiguous. Products with one row are fast on a GPU only in this layout.
pub(super) fn side_by_side(matrices: impl IntoIterator<Item = Tensor<2>>) -> Tensor<2> {
    persistent(Tensor::cat(matrices.into_iter().map(Tensor::transpose).collect(), 0)).transpose()
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};

    use super::*;
    use crate::lora::{AdapterStack, Lanes, LoraAdapter, Target};

    #[test]
    fn the_updates_of_targets_lie_side_by_side() {
        /// Sums of 48 terms of about one, in two orders.
        const TOLERANCE: f32 = 1e-5;
        let (config, device) = (Qwen2Config::small([11, 48, 20, 1, 2, 2]), Device::flex());
        let adapters = [1, 2].map(|seed| LoraAdapter::random(&config, 3, seed, &device));
        let stack = AdapterStack::new(&config, &[Some(&adapters[0]), None, Some(&adapters[1])], &device).unwrap();
        let deltas = Lanes::of(&stack).layer(0).unwrap();
        let x = (Tensor::<1>::from_data(TensorData::from(std::array::from_fn::<f32, 288, _>(|i| (i as f32).sin())), &device))
            .reshape([6, 48]);
        let single = [Target::Gate, Target::Up].map(|target| deltas.get(target).unwrap().update(x.clone()));
        let whole = Tensor::cat(single.to_vec(), 1);
        let error = (low_rank(&x, deltas.of(Reads::Between).unwrap()) - whole.clone()).abs().max().into_scalar::<f32>();
        assert!(error < TOLERANCE, "off by {error:e}");
        assert!(whole.abs().max().into_scalar::<f32>() > 100.0 * TOLERANCE);
    }
}
