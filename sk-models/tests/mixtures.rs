//! Several adapters as one policy: Rewarded Soups against PEFT, MOD against its definition, and
//! one-token candidates.
//!
//! The expected values come from `reference/make_mixtures.py`.

mod common;

use std::{collections::BTreeMap, num::NonZeroUsize, sync::Arc};

use common::{Turn, adapter, backbone, device, fixture};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;
use sk_core::{
    AlignmentSpec, Backbone, Blade, BoxError, Candidate, Candidates, Divergence, DraftModel, DraftRequest, Drafting, Engine,
    Merge, Observation, Policy, Prior, Proposal, Reading, Response, Score, Seat, Simplex, SpanEnd, SpecHandle, Token, TokenId,
    VocabularyHead,
};
use sk_models::{
    Qwen2Config,
    decoder::{Decoder, Precision},
    device::DeviceName,
    engine::{
        AdapterRack, Drafter, DrafterConfig, Frozen, Racks, Sampling, SharedVerifier, Soup, TokenPrior, Verifier, Vocabulary,
    },
    local::{Extent, Models},
    lora::{LoraAdapter, LowRank, MergeError, Target, merge},
    model::Qwen2,
};

// As in the parity tests: the spacing of f32 at the size of the logits, times some tens of
// roundings.
const LOGITS: f64 = 5e-5;
const LOG_PROBS: f64 = 1e-5;

#[derive(Deserialize)]
struct Expected {
    model: String,
    weights: BTreeMap<String, f64>,
    prompt: Vec<TokenId>,
    alpha: f64,
    soups: Soups,
    r#mod: BTreeMap<String, Vec<f64>>,
}

#[derive(Deserialize)]
struct Soups {
    exact: Vec<f64>,
    peft_linear: Vec<f64>,
}

fn expected() -> Expected {
    serde_json::from_str(&std::fs::read_to_string(fixture("mixtures.json")).unwrap()).unwrap()
}

struct Fixture {
    expected: Expected,
    model: Qwen2,
    decoder: Arc<Decoder>,
    adapters: Vec<(String, f64, LoraAdapter)>,
    device: Turn,
}

impl Fixture {
    fn new() -> Self {
        let (expected, device) = (expected(), device());
        let model = backbone(&expected.model, &device);
        let decoder = Arc::new(Decoder::new(model.clone(), Precision::F32).unwrap());
        let load = |(name, &weight): (&String, &f64)| (name.clone(), weight, adapter(&expected.model, name, &device));
        let adapters = expected.weights.iter().map(load).collect();
        Self { model, decoder, adapters, device, expected }
    }

    fn weighted(&self) -> Vec<(f64, &LoraAdapter)> {
        self.adapters.iter().map(|(_, weight, adapter)| (*weight, adapter)).collect()
    }

    fn verifier(&self) -> Verifier {
        let racks = Racks::default();
        self.fill(&racks.adapters);
        Verifier::new(Arc::clone(&self.decoder), racks)
    }

    fn fill(&self, rack: &AdapterRack) {
        for (name, _, adapter) in &self.adapters {
            rack.insert(name.as_str(), adapter.clone());
        }
    }

    fn policies(&self) -> Vec<Policy> {
        let variants = self.adapters.iter().map(|(name, ..)| Policy::Variant(name.as_str().into()));
        std::iter::once(Policy::Backbone).chain(variants).collect()
    }

    /// Logits of the token after the prompt.
    fn logits(&self, adapter: &LoraAdapter) -> Vec<f64> {
        let (last, context) = self.expected.prompt.split_last().unwrap();
        let seats = self.decoder.seat(&[Some(Arc::new(adapter.clone()))]).unwrap();
        let mut prefix = self.decoder.prefix(1);
        self.decoder.prefill(context, &seats, &mut prefix);
        let states = self.decoder.advance(*last, &seats, &mut prefix);
        self.decoder.logits(&states, &seats).unwrap().into_iter().map(f64::from).collect()
    }
}

fn assert_close(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (index, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= tolerance, "{index}: {a} and {b}");
    }
}

fn log_softmax(values: &[f64]) -> Vec<f64> {
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total = max + values.iter().map(|v| (v - max).exp()).sum::<f64>().ln();
    values.iter().map(|v| v - total).collect()
}

fn every_token(model: &Qwen2) -> Candidates {
    let one = |token| Candidate { tokens: vec![token], log_probs: vec![0.0], end: SpanEnd::Complete };
    Candidates::new((0..model.config.vocab_size as TokenId).map(one).collect()).unwrap()
}

#[test]
fn soups_are_those_of_peft() {
    let fixture = Fixture::new();
    let merged = |rule: Merge| fixture.logits(&merge(rule, &fixture.weighted()).unwrap());
    assert_close(&merged(Merge::Exact), &fixture.expected.soups.exact, LOGITS);
    assert_close(&merged(Merge::PeftLinear), &fixture.expected.soups.peft_linear, LOGITS);
    let apart = fixture.expected.soups.exact.iter().zip(&fixture.expected.soups.peft_linear).map(|(a, b)| (a - b).abs());
    assert!(apart.fold(0.0, f64::max) > 100.0 * LOGITS, "the two rules are told apart");
}

#[test]
fn a_soup_of_one_is_that_one_and_none_is_refused() {
    let fixture = Fixture::new();
    let (_, _, only) = &fixture.adapters[0];
    let soup = merge(Merge::Exact, &[(1.0, only), (0.0, &fixture.adapters[1].2)]).unwrap();
    assert_close(&fixture.logits(&soup), &fixture.logits(only), LOGITS);
    assert_eq!(merge(Merge::Exact, &[(0.0, only)]).unwrap_err(), MergeError::Empty);
    let other = adapter(&fixture.expected.model, "patterns", &fixture.device);
    let error = merge(Merge::PeftLinear, &[(0.5, only), (0.5, &other)]).unwrap_err();
    assert!(matches!(error, MergeError::Ranks { .. }) && error.to_string().contains("q_proj"), "{error}");
    assert!(merge(Merge::Exact, &[(0.5, only), (0.5, &other)]).is_ok());
    let shallow = LoraAdapter::default();
    assert!(matches!(merge(Merge::Exact, &[(0.5, only), (0.5, &shallow)]), Err(MergeError::Layers { second: 0, .. })));
}

/// An adapter with a negative `lora_alpha` has no root for the linear merge. The exact merge
/// subtracts it.
#[test]
fn a_linear_soup_refuses_a_negative_scale_by_name() {
    let fixture = Fixture::new();
    let ((name, _, positive), (_, _, other)) = (&fixture.adapters[0], &fixture.adapters[1]);
    let mut negative = positive.clone();
    let update = |target| Some((target, negative.layers[0].get(target)?.clone()));
    let (target, update) = Target::ALL.into_iter().find_map(update).unwrap();
    negative.layers[0].set(target, LowRank { scale: -update.scale, ..update });
    let parts = |weight| [(0.0, positive), (0.5, other), (weight, &negative)];
    assert_eq!(merge(Merge::PeftLinear, &parts(0.5)).unwrap_err(), MergeError::NegativeScale { adapter: 2 });
    assert!(merge(Merge::PeftLinear, &parts(0.0)).is_ok());
    assert!(merge(Merge::Exact, &parts(0.5)).is_ok());

    let rack = AdapterRack::default();
    fixture.fill(&rack);
    rack.insert(name.as_str(), negative.clone());
    let seats = fixture.adapters.iter().rev().map(|(name, ..)| Seat::new(name.as_str(), Arc::new(Silent))).collect();
    // The first seat has no weight, so the places of seats and of merged adapters differ.
    let weights = Simplex::normalized(vec![0.0, 1.0, 1.0]).unwrap();
    let soup = Soup::new(rack, SpecHandle::new(AlignmentSpec::new(seats, weights).unwrap()), Merge::PeftLinear);
    let sampling = Sampling::new(1.0, 1.0, 0, 1.0).unwrap();
    let config = DrafterConfig { candidates: 1, sampling, end_of_text: Vec::new(), keep_end_of_text: true };
    let mut drafter = Drafter::new(Arc::clone(&fixture.decoder), config).with_soup(soup);
    let request = DraftRequest { context: &fixture.expected.prompt, granularity: &Response, limit: 1 };
    let error = drafter.propose(request, &mut ChaCha8Rng::seed_from_u64(1)).unwrap_err().to_string();
    assert!(error.contains(&format!("\"{name}\" has a negative lora_alpha")) && error.contains("exact"), "{error}");
}

#[test]
fn mixtures_of_distributions_are_their_means() {
    let fixture = Fixture::new();
    let mut verifier = fixture.verifier();
    let policies = fixture.policies();
    let readings = verifier.read(&fixture.expected.prompt, &every_token(&fixture.model), &policies).unwrap();
    let log_prob = |policy: &Policy, token: usize| f64::from(readings.get(policy).unwrap()[token].log_probs[0]);
    for (name, expected) in &fixture.expected.r#mod {
        let divergence = match name.as_str() {
            "reverse-kl" => Divergence::ReverseKl,
            "forward-kl" => Divergence::ForwardKl,
            "jensen-shannon" => Divergence::JensenShannon,
            "alpha" => Divergence::alpha(fixture.expected.alpha).unwrap(),
            other => panic!("{other}"),
        };
        let rating = |token: usize| {
            let prior = log_prob(&Policy::Backbone, token);
            let gradient = |(policy, (_, weight, _)): (&Policy, &(String, f64, LoraAdapter))| {
                weight * divergence.gradient(log_prob(policy, token) - prior)
            };
            prior + divergence.log_ratio(policies[1..].iter().zip(&fixture.adapters).map(gradient).sum())
        };
        let ratings: Vec<f64> = (0..expected.len()).map(rating).collect();
        assert_close(&log_softmax(&ratings), expected, LOG_PROBS);
    }
}

/// Candidates of one token share a row; beside a longer candidate, each has its own row.
#[test]
fn one_token_is_read_alike_alone_and_in_a_batch() {
    let fixture = Fixture::new();
    let policies = fixture.policies();
    let mut context = fixture.expected.prompt.clone();
    let (mut shared, mut rows) = (fixture.verifier(), fixture.verifier());
    for step in 0..4 {
        let tokens: [TokenId; 3] = [7 + step, 50, 11];
        let one = |&token: &TokenId| Candidate { tokens: vec![token], log_probs: vec![0.0], end: SpanEnd::Complete };
        let alone = Candidates::new(tokens.iter().map(one).collect()).unwrap();
        let longer = Candidate { tokens: vec![3, 4], log_probs: vec![0.0; 2], end: SpanEnd::Complete };
        let mixed = Candidates::new(tokens.iter().map(one).chain([longer]).collect()).unwrap();
        let (a, b) = (shared.read(&context, &alone, &policies).unwrap(), rows.read(&context, &mixed, &policies).unwrap());
        for policy in &policies {
            let first = |reading: &Reading| (f64::from(reading.log_probs[0]), f64::from(reading.min_entropy[0]));
            for (x, y) in a.get(policy).unwrap().iter().zip(b.get(policy).unwrap()) {
                let ((p, h), (q, i)) = (first(x), first(y));
                assert!((p - q).abs() <= LOG_PROBS && (h - i).abs() <= LOG_PROBS, "step {step}: {p} {q}, {h} {i}");
            }
        }
        shared.commit(1).unwrap();
        rows.commit(1).unwrap();
        context.push(tokens[1]);
    }
}

/// Computing the next-token distribution first does not change a reading, whether or not that pass
/// covered all policies.
#[test]
fn looking_ahead_changes_no_reading() {
    let fixture = Fixture::new();
    let mut context = fixture.expected.prompt.clone();
    let (mut looking, mut plain) = (fixture.verifier(), fixture.verifier());
    let all = every_token(&fixture.model);
    // The policies change between steps, as when blades are edited.
    let policies = fixture.policies();
    for (step, policies) in
        [&policies[..2], &policies[..2], &policies[..], &policies[1..3], &policies[..1]].into_iter().enumerate()
    {
        let prior = looking.next_token(&context).unwrap().to_vec();
        let (a, b) = (looking.read(&context, &all, policies).unwrap(), plain.read(&context, &all, policies).unwrap());
        for policy in policies {
            let values = |readings: &sk_core::Readings| -> Vec<f64> {
                readings.get(policy).unwrap().iter().map(|r| f64::from(r.log_probs[0])).collect()
            };
            assert_close(&values(&a), &values(&b), LOG_PROBS);
            if *policy == Policy::Backbone {
                let prior: Vec<f64> = prior.iter().map(|&p| f64::from(p)).collect();
                assert_close(&prior, &values(&b), LOG_PROBS);
            }
        }
        looking.commit(step).unwrap();
        plain.commit(step).unwrap();
        context.push(step as TokenId);
    }
}

#[test]
fn a_vocabulary_carries_the_prior_it_was_given() {
    let fixture = Fixture::new();
    let prompt = &fixture.expected.prompt;
    let shared = SharedVerifier::new(fixture.verifier());
    let backbone = shared.next_token(prompt).unwrap();
    let size = fixture.model.config.vocab_size;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut propose = |prior: TokenPrior, head: VocabularyHead| {
        let mut vocabulary = Vocabulary::new(&fixture.decoder, shared.clone(), prior, head, vec![2]);
        vocabulary.propose(DraftRequest { context: prompt, granularity: &Token, limit: 1 }, &mut rng).unwrap()
    };
    let all = propose(TokenPrior::Uniform, VocabularyHead::ALL);
    assert_eq!(all.len(), size);
    assert!(all.iter().all(|c| (c.log_probs[0] + (size as f32).ln()).abs() < 1e-6));
    assert_eq!((all[2].end, all[3].end), (SpanEnd::EndOfText, SpanEnd::Complete));
    let prior = propose(TokenPrior::Backbone, VocabularyHead::ALL);
    assert!(prior.iter().all(|c| c.log_probs[0] == backbone[c.tokens[0] as usize]));
    // The backbone selects the tokens, and another model gives their log-probabilities.
    let other = Arc::new(Decoder::new(Qwen2::random(&fixture.model.config, 9, &fixture.device), Precision::F32).unwrap());
    let head = propose(TokenPrior::Model(Box::new(Frozen::new(Arc::clone(&other)))), VocabularyHead::new(5, 0.0).unwrap());
    let mut ranked: Vec<TokenId> = (0..size as TokenId).collect();
    ranked.sort_by(|a, b| backbone[*b as usize].total_cmp(&backbone[*a as usize]));
    let kept: Vec<TokenId> = head.iter().map(|c| c.tokens[0]).collect();
    let mut five = ranked[..5].to_vec();
    five.sort_unstable();
    assert_eq!(kept, five);
    let logits: Vec<f64> = Frozen::new(other).next_logits(prompt).unwrap().iter().map(|&z| f64::from(z)).collect();
    let own = log_softmax(&logits);
    assert!(head.iter().all(|c| (f64::from(c.log_probs[0]) - own[c.tokens[0] as usize]).abs() < LOG_PROBS));
    // A model with fewer embedding rows, as small models of a family have, proposes only the tokens
    // that it has.
    let fewer = Qwen2Config { vocab_size: size - 5, ..fixture.model.config.clone() };
    let small = Arc::new(Decoder::new(Qwen2::random(&fewer, 9, &fixture.device), Precision::F32).unwrap());
    let all = propose(TokenPrior::Model(Box::new(Frozen::new(small))), VocabularyHead::ALL);
    assert_eq!(all.iter().map(|c| c.tokens[0]).collect::<Vec<_>>(), (0..size as TokenId - 5).collect::<Vec<_>>());
}

struct Silent;

impl Blade for Silent {
    fn score(&self, _: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError> {
        out.fill(Score::new(0.0, 0.0)?);
        Ok(())
    }
}

/// A backbone that drafts beside a smaller drafter draws only tokens that both embed.
#[test]
fn candidates_are_of_the_smallest_vocabulary() {
    let own = &Fixture::new().model.config;
    let folder = tempfile::tempdir().unwrap();
    let [large, small] = [own.vocab_size, own.vocab_size / 2].map(|vocab_size| {
        let path = folder.path().join(format!("{vocab_size}.json"));
        let config = Qwen2Config { vocab_size, max_position_embeddings: 2 * vocab_size, ..own.clone() };
        std::fs::write(&path, config.to_json("float32")).unwrap();
        path
    });
    let device = (DeviceName::Cpu, Precision::F32);
    let (models, _) = Models::random((&large, Some(&small)), device, 1, &[4], [], &mut ()).unwrap();
    assert_eq!(models.context_limit(), own.vocab_size / 2 * 2);
    let drafting = Drafting::Sampled {
        model: DraftModel::Backbone,
        candidates: NonZeroUsize::new(12).unwrap(),
        sampling: Sampling::new(1.0, 1.0, 0, 1.0).unwrap(),
        keep_end_of_text: true,
        span_tokens: NonZeroUsize::new(8),
    };
    let seats = vec![Seat::new("silent", Arc::new(Silent))];
    let spec = SpecHandle::new(AlignmentSpec::new(seats, Simplex::uniform(1).unwrap()).unwrap());
    let mut generation = models.engine(&AdapterRack::default(), &[]).start(&drafting, &spec).unwrap();
    let request = DraftRequest { context: &[1, 2], granularity: &Response, limit: 8 };
    let drafts = generation.proposal.propose(request, &mut ChaCha8Rng::seed_from_u64(3)).unwrap();
    assert!(drafts.iter().flat_map(|draft| &draft.tokens).all(|&token| (token as usize) < own.vocab_size / 2), "{drafts:?}");
    let drafting = Drafting::Vocabulary { prior: Prior::Uniform, head: VocabularyHead::ALL };
    let mut generation = models.engine(&AdapterRack::default(), &[]).start(&drafting, &spec).unwrap();
    let tokens = generation.proposal.propose(request, &mut ChaCha8Rng::seed_from_u64(3)).unwrap();
    assert_eq!(tokens.len(), own.vocab_size / 2);
}

#[test]
fn the_memory_of_an_answer_includes_the_states_of_a_pass() {
    let config = &Fixture::new().model.config;
    let folder = tempfile::tempdir().unwrap();
    let shape = folder.path().join("config.json");
    std::fs::write(&shape, config.to_json("float32")).unwrap();
    let device = (DeviceName::Cpu, Precision::F32);
    let (models, _) = Models::random((&shape, None), device, 1, &[4], [], &mut ()).unwrap();
    let bytes = |span| models.footprint(Extent { lanes: 3, candidates: 5, span, ..Extent::default() });
    let width = 4 * config.hidden_size + 2 * config.query_size() + 2 * config.key_value_size() + config.intermediate_size;
    // A number of the widest rows is three bf16 numbers in products.
    let terms = 6 * config.intermediate_size.max(config.hidden_size).max(config.query_size());
    // The caches of candidates of 40 and of 64 tokens are equal: both have two panels.
    assert_eq!(bytes(64) - bytes(40), (3 * 5 * (64 - 40) * (width * size_of::<f32>() + terms)) as u64);
}

/// Drafts under a soup have the log-probabilities of that soup, before and after an edit of the
/// weights.
#[test]
fn a_drafter_draws_under_the_current_soup() {
    let fixture = Fixture::new();
    let rack = AdapterRack::default();
    fixture.fill(&rack);
    let seats = || fixture.adapters.iter().map(|(name, ..)| Seat::new(name.as_str(), Arc::new(Silent))).collect();
    let weights = |w: &[f64]| AlignmentSpec::new(seats(), Simplex::normalized(w.to_vec()).unwrap()).unwrap();
    let spec = SpecHandle::new(weights(&[1.0, 0.0, 0.0]));
    let sampling = Sampling::new(1.0, 1.0, 0, 1.0).unwrap();
    let config = DrafterConfig { candidates: 3, sampling, end_of_text: Vec::new(), keep_end_of_text: true };
    let soup = Soup::new(rack, spec.clone(), Merge::Exact);
    let mut drafter = Drafter::new(Arc::clone(&fixture.decoder), config).with_soup(soup);
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut context = fixture.expected.prompt.clone();
    for point in [[1.0, 0.0, 0.0], [0.2, 0.5, 0.3], [0.2, 0.5, 0.3]] {
        spec.edit(|_| Ok::<_, BoxError>(weights(&point))).unwrap();
        let request = DraftRequest { context: &context, granularity: &Response, limit: 4 };
        let drafts = drafter.propose(request, &mut rng).unwrap();
        let parts: Vec<(f64, &LoraAdapter)> = point.iter().zip(&fixture.adapters).map(|(&w, (_, _, a))| (w, a)).collect();
        let racks = Racks::default();
        racks.adapters.insert("soup", merge(Merge::Exact, &parts).unwrap());
        let mut alone = Verifier::new(Arc::clone(&fixture.decoder), racks);
        let policy = Policy::Variant("soup".into());
        let readings = alone.read(&context, &drafts, std::slice::from_ref(&policy)).unwrap();
        for (draft, reading) in drafts.iter().zip(readings.get(&policy).unwrap()) {
            let values = |v: &[f32]| -> Vec<f64> { v.iter().map(|&p| f64::from(p)).collect() };
            assert_close(&values(&draft.log_probs), &values(&reading.log_probs), LOG_PROBS);
        }
        drafter.commit(0).unwrap();
        alone.commit(0).unwrap();
        context.extend(&drafts[0].tokens);
    }
}
