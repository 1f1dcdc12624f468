//! The decoder and its adapters against transformers and PEFT.
//!
//! The fixtures are tiny random models with the values that the reference implementation computes
//! on them; see `reference/make_fixtures.py`. They cover grouped-query ratios of 1, 2, 6 and 7,
//! tied and untied heads, shards, f32, f16 and bf16 storage, an odd head width, both formats of
//! `config.json`, and every supported feature of PEFT.

mod common;

use std::{collections::BTreeMap, num::NonZeroUsize, sync::Arc};

use burn::module::Param;
use burn::tensor::{Device, Int, Tensor, TensorData};
use common::{adapter, backbone, device, fixture, has_tf32};
use rand::SeedableRng;
use serde::Deserialize;
use sk_core::{
    Backbone, Candidate, Candidates, Capped, DraftRequest, Policy, Proposal, Reading, Response, SpanEnd, Token, TokenId,
};
use sk_models::{
    Qwen2Config,
    decoder::{Decoder, Precision, Scheduler, Stop},
    engine::{Drafter, DrafterConfig, EngineError, Frozen, Racks, Sampling, Verifier},
    hf::{TensorFiles, load_adapter, save_adapter},
    lora::{AdapterStack, Lanes, LoraAdapter},
    model::Qwen2,
};

/// Every fixture.
const FIXTURES: [&str; 4] = ["tied", "untied_sharded", "odd_head_dim", "seven_heads"];

// Both sides compute in f32 and in different orders. Logits here reach about 10, where the spacing
// of f32 is 1e-6, and a forward pass rounds some tens of times. Means over a span average
// such errors and are more accurate.
const LOGITS: f64 = 5e-5;
const LOG_PROBS: f64 = 1e-5;
const MU: f64 = 1e-6;
const SIGMA: f64 = 1e-5;

#[derive(Deserialize)]
struct Expected {
    beta: f64,
    steps: Vec<Step>,
    greedy: BTreeMap<String, Vec<TokenId>>,
}

#[derive(Deserialize)]
struct Step {
    prompt: Vec<TokenId>,
    candidates: Vec<Vec<TokenId>>,
    committed: usize,
    readings: BTreeMap<String, ExpectedReading>,
}

#[derive(Deserialize)]
struct ExpectedReading {
    log_probs: Vec<Vec<f64>>,
    min_entropy: Vec<Vec<f64>>,
    mu: Option<Vec<f64>>,
    sigma: Option<Vec<f64>>,
}

fn expected(name: &str) -> Expected {
    let text = std::fs::read_to_string(fixture(name).join("expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

impl Expected {
    /// The adapters of the fixture, which are all readers except the backbone.
    fn adapters(&self) -> Vec<&str> {
        self.greedy.keys().map(String::as_str).filter(|&reader| reader != BACKBONE).collect()
    }
}

/// The name of the reader without an adapter.
const BACKBONE: &str = "backbone";

fn policy(reader: &str) -> Policy {
    if reader == BACKBONE { Policy::Backbone } else { Policy::Variant(reader.into()) }
}

/// A verifier whose rack holds all adapters of the fixture.
fn verifier(name: &str, expected: &Expected, device: &Device) -> Verifier {
    let racks = Racks::default();
    for reader in expected.adapters() {
        racks.adapters.insert(reader, adapter(name, reader, device));
    }
    Verifier::new(Arc::new(Decoder::new(backbone(name, device), Precision::F32).unwrap()), racks)
}

fn candidates(spans: &[Vec<TokenId>]) -> Candidates {
    let candidate =
        |tokens: &Vec<TokenId>| Candidate { tokens: tokens.clone(), log_probs: vec![0.0; tokens.len()], end: SpanEnd::Complete };
    Candidates::new(spans.iter().map(candidate).collect()).unwrap()
}

/// Compares values within a tolerance, and prints the largest difference when dropped.
struct Comparison {
    quantity: &'static str,
    tolerance: f64,
    largest: f64,
}

impl Comparison {
    fn new(quantity: &'static str, tolerance: f64) -> Self {
        Self { quantity, tolerance, largest: 0.0 }
    }

    fn check(&mut self, place: &str, found: impl Into<f64>, expected: f64) {
        let found = found.into();
        let difference = (found - expected).abs();
        let Self { quantity, tolerance, .. } = self;
        assert!(difference <= *tolerance, "{place}: {quantity} is {found}, not {expected}, off by {difference:.2e}");
        self.largest = self.largest.max(difference);
    }

    fn check_all(&mut self, place: &str, found: &[f32], expected: &[f64]) {
        assert_eq!(found.len(), expected.len(), "{place}");
        for (position, (&found, &expected)) in found.iter().zip(expected).enumerate() {
            self.check(&format!("{place}, position {position}"), found, expected);
        }
    }
}

impl Drop for Comparison {
    fn drop(&mut self) {
        println!("{}: largest difference {:.1e} of {:.0e} allowed", self.quantity, self.largest, self.tolerance);
    }
}

/// Compares both quantities of a reading.
struct ReadingComparison {
    log_probs: Comparison,
    min_entropy: Comparison,
}

impl ReadingComparison {
    fn new() -> Self {
        Self { log_probs: Comparison::new("log π", LOG_PROBS), min_entropy: Comparison::new("min-entropy", LOG_PROBS) }
    }

    fn check(&mut self, place: &str, found: &[Reading], expected: &ExpectedReading) {
        for (index, reading) in found.iter().enumerate() {
            let place = format!("{place}, candidate {index}");
            self.log_probs.check_all(&place, &reading.log_probs, &expected.log_probs[index]);
            self.min_entropy.check_all(&place, &reading.min_entropy, &expected.min_entropy[index]);
        }
    }
}

fn mean(values: &[f32]) -> f64 {
    values.iter().copied().map(f64::from).sum::<f64>() / values.len() as f64
}

/// Logits `[S, V]` of one sequence under each lane of a stack.
fn logits(model: &Qwen2, tokens: &[TokenId], lanes: Lanes<'_>, device: &Device) -> Vec<Vec<f32>> {
    let ids: Vec<i64> = (0..lanes.count()).flat_map(|_| tokens).map(|&token| i64::from(token)).collect();
    let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [lanes.count(), tokens.len()]), device);
    let hidden = model.forward(ids, lanes);
    let values: Vec<f32> = model.logits(hidden, lanes).into_data().iter::<f32>().collect();
    values.chunks_exact(tokens.len() * model.config.vocab_size).map(<[f32]>::to_vec).collect()
}

/// The same logits from the decoder. The first half of the sequence is read token by token, the
/// rest in one pass.
fn decoded(decoder: &Decoder, tokens: &[TokenId], lanes: &[Option<Arc<LoraAdapter>>]) -> Vec<Vec<f32>> {
    let seats = decoder.seat(lanes).unwrap();
    let mut prefix = decoder.prefix(lanes.len());
    let (context, rest) = tokens.split_at(tokens.len() / 2);
    let mut lines = vec![Vec::new(); lanes.len()];
    let mut keep = |logits: Vec<f32>| {
        let per_lane = logits.len() / lanes.len();
        lines.iter_mut().zip(logits.chunks_exact(per_lane)).for_each(|(line, logits)| line.extend_from_slice(logits));
    };
    for &token in context {
        let hidden = decoder.advance(token, &seats, &mut prefix);
        keep(decoder.logits(&hidden, &seats).unwrap());
    }
    let mut suffix = decoder.suffix(lanes.len(), 1);
    let hidden = decoder.extend(&[rest], &seats, &mut prefix, &mut suffix);
    keep(decoder.logits(&hidden, &seats).unwrap());
    lines
}

#[test]
fn logits_agree() {
    let device = device();
    let mut of_module = Comparison::new("logits of the module", if has_tf32() { TF32_LOGITS } else { LOGITS });
    let mut of_decoder = Comparison::new("logits", LOGITS);
    for name in FIXTURES {
        let expected = expected(name);
        let tensors = TensorFiles::open_file(&fixture(name).join("expected.safetensors"), "").unwrap();
        let model = backbone(name, &device);
        let first = &expected.steps[0];
        let ids = [first.prompt.as_slice(), first.candidates.last().unwrap()].concat();
        let check = |comparison: &mut Comparison, reader: &str, found: &[f32]| {
            let values = tensors.read(&format!("{reader}.logits"), &[ids.len(), model.config.vocab_size]).unwrap();
            let values: Vec<f64> = values.into_iter().map(f64::from).collect();
            comparison.check_all(&format!("{name}/{reader}"), found, &values);
        };
        check(&mut of_module, BACKBONE, &logits(&model, &ids, Lanes::backbone(), &device)[0]);
        let decoder = Decoder::new(model.clone(), Precision::F32).unwrap();
        check(&mut of_decoder, BACKBONE, &decoded(&decoder, &ids, &[None])[0]);

        // All adapters and the backbone at once. The ranks differ, and lanes must not mix.
        let readers: Vec<&str> = expected.greedy.keys().map(String::as_str).collect();
        let adapters: Vec<Option<LoraAdapter>> =
            readers.iter().map(|&reader| (reader != BACKBONE).then(|| adapter(name, reader, &device))).collect();
        let adapters: Vec<Option<&LoraAdapter>> = adapters.iter().map(Option::as_ref).collect();
        let stack = AdapterStack::new(&model.config, &adapters, &device).unwrap();
        for (reader, found) in readers.iter().zip(logits(&model, &ids, Lanes::of(&stack), &device)) {
            check(&mut of_module, reader, &found);
        }
        let seated: Vec<Option<Arc<LoraAdapter>>> = adapters.iter().map(|a| a.cloned().map(Arc::new)).collect();
        for (reader, found) in readers.iter().zip(decoded(&decoder, &ids, &seated)) {
            check(&mut of_decoder, reader, &found);
        }
    }
}

/// Rounding to bf16 changes a number by up to 1/256 of itself. The logits here reach 10 and are
/// sums of some dozens of terms through a few layers, so they change by a fraction of a unit.
const BF16_LOGITS: f64 = 0.5;

/// TF32 has three bits more than bf16.
const TF32_LOGITS: f64 = BF16_LOGITS / 8.0;

#[test]
fn logits_of_bf16_weights_are_near() {
    let device = device();
    let mut comparison = Comparison::new("logits of bf16 weights", BF16_LOGITS);
    for name in FIXTURES {
        let first = &expected(name).steps[0];
        let ids = [first.prompt.as_slice(), first.candidates.last().unwrap()].concat();
        let model = backbone(name, &device);
        let rounded = match Decoder::new(model.clone(), Precision::Bf16) {
            Ok(rounded) => rounded,
            Err(error) => {
                println!("{error}");
                return;
            }
        };
        assert_eq!(rounded.precision(), Precision::Bf16);
        assert!(rounded.bytes() < Decoder::new(model.clone(), Precision::F32).unwrap().bytes());
        let expected: Vec<f64> =
            decoded(&Decoder::new(model, Precision::F32).unwrap(), &ids, &[None])[0].iter().copied().map(f64::from).collect();
        comparison.check_all(name, &decoded(&rounded, &ids, &[None])[0], &expected);
    }
    assert!(comparison.largest > LOGITS, "something was rounded");
}

#[test]
fn readings_agree_batched_one_by_one_and_after_a_commit() {
    let device = device();
    let mut comparison = ReadingComparison::new();
    for name in FIXTURES {
        let expected = expected(name);
        let readers: Vec<&str> = expected.greedy.keys().map(String::as_str).collect();
        let policies: Vec<Policy> = readers.iter().map(|reader| policy(reader)).collect();
        let mut steady = verifier(name, &expected, &device);
        for (number, step) in expected.steps.iter().enumerate() {
            let what = |reader: &str, how: &str| format!("{name}/{reader}, step {number}, {how}");
            // All candidates and policies at once: candidates of different lengths are padded, and
            // the prefix is kept from the step before.
            let batched = steady.read(&step.prompt, &candidates(&step.candidates), &policies).unwrap();
            for reader in &readers {
                let readings = batched.get(&policy(reader)).unwrap();
                comparison.check(&what(reader, "batched"), readings, &step.readings[*reader]);
            }
            // One candidate under one policy, without a cache.
            for reader in &readers {
                let alone: Vec<Reading> = step
                    .candidates
                    .iter()
                    .map(|span| {
                        let mut fresh = verifier(name, &expected, &device);
                        let span = candidates(std::slice::from_ref(span));
                        let read = fresh.read(&step.prompt, &span, &[policy(reader)]).unwrap();
                        read.get(&policy(reader)).unwrap()[0].clone()
                    })
                    .collect();
                comparison.check(&what(reader, "one by one"), &alone, &step.readings[*reader]);
            }
            steady.commit(step.committed).unwrap();
        }
    }
}

#[test]
fn mu_and_sigma_agree() {
    let device = device();
    let (mut mus, mut sigmas) = (Comparison::new("μ", MU), Comparison::new("σ", SIGMA));
    for name in FIXTURES {
        let expected = expected(name);
        let mut verifier = verifier(name, &expected, &device);
        let policies: Vec<Policy> = expected.greedy.keys().map(|reader| policy(reader)).collect();
        for step in &expected.steps {
            let readings = verifier.read(&step.prompt, &candidates(&step.candidates), &policies).unwrap();
            let base = readings.get(&Policy::Backbone).unwrap();
            for reader in expected.adapters() {
                let target = &step.readings[reader];
                let own = readings.get(&policy(reader)).unwrap();
                for (index, (own, base)) in own.iter().zip(base).enumerate() {
                    let place = format!("{name}/{reader}, candidate {index}");
                    let mu = expected.beta * (mean(&own.log_probs) - mean(&base.log_probs));
                    mus.check(&place, mu, target.mu.as_ref().unwrap()[index]);
                    sigmas.check(&place, mean(&own.min_entropy), target.sigma.as_ref().unwrap()[index]);
                }
            }
        }
    }
}

/// By the paper's convention no end-of-text token is drawn, but ℓ is the log-probability in the
/// distribution that includes it.
#[test]
fn drafts_without_an_end_carry_the_log_probability_of_the_untouched_distribution() {
    let device = device();
    let mut of_drafts = Comparison::new("log-probability of a drafted token", LOG_PROBS);
    for name in FIXTURES {
        let expected = expected(name);
        let tensors = TensorFiles::open_file(&fixture(name).join("expected.safetensors"), "").unwrap();
        let decoder = Arc::new(Decoder::new(backbone(name, &device), Precision::F32).unwrap());
        let vocabulary = decoder.config().vocab_size;
        let first = &expected.steps[0];
        let ids = [first.prompt.as_slice(), first.candidates.last().unwrap()].concat();
        let logits = tensors.read(&format!("{BACKBONE}.logits"), &[ids.len(), vocabulary]).unwrap();
        for (place, row) in logits.chunks_exact(vocabulary).enumerate() {
            let normalizer = row.iter().map(|&z| f64::from(z).exp()).sum::<f64>().ln();
            // The most probable token ends a text, so much of the mass is left out.
            let end = (0..vocabulary).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap() as TokenId;
            let sampling = Sampling::new(1.0, 1.0, 0, 1.0).unwrap();
            let drafting = DrafterConfig { candidates: 8, sampling, end_of_text: vec![end], keep_end_of_text: false };
            let request = DraftRequest { context: &ids[..=place], granularity: &Token, limit: 1 };
            let mut generator = rand_chacha::ChaCha8Rng::from_seed([place as u8; 32]);
            for candidate in &Drafter::new(decoder.clone(), drafting).propose(request, &mut generator).unwrap() {
                let token = candidate.tokens[0];
                assert_ne!(token, end);
                let expected = f64::from(row[token as usize]) - normalizer;
                of_drafts.check(&format!("{name}, token {place}"), candidate.log_probs[0], expected);
            }
        }
    }
}

#[test]
fn cached_greedy_decoding_agrees() {
    let device = device();
    let greedy = Sampling::new(0.0, 1.0, 0, 1.0).unwrap();
    for name in FIXTURES {
        let expected = expected(name);
        let prompt = &expected.steps[0].prompt;
        let mut context = prompt.clone();
        let target = &expected.greedy[BACKBONE];
        let mut generator = rand_chacha::ChaCha8Rng::from_seed([0; 32]);
        Frozen::new(Arc::new(Decoder::new(backbone(name, &device), Precision::F32).unwrap()))
            .decode(&mut context, &greedy, target.len(), &[], &mut generator, |_| true)
            .unwrap();
        assert_eq!(&context[prompt.len()..], target, "{name}");

        // With an adapter, each step reads the next token and commits it.
        for reader in expected.adapters() {
            let mut verifier = verifier(name, &expected, &device);
            let mut context = prompt.clone();
            for &next in &expected.greedy[reader] {
                let every: Vec<Vec<TokenId>> = (0..96).map(|token| vec![token]).collect();
                let read = verifier.read(&context, &candidates(&every), &[policy(reader)]).unwrap();
                let readings = read.get(&policy(reader)).unwrap();
                let best =
                    (0..every.len()).max_by(|&a, &b| readings[a].log_probs[0].total_cmp(&readings[b].log_probs[0])).unwrap();
                assert_eq!(best as TokenId, next, "{name}/{reader}");
                verifier.commit(best).unwrap();
                context.push(next);
            }
        }
    }
}

#[test]
fn draws_equal_those_on_the_cpu() {
    let config = Qwen2Config::from_json(
        "inline",
        r#"{"vocab_size": 5000, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "tie_word_embeddings": true}"#,
    )
    .unwrap();
    // A cut by number and mass, with a penalty, and one by mass alone.
    let few = Sampling::new(0.9, 0.9, 12, 1.2).unwrap();
    let many = Sampling::nucleus();
    let candidates = |device: &Device, sampling| {
        let model = Arc::new(Decoder::random(&config, 5, device, Precision::F32).unwrap());
        let drafting = DrafterConfig { candidates: 5, sampling, end_of_text: vec![7], keep_end_of_text: false };
        let mut drafter = Drafter::new(model, drafting);
        let mut generator = rand_chacha::ChaCha8Rng::from_seed([3; 32]);
        let mut context = vec![1, 400, 30];
        let mut all = Vec::new();
        for chosen in [4, 0, 2] {
            let granularity = Capped { rule: Response, tokens: NonZeroUsize::new(4).unwrap() };
            let request = DraftRequest { context: &context, granularity: &granularity, limit: 20 };
            let drafted = drafter.propose(request, &mut generator).unwrap();
            drafter.commit(chosen).unwrap();
            context.extend(&drafted[chosen].tokens);
            all.extend(drafted.iter().cloned());
        }
        all
    };
    let mut comparison = Comparison::new("log π of what was drawn", LOG_PROBS);
    for sampling in [few, many] {
        let (found, expected) = (candidates(&device(), sampling), candidates(&Device::flex(), sampling));
        for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(found.tokens, expected.tokens, "candidate {index} under {sampling:?}");
            let expected: Vec<f64> = expected.log_probs.iter().copied().map(f64::from).collect();
            comparison.check_all(&format!("candidate {index}"), &found.log_probs, &expected);
        }
        assert_eq!(found.len(), 15);
    }
}

#[test]
fn nan_and_infinity_are_detected_on_every_path() {
    let device = device();
    let broken = |weight: f32| {
        let mut model = backbone("untied_sharded", &device);
        let head = model.lm_head.take().expect("the head is not tied").into_value();
        let [width, _] = head.dims();
        // For any hidden state, one of the two logits is +∞ or both are NaN.
        let spoilt = Tensor::from_data(TensorData::new([weight, -weight].repeat(width), [width, 2]), &*device);
        model.lm_head = Some(Param::from_tensor(head.slice_assign([0..width, 5..7], spoilt)));
        Arc::new(Decoder::new(model, Precision::F32).unwrap())
    };
    let mut generator = rand_chacha::ChaCha8Rng::from_seed([3; 32]);
    for model in [f32::NAN, f32::INFINITY].map(broken) {
        for sampling in [Sampling::greedy(), Sampling::nucleus()] {
            let mut frozen = Frozen::new(model.clone());
            let decoded = frozen.decode(&mut vec![3, 2, 1], &sampling, 4, &[], &mut generator, |_| true);
            assert!(matches!(decoded, Err(EngineError::NotANumber { token: 1, .. })), "{sampling:?}: {decoded:?}");
            let drafting = DrafterConfig { candidates: 2, sampling, end_of_text: vec![], keep_end_of_text: true };
            let granularity = Capped { rule: Response, tokens: NonZeroUsize::new(4).unwrap() };
            let request = DraftRequest { context: &[3, 2, 1], granularity: &granularity, limit: 20 };
            let drafted = Drafter::new(model.clone(), drafting).propose(request, &mut generator);
            assert!(drafted.unwrap_err().to_string().contains("NaN or infinity"));
        }
        let read =
            Verifier::new(model, Racks::default()).read(&[3, 2, 1], &candidates(&[vec![4, 9], vec![8, 2]]), &[Policy::Backbone]);
        assert!(read.unwrap_err().to_string().contains("NaN or infinity"));
    }
}

#[test]
fn concurrent_generations_equal_separate_ones() {
    let device = device();
    let name = FIXTURES[0];
    let scheduler = Scheduler::new();
    let decoder = Arc::new(Decoder::new(backbone(name, &device), Precision::F32).unwrap().scheduled(&scheduler));
    let expected = expected(name);
    let adapters: Vec<Arc<LoraAdapter>> =
        expected.adapters().iter().map(|reader| Arc::new(adapter(name, reader, &device))).collect();
    let lanes = [None, Some(adapters[0].clone())];
    let texts: Vec<Vec<TokenId>> =
        expected.steps.iter().map(|step| [&step.prompt[..], &step.candidates[0]].concat()).cycle().take(3).collect();
    let alone: Vec<_> = texts.iter().map(|text| decoded(&decoder, text, &lanes)).collect();
    let gate = std::sync::Barrier::new(texts.len());
    let beside: Vec<_> = std::thread::scope(|scope| {
        let start = |text: &Vec<TokenId>| {
            let (text, scheduler, gate, decoder, lanes) = (text.clone(), &scheduler, &gate, &decoder, &lanes);
            scope.spawn(move || {
                let _here = scheduler.join(&Stop::new());
                gate.wait();
                decoded(decoder, &text, lanes)
            })
        };
        let threads: Vec<_> = texts.iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut comparison = Comparison::new("logits beside others", LOGITS);
    for (alone, beside) in alone.iter().zip(&beside) {
        for (lane, (alone, beside)) in alone.iter().zip(beside).enumerate() {
            let alone: Vec<f64> = alone.iter().copied().map(f64::from).collect();
            comparison.check_all(&format!("lane {lane}"), beside, &alone);
        }
    }
}

/// The last thread to arrive runs a joined pass. It reads what other threads have written to the
/// device, though no thread has waited for the device in between.
#[test]
fn a_joined_pass_reads_what_other_threads_wrote() {
    let device = device();
    let name = FIXTURES[0];
    let decoder = Decoder::new(backbone(name, &device), Precision::F32).unwrap();
    let expected = expected(name);
    let lanes = [None, Some(Arc::new(adapter(name, expected.adapters()[0], &device)))];
    let seats = decoder.seat(&lanes).unwrap();
    let text: Vec<TokenId> = [&expected.steps[0].prompt[..], &expected.steps[0].candidates[0]].concat();
    let (last, before) = text.split_last().unwrap();
    let mut alone = decoder.prefix(seats.count());
    decoder.prefill(before, &seats, &mut alone);
    let alone = decoder.logits(&decoder.advance(*last, &seats, &mut alone), &seats).unwrap();
    let mut prefix = decoder.prefix(seats.count());
    // Each piece runs on a thread of its own, and no result is read back.
    for piece in before.chunks(3) {
        std::thread::scope(|scope| scope.spawn(|| decoder.prefill(piece, &seats, &mut prefix)).join().unwrap());
    }
    let beside = decoder.logits(&decoder.advance(*last, &seats, &mut prefix), &seats).unwrap();
    let alone: Vec<f64> = alone.into_iter().map(f64::from).collect();
    Comparison::new("logits after what other threads wrote", LOGITS).check_all("both lanes", &beside, &alone);
}

#[test]
fn a_saved_adapter_loads_to_the_same_change() {
    let device = device();
    for name in FIXTURES {
        let expected = expected(name);
        let (config, files) = common::open(name);
        let model = backbone(name, &device);
        let tokens = &expected.steps[0].prompt;
        for reader in expected.adapters() {
            let original = adapter(name, reader, &device);
            let directory = tempfile::tempdir().unwrap();
            save_adapter(&original, &config, None, directory.path()).unwrap();
            let again = load_adapter(directory.path(), &config, &files, &device).unwrap();
            let run = |adapter: &LoraAdapter| {
                let stack = AdapterStack::new(&config, &[Some(adapter)], &device).unwrap();
                logits(&model, tokens, Lanes::of(&stack), &device)
            };
            assert_eq!(run(&original), run(&again), "{name}/{reader}");
        }
    }
}
