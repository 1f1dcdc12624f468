//! Weights in int8 and in bf16 against weights in f32, on the model that ships.

#![cfg(feature = "embedded-model")]

use std::sync::Arc;

use burn::tensor::Device;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sk_core::{Backbone, Candidate, Candidates, Policy, Reading, Readings, SpanEnd, TokenId};
use sk_models::assets::{self, Embedded};
use sk_models::decoder::{Decoder, Precision, PrecisionError, instructions};
use sk_models::engine::{Frozen, Racks, Sampling, Verifier};
use sk_models::hf::Checkpoint;

/// The most that rounding may change, in nats.
struct Cost {
    /// Mean change of a log-probability or min-entropy, and the largest of some thousands of
    /// changes.
    mean: f64,
    largest: f64,
    /// Mean change of a span's log-ratio of blade to backbone, per token. Most of the rounding is
    /// common to both and cancels.
    ratio: f64,
}

/// Measured: 0.048, 0.62 and 0.021. The ratios of a batch differ by 0.16.
const EIGHT_BITS: Cost = Cost { mean: 0.07, largest: 0.9, ratio: 0.035 };

/// Measured: 0.0086, 0.063 and 0.0014.
const BF16: Cost = Cost { mean: 0.015, largest: 0.1, ratio: 0.003 };

/// On a processor that also rounds activations and adapters. Measured: 0.0118, 0.106 and 0.0045.
const BF16_ROWS: Cost = Cost { mean: 0.018, largest: 0.14, ratio: 0.007 };

const TEXTS: [&str; 4] = [
    "How do I apologise to a friend? You could start by telling them that you are sorry, and that you want to make it right.",
    "What should I cook for dinner? I think that a soup with some bread would be good, and it is easy to make for a family.",
    "Is it safe to drive at night when you are tired? It is not a good idea, because you could fall asleep and have an accident.",
    "Can you tell me about the garden? The best time to plant is in the spring, when the weather is warm and the days are long.",
];

struct Shipped {
    embedded: Embedded,
    checkpoint: Checkpoint,
    /// Contexts with the spans to read after each.
    spans: Vec<(Vec<TokenId>, Candidates)>,
}

impl Shipped {
    fn open() -> Self {
        let embedded = assets::embedded().expect("the model ships with the crate");
        let checkpoint = Checkpoint::from_directory(&embedded.backbone()).unwrap();
        let tokens: Vec<Vec<TokenId>> = TEXTS.iter().map(|text| checkpoint.tokenizer().encode(text).unwrap()).collect();
        let candidate = |tokens: &Vec<TokenId>| Candidate {
            tokens: tokens[8..24].to_vec(),
            log_probs: vec![0.0; 16],
            end: SpanEnd::Complete,
        };
        // After each text's beginning, the continuations of all texts.
        let spans = Candidates::new(tokens.iter().map(candidate).collect()).unwrap();
        let spans = tokens.iter().map(|own| (own[..8].to_vec(), spans.clone())).collect();
        Self { embedded, checkpoint, spans }
    }

    fn decoder(&self, precision: Precision) -> Arc<Decoder> {
        Arc::new(Decoder::new(self.checkpoint.model(&Device::flex()).unwrap(), precision).unwrap())
    }

    fn policies(&self) -> Vec<Policy> {
        let blades = self.embedded.blades().into_iter().map(|name| Policy::Variant(name.into()));
        std::iter::once(Policy::Backbone).chain(blades).collect()
    }

    fn read(&self, precision: Precision) -> Vec<Readings> {
        let racks = Racks::default();
        for name in self.embedded.blades() {
            let source = self.embedded.blade(name).to_string_lossy().into_owned();
            let adapter = self.checkpoint.adapter(&source, &Device::flex(), &mut ()).unwrap();
            racks.adapters.insert(name, adapter);
        }
        let mut verifier = Verifier::new(self.decoder(precision), racks);
        let policies = self.policies();
        self.spans.iter().map(|(context, candidates)| verifier.read(context, candidates, &policies).unwrap()).collect()
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The mean log-ratio of a blade to the backbone over each span: μ/β of the implicit reward.
fn ratios(readings: &Readings, blade: &Policy) -> Vec<f64> {
    let total = |reading: &Reading| reading.log_probs.iter().map(|p| f64::from(*p)).sum::<f64>() / reading.log_probs.len() as f64;
    let (own, base) = (readings.get(blade).unwrap(), readings.get(&Policy::Backbone).unwrap());
    own.iter().zip(base).map(|(own, base)| total(own) - total(base)).collect()
}

/// Measures how a precision changes the readings, and checks the changes against `cost`.
fn check(precision: Precision, cost: &Cost) {
    let shipped = Shipped::open();
    let (exact, rounded) = (shipped.read(Precision::F32), shipped.read(precision));
    let mut changes = Vec::new();
    let mut ratio_changes = Vec::new();
    let mut spreads = Vec::new();
    for (exact, rounded) in exact.iter().zip(&rounded) {
        for policy in shipped.policies() {
            for (a, b) in exact.get(&policy).unwrap().iter().zip(rounded.get(&policy).unwrap()) {
                let pairs = a.log_probs.iter().zip(&b.log_probs).chain(a.min_entropy.iter().zip(&b.min_entropy));
                changes.extend(pairs.map(|(a, b)| f64::from((a - b).abs())));
            }
            if policy != Policy::Backbone {
                let (a, b) = (ratios(exact, &policy), ratios(rounded, &policy));
                ratio_changes.extend(a.iter().zip(&b).map(|(a, b)| (a - b).abs()));
                let middle = mean(&a);
                spreads.extend(a.iter().map(|a| (a - middle).abs()));
            }
        }
    }
    let largest = changes.iter().copied().fold(0.0, f64::max);
    println!(
        "{precision}, of {} numbers: mean change {:.5} nats, largest {largest:.4}; of {} log-ratios per token: {:.5}, where they differ by {:.5} within a batch",
        changes.len(),
        mean(&changes),
        ratio_changes.len(),
        mean(&ratio_changes),
        mean(&spreads),
    );
    assert!(mean(&changes) <= cost.mean && largest <= cost.largest);
    assert!(mean(&ratio_changes) <= cost.ratio);
    // The weights were rounded at all.
    assert!(mean(&changes) > 1e-4);
}

#[test]
fn the_error_of_int8_is_bounded() {
    check(Precision::Int8, &EIGHT_BITS);
}

#[test]
fn the_error_of_bf16_is_bounded() {
    let rounds_rows = instructions(Precision::Bf16).contains("BF16");
    check(Precision::Bf16, if rounds_rows { &BF16_ROWS } else { &BF16 });
}

#[test]
fn bf16_takes_half_the_memory_and_decodes() {
    let shipped = Shipped::open();
    let (exact, rounded) = (shipped.decoder(Precision::F32), shipped.decoder(Precision::Bf16));
    // Panels of bf16 have more padding. Norms and biases are in f32, and are not counted in a decoder.
    let counted = [Precision::Bf16.bytes(rounded.config()), Precision::F32.bytes(exact.config())];
    for [rounded, exact] in [counted.map(|bytes| bytes as f64), [rounded.bytes() as f64, exact.bytes() as f64]] {
        let share = rounded / exact;
        assert!((0.5..0.55).contains(&share), "{share}");
    }
    let mut context = shipped.spans[0].0.clone();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    Frozen::new(rounded).decode(&mut context, &Sampling::nucleus(), 20, &[], &mut rng, |_| true).unwrap();
    assert!((9..=28).contains(&context.len()), "{}", context.len());
}

#[test]
fn eight_bits_take_a_quarter_of_the_memory_and_decode() {
    let shipped = Shipped::open();
    let (exact, rounded) = (shipped.decoder(Precision::F32), shipped.decoder(Precision::Int8));
    assert_eq!((exact.precision(), rounded.precision()), (Precision::F32, Precision::Int8));
    // Scales and sums take memory too, and an embedding that is not the head stays in f32.
    let share = rounded.bytes() as f64 / exact.bytes() as f64;
    assert!((0.24..0.32).contains(&share), "{share}");
    let mut context = shipped.spans[0].0.clone();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    Frozen::new(rounded).decode(&mut context, &Sampling::nucleus(), 20, &[], &mut rng, |_| true).unwrap();
    assert!((9..=28).contains(&context.len()), "{}", context.len());
}

#[test]
fn precisions_have_names() {
    for precision in [Precision::F32, Precision::Bf16, Precision::Int8] {
        assert_eq!(precision.to_string().parse(), Ok(precision));
    }
    let error = "bf17".parse::<Precision>().unwrap_err();
    assert_eq!(error, PrecisionError::Unknown { name: "bf17".to_owned() });
    assert!(error.to_string().contains("int8"));
}
