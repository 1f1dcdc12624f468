//! Forward passes in several forms: lanes together and alone, with and without padding.

use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};
use sk_models::{
    Qwen2Config,
    lora::{AdapterStack, Lanes, LoraAdapter, LowRank, Target},
    model::Qwen2,
};

/// f32 rounding through two layers, with sums in another order.
const TOLERANCE: f32 = 1e-5;

fn config() -> Qwen2Config {
    Qwen2Config {
        vocab_size: 61,
        hidden_size: 24,
        intermediate_size: 40,
        num_hidden_layers: 2,
        num_attention_heads: 6,
        num_key_value_heads: 2,
        head_dim: 6,
        rope_theta: 10_000.0,
        rms_norm_eps: 1e-6,
        max_position_embeddings: 128,
        tie_word_embeddings: true,
        bos_token_id: None,
        eos_token_ids: vec![60],
        pad_token_id: None,
    }
}

/// Weights ten times as large as at the start of training, so that attention is not uniform.
fn model(device: &Device) -> Qwen2 {
    struct Enlarge;
    impl burn::module::ModuleMapper for Enlarge {
        fn map_float<const D: usize>(&mut self, param: burn::module::Param<Tensor<D>>) -> burn::module::Param<Tensor<D>> {
            param.map(|value| if D == 2 { value.mul_scalar(10.0) } else { value })
        }
    }
    burn::module::Module::map(Qwen2::random(&config(), 1, device), &mut Enlarge)
}

/// An adapter of the given rank on every layer, the embedding and the head.
fn adapter(rank: usize, device: &Device) -> LoraAdapter {
    let config = config();
    let random = |shape: [usize; 2]| Tensor::random(shape, Distribution::Normal(0.0, 0.2), device);
    let change = |(input, output): (usize, usize)| LowRank { a: random([input, rank]), b: random([rank, output]), scale: 0.5 };
    let mut adapter = LoraAdapter::empty(&config);
    for layer in &mut adapter.layers {
        for target in Target::ALL {
            layer.set(target, change(target.dims(&config)));
        }
    }
    adapter.embed_tokens = Some(change((config.vocab_size, config.hidden_size)));
    adapter.lm_head = Some(change((config.hidden_size, config.vocab_size)));
    adapter
}

fn tokens(rows: &[Vec<i32>], device: &Device) -> Tensor<2, Int> {
    let shape = [rows.len(), rows[0].len()];
    Tensor::from_data(TensorData::new(rows.concat(), shape), device)
}

fn text(seed: i32, length: usize) -> Vec<i32> {
    (0..length as i32).map(|i| (seed * 31 + i * i * 7 + i) % 61).collect()
}

fn assert_close(name: &str, found: Tensor<2>, expected: Tensor<2>) {
    assert_eq!(found.dims(), expected.dims(), "{name}");
    let error = (found - expected).abs().max().into_scalar::<f32>();
    assert!(error < TOLERANCE, "{name}: off by {error:e}");
}

/// Rows `start..end` of `[B·S, H]` for sequence `row` of length `length`.
fn part(hidden: &Tensor<2>, row: usize, length: usize, start: usize, end: usize) -> Tensor<2> {
    let width = hidden.dims()[1];
    hidden.clone().slice([row * length + start..row * length + end, 0..width])
}

#[test]
fn lanes_together_equal_each_lane_alone() {
    let device = Device::flex();
    let model = model(&device);
    let config = config();
    // The ranks differ, so the smaller one is padded. The first lane is the backbone.
    let adapters = [adapter(3, &device), adapter(1, &device)];
    let lanes = [None, Some(&adapters[0]), Some(&adapters[1])];
    let stack = AdapterStack::new(&config, &lanes, &device).unwrap();
    let spans: Vec<Vec<i32>> = (10..14).map(|seed| text(seed, 5)).collect();
    let rows: Vec<_> = (0..3).flat_map(|_| spans.iter().cloned()).collect();
    let joined = model.forward(tokens(&rows, &device), Lanes::of(&stack));
    let logits = model.logits(joined.clone(), Lanes::of(&stack));
    for (lane, adapter) in lanes.into_iter().enumerate() {
        let alone = AdapterStack::new(&config, &[adapter], &device).unwrap();
        for (row, span) in spans.iter().enumerate() {
            let expected = model.forward(tokens(std::slice::from_ref(span), &device), Lanes::of(&alone));
            assert_close("hidden", part(&joined, lane * 4 + row, 5, 0, 5), expected.clone());
            assert_close("logits", part(&logits, lane * 4 + row, 5, 0, 5), model.logits(expected, Lanes::of(&alone)));
        }
    }
}

#[test]
fn padding_at_the_end_changes_nothing() {
    let device = Device::flex();
    let model = model(&device);
    let short = text(5, 4);
    let padded = [short.clone(), vec![0; 6]].concat();
    let alone = model.forward(tokens(&[short], &device), Lanes::backbone());
    let batch = model.forward(tokens(&[text(6, 10), padded], &device), Lanes::backbone());
    assert_close("padded", part(&batch, 1, 10, 0, 4), alone);
}

#[test]
fn an_adapter_of_another_shape_is_refused_by_name() {
    let device = Device::flex();
    let config = config();
    let mut wrong = adapter(2, &device);
    wrong.layers[1]
        .set(Target::Up, LowRank { a: Tensor::zeros([24, 2], &device), b: Tensor::zeros([2, 41], &device), scale: 1.0 });
    let message = AdapterStack::new(&config, &[None, Some(&wrong)], &device).unwrap_err().to_string();
    assert!(message.contains("adapter 1") && message.contains("layers.1.mlp.up_proj"), "{message}");
    wrong.layers.pop();
    let message = AdapterStack::new(&config, &[Some(&wrong)], &device).unwrap_err().to_string();
    assert!(message.contains("1 layers"), "{message}");
}
