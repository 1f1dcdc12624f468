//! Heads read by the engine, against a plain forward pass: one sequence at a time, no cache.

use std::sync::Arc;

use burn::tensor::{Device, Int, Tensor, TensorData};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sk_core::{Backbone, Candidate, Candidates, Policy, Reading, Readings, SpanEnd, TokenId};
use sk_models::Qwen2Config;
use sk_models::decoder::{Decoder, Precision};
use sk_models::engine::{EngineError, Racks, Verifier};
use sk_models::head::{Head, HeadKind};
use sk_models::lora::{Lanes, LoraAdapter, LowRank, Target};
use sk_models::model::Qwen2;

/// f32 rounding through two layers; the engine adds the same products in another order.
const TOLERANCE: f32 = 1e-5;
const VOCABULARY: u32 = 61;
const WIDTH: usize = 24;

fn config() -> Qwen2Config {
    Qwen2Config::from_json(
        "test",
        r#"{"vocab_size": 61, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 3,
            "num_key_value_heads": 1, "max_position_embeddings": 48, "tie_word_embeddings": true}"#,
    )
    .unwrap()
}

fn model() -> Arc<Qwen2> {
    Arc::new(Qwen2::random(&config(), 3, &Device::flex()))
}

fn adapter() -> LoraAdapter {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let mut noise = |shape: [usize; 2]| {
        let data: Vec<f32> = (0..shape[0] * shape[1]).map(|_| rng.random::<f32>() - 0.5).collect();
        Tensor::<2>::from_data(TensorData::new(data, shape), &Device::flex())
    };
    let mut adapter = LoraAdapter::empty(&config());
    for layer in &mut adapter.layers {
        layer.set(Target::Down, LowRank { a: noise([32, 2]), b: noise([2, WIDTH]), scale: 2.0 });
    }
    adapter
}

fn head(seed: u64, width: usize) -> Head {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let weight = (0..width).map(|_| rng.random::<f32>() - 0.5).collect();
    Head { kind: HeadKind::Reward, attribute: "kind".to_owned(), weight, bias: rng.random() }
}

fn racks() -> Racks {
    let racks = Racks::default();
    racks.adapters.insert("tuned", adapter());
    racks.heads.insert("kind", head(5, WIDTH));
    racks.heads.insert("fair", head(6, WIDTH));
    racks
}

fn verifier() -> Verifier {
    Verifier::new(Arc::new(Decoder::new((*model()).clone(), Precision::F32).unwrap()), racks())
}

fn named(name: &str) -> Policy {
    Policy::Head(name.into())
}

fn tuned() -> Policy {
    Policy::Variant("tuned".into())
}

fn candidates(rng: &mut ChaCha8Rng, lengths: &[usize]) -> Candidates {
    let candidate = |&length: &usize| Candidate {
        tokens: (0..length).map(|_| rng.random_range(0..VOCABULARY)).collect(),
        log_probs: vec![-1.0; length],
        end: SpanEnd::Complete,
    };
    Candidates::new(lengths.iter().map(candidate).collect()).unwrap()
}

/// The definition: w·h + b after each token of the span, in one pass over the whole sequence.
fn plainly(head: &Head, context: &[TokenId], span: &[TokenId]) -> Vec<f32> {
    let model = model();
    let ids: Vec<i64> = context.iter().chain(span).map(|&t| i64::from(t)).collect();
    let tokens = TensorData::new(ids, [1, context.len() + span.len()]);
    let hidden = model.forward(Tensor::<2, Int>::from_data(tokens, &model.device()), Lanes::backbone());
    let states = hidden.try_into_vec_as::<f32>().unwrap();
    let read = |state: &[f32]| head.bias + head.weight.iter().zip(state).map(|(w, h)| w * h).sum::<f32>();
    states.chunks_exact(WIDTH).skip(context.len()).map(read).collect()
}

fn close(a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len());
    assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() <= TOLERANCE * (1.0 + a.abs())), "{a:?} against {b:?}");
}

fn expect(readings: &Readings, name: &str, head: &Head, context: &[TokenId], candidates: &Candidates) {
    let read = readings.get(&named(name)).unwrap();
    assert_eq!(read.len(), candidates.len());
    for (reading, candidate) in read.iter().zip(candidates) {
        close(&reading.values, &plainly(head, context, &candidate.tokens));
        assert!(reading.log_probs.is_empty() && reading.min_entropy.is_empty());
    }
}

#[test]
fn heads_agree_with_plain_passes_step_after_step() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut verifier = verifier();
    let mut context: Vec<TokenId> = vec![3, 14, 15];
    let asked: [&[Policy]; 4] = [
        &[named("fair"), named("kind")],
        &[Policy::Backbone, tuned(), named("fair"), named("kind")],
        &[tuned(), named("fair"), named("kind")],
        &[named("fair"), named("kind"), Policy::Backbone],
    ];
    for (policies, lengths) in asked.into_iter().zip([&[4, 1, 6][..], &[2, 5, 3], &[1, 1, 1], &[3, 3, 2]]) {
        let candidates = candidates(&mut rng, lengths);
        let readings = verifier.read(&context, &candidates, policies).unwrap();
        assert!(readings.policies().eq(std::collections::BTreeSet::from_iter(policies)));
        expect(&readings, "kind", &head(5, WIDTH), &context, &candidates);
        expect(&readings, "fair", &head(6, WIDTH), &context, &candidates);
        // The other policies read the same values as without heads.
        let others: Vec<Policy> = policies.iter().filter(|policy| !matches!(policy, Policy::Head(_))).cloned().collect();
        let alone = self::verifier().read(&context, &candidates, &others);
        for policy in &others {
            let (with, without) = (readings.get(policy).unwrap(), alone.as_ref().unwrap().get(policy).unwrap());
            for (with, without) in with.iter().zip(without) {
                close(&with.log_probs, &without.log_probs);
                close(&with.min_entropy, &without.min_entropy);
                assert_eq!(with.values, Reading::default().values);
            }
        }
        verifier.commit(1).unwrap();
        context.extend(&candidates[1].tokens);
    }
}

#[test]
fn a_value_does_not_depend_on_what_comes_after_it() {
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let context = [1, 2, 3];
    let whole = candidates(&mut rng, &[6]);
    let begun = Candidate { tokens: whole[0].tokens[..3].to_vec(), log_probs: vec![-1.0; 3], end: SpanEnd::Complete };
    let both = Candidates::new(vec![whole[0].clone(), begun]).unwrap();
    let readings = verifier().read(&context, &both, &[named("kind")]).unwrap();
    let read = readings.get(&named("kind")).unwrap();
    close(&read[0].values[..3], &read[1].values);
    // The values must differ between tokens, or the comparison shows nothing.
    assert!(read[0].values.windows(2).all(|pair| (pair[0] - pair[1]).abs() > 1e-3), "{:?}", read[0].values);
}

#[test]
fn heads_that_cannot_be_read_are_named() {
    let racks = racks();
    racks.heads.insert("wide", head(9, WIDTH + 1));
    racks.heads.insert("broken", Head { bias: f32::NAN, ..head(9, WIDTH) });
    let mut verifier = Verifier::new(Arc::new(Decoder::new((*model()).clone(), Precision::F32).unwrap()), racks.clone());
    let candidates = candidates(&mut ChaCha8Rng::seed_from_u64(10), &[2, 1]);
    let mut failure = |name: &str| {
        let error = verifier.read(&[1], &candidates, &[named(name)]).unwrap_err();
        *error.downcast::<EngineError>().unwrap()
    };
    let unknown = failure("calm");
    assert_eq!(unknown.to_string(), "no head is called \"calm\"; loaded: broken, fair, kind, wide");
    assert_eq!(failure("wide"), EngineError::HeadWidth { name: "wide".to_owned(), found: WIDTH + 1, expected: WIDTH });
    assert!(matches!(failure("broken"), EngineError::HeadNotANumber { name, .. } if name == "broken"));
    assert!(racks.heads.remove("wide") && !racks.heads.remove("wide"));
    assert_eq!(racks.heads.names(), ["broken".into(), "fair".into(), "kind".into()]);
    // A failed read leaves the verifier usable.
    assert!(verifier.read(&[1], &candidates, &[named("kind")]).is_ok());
}
