use std::sync::Arc;

use burn::module::{Module, ModuleMapper, Param};
use sk_core::TokenId;

use super::cache::DeviceSuffix;
use super::engine::StackSeats;
use super::shape::Visibility;
use super::*;
use crate::decoder::engine::{Cache, PrefixCache, SuffixCache};
use crate::lora::LowRank;
use crate::model::Qwen2;
use crate::model::parts::OwnedParts;

/// Rounding of f32 through two layers, with sums in another order.
const TOLERANCE: f32 = 1e-5;

fn config(tied: bool) -> Qwen2Config {
    Qwen2Config { head_dim: 6, tie_word_embeddings: tied, ..Qwen2Config::small([61, 24, 40, 2, 6, 2]) }
}

/// Returns a model and a GPU engine with the same weights. Weights are ten times as large as at the
/// start of training, so that attention is not uniform, and biases are not zero.
fn models(tied: bool, device: &Device) -> (Qwen2, GpuEngine) {
    struct Enlarge;
    impl ModuleMapper for Enlarge {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            param.map(|value| if D == 2 { value.mul_scalar(10.0) } else { value })
        }
    }
    let config = config(tied);
    let mut model = Qwen2::random(&config, 1, device).map(&mut Enlarge);
    for (index, layer) in model.layers.iter_mut().enumerate() {
        let attention = &mut layer.self_attn;
        for (offset, projection) in [&mut attention.q_proj, &mut attention.k_proj, &mut attention.v_proj].into_iter().enumerate()
        {
            let bias = projection.bias.take().expect("projections of the input have biases");
            let values = |size: usize| (0..size).map(|i| ((i + 5 * offset + 3 * index) as f32).sin()).collect::<Vec<_>>();
            projection.bias = Some(bias.map(|bias| {
                let size = bias.dims()[0];
                Tensor::from_data(TensorData::new(values(size), [size]), device)
            }));
        }
    }
    let mut parts = OwnedParts::from(model.clone());
    let Ok(embedding) = parts.embedding();
    let Ok(tensors) = GpuEngine::assemble(embedding, &config, parts, None);
    (model, tensors)
}

/// Returns an adapter of every projection for which `keeps` is true, of the embedding and of the
/// head.
fn adapter(rank: usize, seed: u64, keeps: impl Fn(usize) -> bool, device: &Device) -> LoraAdapter {
    let config = config(true);
    let mut adapter = LoraAdapter::random(&config, rank, seed, device);
    let wide = LoraAdapter::random(&config, rank, seed + 100, device);
    for layer in &mut adapter.layers {
        let kept = crate::lora::Target::ALL.into_iter().enumerate().filter(|(index, _)| keeps(*index));
        let mut other = crate::lora::LayerAdapter::default();
        for (_, target) in kept {
            other.set(target, layer.get(target).expect("a random adapter has every target").clone());
        }
        *layer = other;
    }
    let rows = |of: &LowRank, rows: usize| of.a.clone().repeat_dim(0, 3).slice([0..rows, 0..rank]);
    let query = wide.layers[0].get(crate::lora::Target::Query).expect("as above");
    let out = query.b.clone().slice([0..rank, 0..config.hidden_size]);
    adapter.embed_tokens = Some(LowRank { a: rows(query, config.vocab_size), b: out.clone(), scale: 0.5 });
    let wide_out = out.repeat_dim(1, 3).slice([0..rank, 0..config.vocab_size]);
    adapter.lm_head = Some(LowRank { a: rows(query, config.hidden_size), b: wide_out, scale: 0.7 });
    adapter
}

fn text(seed: u32, length: usize) -> Vec<TokenId> {
    (0..length as u32).map(|i| (seed * 31 + i * i * 7 + i) % 61).collect()
}

/// Returns the states and logits of a whole sequence under an adapter, in one pass of the module.
fn whole(model: &Qwen2, sequence: &[TokenId], adapter: Option<&LoraAdapter>) -> [Tensor<2>; 2] {
    let device = model.device();
    let ids = Tensor::<1, Int>::from_data(sequence, &device).unsqueeze();
    let stack = AdapterStack::new(&model.config, &[adapter], &device).unwrap();
    let states = model.forward(ids, Lanes::of(&stack));
    [states.clone(), model.logits(states, Lanes::of(&stack))]
}

fn assert_close(name: &str, found: Tensor<2>, expected: Tensor<2>) {
    assert_eq!(found.dims(), expected.dims(), "{name}");
    let size = expected.clone().abs().max().into_scalar::<f32>().max(1.0);
    let error = (found - expected).abs().max().into_scalar::<f32>();
    assert!(error < TOLERANCE * size, "{name}: off by {error:e} at size {size}");
}

fn line(of: &Tensor<2>, row: usize) -> Tensor<2> {
    of.clone().slice([row..row + 1, 0..of.dims()[1]])
}

fn seats(model: &GpuEngine, lanes: &[Option<&LoraAdapter>]) -> StackSeats {
    StackSeats(Some(Arc::new(AdapterStack::new(&model.config, lanes, &model.embedding.device()).unwrap())))
}

fn prefill<'a>(tokens: &'a [TokenId], seats: &'a StackSeats, prefix: &'a mut DevicePrefix) -> [Group<'a, GpuEngine>; 1] {
    [Group { rows: vec![tokens], seats, cache: Cache { prefix, suffix: None } }]
}

fn extend<'a>(
    rows: &'a [Vec<TokenId>],
    seats: &'a StackSeats,
    prefix: &'a mut DevicePrefix,
    suffix: &'a mut DeviceSuffix,
) -> Group<'a, GpuEngine> {
    Group { rows: rows.iter().map(Vec::as_slice).collect(), seats, cache: Cache { prefix, suffix: Some(suffix) } }
}

/// Reads groups and adds their tokens to the lengths of their caches, as a `Decoder` does.
fn forward(model: &GpuEngine, groups: &mut [Group<'_, GpuEngine>]) -> Vec<Tensor<2>> {
    let states = model.forward_all(groups);
    groups.iter_mut().for_each(advance);
    states
}

/// Adds the tokens of a group to the length of its cache.
pub(super) fn advance(group: &mut Group<'_, GpuEngine>) {
    let tokens = group.width();
    match &mut group.cache.suffix {
        None => group.cache.prefix.advance(tokens),
        Some(suffix) => suffix.advance(tokens),
    }
}

#[test]
fn cached_decoding_equals_one_pass() {
    let device = Device::flex();
    for tied in [true, false] {
        let (model, tensors) = models(tied, &device);
        let sequence = text(1, 13);
        let [states, logits] = whole(&model, &sequence, None);
        // In pieces of several sizes, through a prefix that must grow.
        let alone = StackSeats(None);
        let mut prefix = tensors.prefix_with(1, 2);
        let mut start = 0;
        for size in [1, 5, 1, 4, 2] {
            let found = forward(&tensors, &mut prefill(&sequence[start..start + size], &alone, &mut prefix)).remove(0);
            let expected = |of: &Tensor<2>| of.clone().slice([start..start + size, 0..of.dims()[1]]);
            assert_close("logits", tensors.head_logits(&found, alone.lanes()), expected(&logits));
            assert_close("states", found, expected(&states));
            start += size;
            assert_eq!(prefix.len(), start);
        }
        // A prefix of six, then a single row token by token and in spans.
        prefix.truncate(6);
        let mut suffix = DeviceSuffix::new(1);
        start = 6;
        for size in [1, 1, 3, 2] {
            let row = [sequence[start..start + size].to_vec()];
            let found = forward(&tensors, &mut [extend(&row, &alone, &mut prefix, &mut suffix)]).remove(0);
            assert_close("suffix", found, states.clone().slice([start..start + size, 0..24]));
            start += size;
            assert_eq!((prefix.len(), suffix.len()), (6, start - 6));
        }
    }
}

#[test]
fn rows_are_independent_in_every_lane() {
    let device = Device::flex();
    let (model, tensors) = models(true, &device);
    // Ranks and targets differ, so smaller ranks and missing targets are padded. The first lane is
    // the backbone.
    let adapters = [adapter(3, 1, |_| true, &device), adapter(1, 2, |index| index % 2 == 1, &device)];
    let lanes = [None, Some(&adapters[0]), Some(&adapters[1])];
    let all = seats(&tensors, &lanes);
    let context = text(4, 6);
    let rows: Vec<Vec<TokenId>> = (10..14).map(|seed| text(seed, 5)).collect();

    let mut prefix = tensors.prefix_with(3, 8);
    let _ = forward(&tensors, &mut prefill(&context, &all, &mut prefix));
    let mut suffix = DeviceSuffix::new(4);
    // Read two tokens, then three, which attend to the first two.
    let parts: [Vec<Vec<TokenId>>; 2] = [0..2, 2..5].map(|part| rows.iter().map(|row| row[part.clone()].to_vec()).collect());
    let mut steps: Vec<[Tensor<2>; 3]> = Vec::new();
    for part in &parts {
        let found = forward(&tensors, &mut [extend(part, &all, &mut prefix, &mut suffix)]).remove(0);
        let logits = tensors.head_logits(&found, all.lanes());
        let width = part[0].len();
        for step in 0..width {
            let lane = |of: &Tensor<2>, lane: usize| {
                let start = lane * width * 4 + step * 4;
                of.clone().slice([start..start + 4, 0..of.dims()[1]])
            };
            steps.push([0, 1, 2].map(|g| Tensor::cat(vec![lane(&found, g), lane(&logits, g)], 1)));
        }
    }
    for (lane, adapter) in lanes.into_iter().enumerate() {
        for (row, span) in rows.iter().enumerate() {
            let [states, logits] = whole(&model, &[context.clone(), span.clone()].concat(), adapter);
            let expected = Tensor::cat(vec![states, logits], 1);
            for (step, found) in steps.iter().enumerate() {
                assert_close(
                    &format!("lane {lane}, row {row}, token {step}"),
                    line(&found[lane], row),
                    line(&expected, 6 + step),
                );
            }
        }
    }

    // Adopt three of the five tokens of the third row, remove a lane and join another with the same
    // tokens.
    prefix.adopt(&suffix, 2, 3);
    prefix.select_lanes(&[2, 0]);
    let kept = [context, rows[2][..3].to_vec()].concat();
    let alone = seats(&tensors, &[lanes[1]]);
    let mut other = tensors.prefix_with(1, 4);
    let _ = forward(&tensors, &mut prefill(&kept, &alone, &mut other));
    prefix.join_lanes(Box::new(other));
    let order = [lanes[2], lanes[0], lanes[1]];
    let all = seats(&tensors, &order);
    let rest = text(9, 2);
    let found = forward(&tensors, &mut prefill(&rest, &all, &mut prefix)).remove(0);
    for (lane, adapter) in order.into_iter().enumerate() {
        let [states, _] = whole(&model, &[kept.clone(), rest.clone()].concat(), adapter);
        let found = found.clone().slice([lane * 2..lane * 2 + 2, 0..24]);
        assert_close("after adoption", found, states.slice([9..11, 0..24]));
    }
}

#[test]
fn attention_is_the_same_for_any_number_of_scores_at_once() {
    let device = Device::flex();
    let tensor = |shape: [usize; 4], seed: f32| {
        let values = (0..shape.iter().product()).map(|i| (i as f32 * seed).sin()).collect::<Vec<_>>();
        Tensor::<4>::from_data(TensorData::new(values, shape), &device)
    };
    // Two lanes, two key heads and three query heads for each; two rows, which add a token to the
    // one that they have.
    let visibility = Visibility { places: 2, shared: 5, earlier: 1, rows: 2 };
    let (queries, keys, values) = (tensor([2, 2, 6, 4], 0.7), tensor([2, 2, 9, 4], 1.3), tensor([2, 2, 9, 4], 2.9));
    let mix = |most| ops::mix(queries.clone(), &keys, &values, visibility, most);
    let whole = mix(usize::MAX);
    // The scores of a query head are 18.
    for most in [1, 18, 36, 40, 54, 200] {
        let error = (mix(most) - whole.clone()).abs().max().into_scalar::<f32>();
        assert!(error < TOLERANCE, "{most} scores at once: off by {error:e}");
    }
    assert!(whole.abs().max().into_scalar::<f32>() > 0.1);
}

#[test]
fn groups_of_one_pass_are_independent() {
    let device = Device::flex();
    let (model, tensors) = models(false, &device);
    let adapter = adapter(2, 5, |_| true, &device);
    let lanes = [Some(&adapter), None];
    let seats = &seats(&tensors, &lanes);
    // Contexts and numbers of rows differ. One group is a prefill.
    let contexts = [text(1, 7), text(2, 3), Vec::new()];
    let rows = [vec![text(3, 2), text(4, 2), text(5, 2)], vec![text(6, 4)], vec![text(7, 5)]];
    let mut prefixes = contexts.clone().map(|context| {
        let mut prefix = tensors.prefix_with(2, 4);
        if !context.is_empty() {
            let _ = forward(&tensors, &mut prefill(&context, seats, &mut prefix));
        }
        prefix
    });
    let [first, second, third] = &mut prefixes;
    let (mut three, mut one) = (DeviceSuffix::new(3), DeviceSuffix::new(1));
    let mut groups = [
        extend(&rows[0], seats, first, &mut three),
        extend(&rows[1], seats, second, &mut one),
        Group { rows: vec![&rows[2][0]], seats, cache: Cache { prefix: third, suffix: None } },
    ];
    let states = forward(&tensors, &mut groups);
    let logits = tensors.logits_of(&states.iter().collect::<Vec<_>>(), seats.lanes());
    for (group, (context, rows)) in contexts.iter().zip(&rows).enumerate() {
        let (count, width) = (rows.len(), rows[0].len());
        for (lane, adapter) in lanes.into_iter().enumerate() {
            for (row, span) in rows.iter().enumerate() {
                let expected = whole(&model, &[context.clone(), span.clone()].concat(), adapter);
                for step in 0..width {
                    let place = (lane * width + step) * count + row;
                    for (found, expected) in [&states[group], &logits[group]].into_iter().zip(&expected) {
                        assert_close(&format!("group {group}"), line(found, place), line(expected, context.len() + step));
                    }
                }
            }
        }
    }
    assert_eq!(prefixes[2].len(), 5);
}
