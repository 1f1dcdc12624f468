//! Concurrent requests have the same bits as requests that run alone.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use burn::tensor::Device;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sk_core::{Backbone, BoxError, DraftRequest, Policy, Proposal, Reading, Response, TokenId};
use sk_models::Qwen2Config;
use sk_models::decoder::{Decoder, Precision, Scheduler, Stop};
use sk_models::engine::{AdapterRack, Drafter, DrafterConfig, EngineError, Racks, Sampling, Verifier};
use sk_models::lora::LoraAdapter;

const PRECISIONS: [Precision; 3] = [Precision::F32, Precision::Bf16, Precision::Int8];

fn config() -> Qwen2Config {
    Qwen2Config::from_json(
        "test",
        r#"{"vocab_size": 600, "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "max_position_embeddings": 1024, "tie_word_embeddings": true}"#,
    )
    .unwrap()
}

fn rack() -> AdapterRack {
    let rack = AdapterRack::default();
    rack.insert("calm", LoraAdapter::random(&config(), 4, 1, &Device::flex()));
    rack.insert("kind", LoraAdapter::random(&config(), 2, 2, &Device::flex()));
    rack
}

/// The prompt of request `own`: 200 tokens that all prompts share, 70 that every third shares, and
/// then its own.
fn prompt(own: u64) -> Vec<TokenId> {
    let text = |seed, length| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        (0..length).map(|_| rng.random_range(0..600)).collect::<Vec<TokenId>>()
    };
    [text(1000, 200), text(2000 + own % 3, 70), text(own, 3 + own as usize % 90)].concat()
}

type Seen = (Vec<TokenId>, Vec<Reading>);

/// Drafts and reads two steps. Returns the tokens, and the readings of all candidates.
fn generate(model: &Arc<Decoder>, rack: &AdapterRack, own: u64) -> Result<Seen, BoxError> {
    let mut rng = ChaCha8Rng::seed_from_u64(own);
    let mut context = prompt(own);
    let sampling = Sampling::new(1.0, 0.9, 0, 1.0)?;
    let config = DrafterConfig { candidates: 1 + own as usize % 5, sampling, end_of_text: vec![], keep_end_of_text: true };
    let mut drafter = Drafter::new(Arc::clone(model), config);
    let mut verifier = Verifier::new(Arc::clone(model), Racks { adapters: rack.clone(), ..Racks::default() });
    let policies = [Policy::Backbone, Policy::Variant("calm".into()), Policy::Variant("kind".into())];
    let policies = &policies[..1 + own as usize % 3];
    let mut seen = Vec::new();
    for step in 0..2 {
        let request = DraftRequest { context: &context, granularity: &Response, limit: 3 + own as usize % 7 };
        let drafted = drafter.propose(request, &mut rng)?;
        let read = verifier.read(&context, &drafted, policies)?;
        policies.iter().for_each(|policy| seen.extend(read.get(policy).unwrap_or_default().iter().cloned()));
        let chosen = step % drafted.len();
        drafter.commit(chosen)?;
        verifier.commit(chosen)?;
        context.extend(&drafted[chosen].tokens);
    }
    Ok((context, seen))
}

#[test]
fn a_request_has_the_same_bits_among_sixty_four_that_come_go_and_are_stopped() {
    for precision in PRECISIONS {
        let decoder = || Decoder::random(&config(), 5, &Device::flex(), precision).unwrap();
        let (alone, rack) = (Arc::new(decoder()), rack());
        let expected: Vec<Seen> = (0..64).map(|own| generate(&alone, &rack, own).unwrap()).collect();

        let scheduler = Scheduler::new();
        // Room for some of the blocks only, so blocks in use are evicted.
        let budget = 24 * 64 * 2 * 2 * 32 * 2 * size_of::<f32>();
        let beside = Arc::new(decoder().scheduled(&scheduler).sharing_prefixes(budget));
        thread::scope(|scope| {
            let start = |own: u64| {
                let (beside, rack, scheduler) = (&beside, &rack, &scheduler);
                let stop = Stop::new();
                let stopper = own.is_multiple_of(3).then(|| stop.clone());
                let request = scope.spawn(move || {
                    thread::sleep(Duration::from_micros(300 * (own % 16)));
                    let _here = scheduler.join(&stop);
                    generate(beside, rack, own)
                });
                (own, request, stopper)
            };
            let requests: Vec<_> = (0..64).map(start).collect();
            for (own, _, stopper) in &requests {
                if let Some(stop) = stopper {
                    thread::sleep(Duration::from_micros(20 * own));
                    stop.stop();
                }
            }
            for (own, request, stopper) in requests {
                match request.join().unwrap() {
                    Ok(seen) => assert!(seen == expected[own as usize], "{precision:?}: request {own} differs"),
                    Err(error) => {
                        assert!(stopper.is_some(), "request {own}: {error}");
                        assert!(matches!(error.downcast_ref(), Some(EngineError::Stopped(_))), "{error}");
                    }
                }
            }
        });
        assert!((1..=budget).contains(&beside.shared_bytes()), "{}", beside.shared_bytes());
    }
}

#[test]
fn shared_prefixes_are_read_once() {
    for precision in PRECISIONS {
        let plain = Arc::new(Decoder::random(&config(), 5, &Device::flex(), precision).unwrap());
        let sharing = Arc::new(Decoder::random(&config(), 5, &Device::flex(), precision).unwrap().sharing_prefixes(1 << 24));
        let rack = rack();
        // The second round finds all blocks in the cache.
        for own in (0..9).chain(0..9) {
            assert!(generate(&sharing, &rack, own).unwrap() == generate(&plain, &rack, own).unwrap(), "{precision:?}, {own}");
        }
        let kept = sharing.shared_bytes();
        generate(&sharing, &rack, 4).unwrap();
        assert_eq!(sharing.shared_bytes(), kept, "nothing is kept twice");
        // A changed adapter under the same name shares no blocks, and those of the former are freed.
        rack.insert("calm", LoraAdapter::random(&config(), 4, 9, &Device::flex()));
        assert!(generate(&sharing, &rack, 1).unwrap() == generate(&plain, &rack, 1).unwrap());
        assert!(sharing.shared_bytes() < kept);
    }
}

#[test]
fn a_stopped_request_ends_before_its_next_pass() {
    let scheduler = Scheduler::new();
    let model = Arc::new(Decoder::random(&config(), 5, &Device::flex(), Precision::F32).unwrap().scheduled(&scheduler));
    let stop = Stop::new();
    let _here = scheduler.join(&stop);
    generate(&model, &rack(), 1).unwrap();
    stop.stop();
    let error = generate(&model, &rack(), 1).unwrap_err();
    assert_eq!(error.to_string(), "the request was stopped");
}
