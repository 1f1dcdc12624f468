//! The engine against a plain forward pass: one sequence at a time, no cache, all logits.

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use burn::module::Param;
use burn::tensor::{Device, Int, Tensor, TensorData};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sk_core::{
    Backbone, Candidate, Candidates, Capped, DraftRequest, Policy, Proposal, Reading, Readings, Response, SpanEnd, TokenId,
};
use sk_models::Qwen2Config;
use sk_models::decoder::{Decoder, Precision, Scheduler, Stop};
use sk_models::engine::{Drafter, DrafterConfig, EngineError, Frozen, Instruction, Racks, Sampling, Verifier};
use sk_models::lora::{AdapterStack, Lanes, LoraAdapter, LowRank, Target};
use sk_models::model::Qwen2;

/// f32 rounding through three layers; the engine adds the same products in another order.
const TOLERANCE: f32 = 1e-5;

fn config() -> Qwen2Config {
    Qwen2Config::from_json(
        "test",
        r#"{"vocab_size": 97, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
            "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": false}"#,
    )
    .unwrap()
}

fn noise(rng: &mut ChaCha8Rng, shape: [usize; 2], scale: f32) -> Tensor<2> {
    let data: Vec<f32> = (0..shape[0] * shape[1]).map(|_| scale * (rng.random::<f32>() - 0.5)).collect();
    Tensor::from_data(TensorData::new(data, shape), &Device::flex())
}

/// A model whose next-token distributions are far from uniform.
fn model() -> Arc<Qwen2> {
    static MODEL: OnceLock<Arc<Qwen2>> = OnceLock::new();
    Arc::clone(MODEL.get_or_init(|| {
        let mut model = Qwen2::random(&config(), 1, &Device::flex());
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        model.embed_tokens = Param::from_tensor(noise(&mut rng, [97, 32], 1.0));
        model.lm_head = Some(Param::from_tensor(noise(&mut rng, [32, 97], 1.0)));
        for layer in &mut model.layers {
            let (attention, mlp) = (&mut layer.self_attn, &mut layer.mlp);
            let mixing = [&mut attention.q_proj, &mut attention.k_proj, &mut attention.v_proj, &mut attention.o_proj];
            for projection in mixing.into_iter().chain([&mut mlp.gate_proj, &mut mlp.up_proj, &mut mlp.down_proj]) {
                projection.weight = Param::from_tensor(noise(&mut rng, projection.weight.val().dims(), 0.6));
            }
        }
        Arc::new(model)
    }))
}

/// The same model as a decoder, as the engine runs it.
fn decoder() -> Arc<Decoder> {
    static DECODER: OnceLock<Arc<Decoder>> = OnceLock::new();
    Arc::clone(DECODER.get_or_init(|| Arc::new(Decoder::new((*model()).clone(), Precision::F32).unwrap())))
}

fn adapter(seed: u64, rank: usize, targets: &[Target]) -> LoraAdapter {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut adapter = LoraAdapter::empty(&config());
    for layer in &mut adapter.layers {
        for &target in targets {
            let (input, output) = target.dims(&config());
            let (a, b) = (noise(&mut rng, [input, rank], 0.5), noise(&mut rng, [rank, output], 0.5));
            layer.set(target, LowRank { a, b, scale: 2.0 });
        }
    }
    adapter
}

fn helpful() -> LoraAdapter {
    adapter(2, 4, &Target::ALL)
}

fn honest() -> LoraAdapter {
    adapter(3, 2, &[Target::Query, Target::Value])
}

/// The definition: one pass over the whole sequence, one candidate, one adapter, all logits.
fn plainly(adapter: Option<&LoraAdapter>, context: &[TokenId], span: &[TokenId]) -> Reading {
    let model = model();
    let stack = adapter.map(|a| AdapterStack::new(&model.config, &[Some(a)], &model.device()).unwrap());
    let lanes = stack.as_ref().map_or(Lanes::backbone(), Lanes::of);
    let ids: Vec<i64> = context.iter().chain(span).map(|&t| i64::from(t)).collect();
    let length = ids.len();
    let tokens = Tensor::<2, Int>::from_data(TensorData::new(ids, [1, length]), &model.device());
    let logits = model.logits(model.forward(tokens, lanes), lanes).try_into_vec_as::<f32>().unwrap();
    let mut reading = Reading::default();
    for (t, &token) in span.iter().enumerate() {
        let row = &logits[(context.len() + t - 1) * 97..][..97];
        let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let entropy = row.iter().map(|z| (z - max).exp()).sum::<f32>().ln();
        reading.log_probs.push(row[token as usize] - max - entropy);
        reading.min_entropy.push(entropy);
    }
    reading
}

fn close(a: &Reading, b: &Reading) {
    assert_eq!(a.log_probs.len(), b.log_probs.len());
    let pairs = a.log_probs.iter().zip(&b.log_probs).chain(a.min_entropy.iter().zip(&b.min_entropy));
    for (x, y) in pairs {
        assert!((x - y).abs() <= TOLERANCE * (1.0 + x.abs()), "{x} against {y}");
    }
}

fn candidates(rng: &mut ChaCha8Rng, lengths: &[usize]) -> Candidates {
    let candidate = |&length: &usize| Candidate {
        tokens: (0..length).map(|_| rng.random_range(0..97)).collect(),
        log_probs: vec![-1.0; length],
        end: SpanEnd::Complete,
    };
    Candidates::new(lengths.iter().map(candidate).collect()).unwrap()
}

fn variant(name: &str) -> Policy {
    Policy::Variant(name.into())
}

/// Returns racks with two adapters.
fn racks() -> Racks {
    let racks = Racks::default();
    racks.adapters.insert("helpful", helpful());
    racks.adapters.insert("honest", honest());
    racks
}

fn verifier() -> Verifier {
    Verifier::new(decoder(), racks())
}

fn expect(readings: &Readings, policy: &Policy, adapter: Option<&LoraAdapter>, context: &[TokenId], candidates: &Candidates) {
    let read = readings.get(policy).unwrap();
    assert_eq!(read.len(), candidates.len());
    for (reading, candidate) in read.iter().zip(candidates) {
        close(reading, &plainly(adapter, context, &candidate.tokens));
    }
}

#[test]
fn one_pass_reads_what_plain_passes_read_step_after_step() {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let mut verifier = verifier();
    let policies = [Policy::Backbone, variant("helpful"), variant("honest")];
    let mut context: Vec<TokenId> = vec![5, 17, 96, 0, 3];
    for (lengths, chosen) in [(&[4, 1, 6, 2][..], 2), (&[3, 3], 0), (&[1], 0), (&[5, 2, 7], 1)] {
        let candidates = candidates(&mut rng, lengths);
        let readings = verifier.read(&context, &candidates, &policies).unwrap();
        expect(&readings, &policies[0], None, &context, &candidates);
        expect(&readings, &policies[1], Some(&helpful()), &context, &candidates);
        expect(&readings, &policies[2], Some(&honest()), &context, &candidates);
        verifier.commit(chosen).unwrap();
        context.extend(&candidates[chosen].tokens);
    }
    // An adapter must differ from the backbone, or the comparisons above show nothing.
    let last = candidates(&mut rng, &[4]);
    let (with, without) = (plainly(Some(&honest()), &context, &last[0].tokens), plainly(None, &context, &last[0].tokens));
    assert!(with.log_probs.iter().zip(&without.log_probs).any(|(a, b)| (a - b).abs() > 0.1));
}

#[test]
fn a_reading_does_not_depend_on_its_neighbours_or_on_padding() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let context = [1, 2, 3, 4];
    let joint = candidates(&mut rng, &[2, 9, 4]);
    let policies = [Policy::Backbone, variant("helpful")];
    let batch = verifier().read(&context, &joint, &policies).unwrap();
    for (i, candidate) in joint.iter().enumerate() {
        let alone = Candidates::new(vec![candidate.clone()]).unwrap();
        let single = verifier().read(&context, &alone, &policies[1..]).unwrap();
        close(&batch.get(&policies[1]).unwrap()[i], &single.get(&policies[1]).unwrap()[0]);
    }
}

/// Reads the first tokens of all candidates, and then some candidates whole. The readings equal
/// those of a single read, and after a commit the cache is right for the next step.
#[test]
fn a_reading_goes_on_from_the_first_tokens() {
    let mut rng = ChaCha8Rng::seed_from_u64(21);
    let racks = racks();
    racks.instructions.insert("honest", Instruction::new(0, vec![7, 8]));
    let mut verifier = Verifier::new(decoder(), racks);
    let policies = [Policy::Backbone, variant("helpful"), variant("honest")];
    let mut context: Vec<TokenId> = vec![5, 17, 96, 0, 3];
    // The lengths of the candidates, the length of their heads, the candidates read whole, and the
    // index of the chosen one among those.
    for (lengths, head, survivors, chosen) in [
        (&[9, 4, 6, 7][..], 4, &[0, 3][..], 1),
        // One candidate ends within its head, one ends with it, and one row is dropped.
        (&[2, 3, 8, 5], 3, &[0, 1, 3], 0),
        (&[6, 6], 5, &[1], 0),
        (&[3, 1, 2], 3, &[2, 0], 1),
    ] {
        let whole = candidates(&mut rng, lengths);
        let cut = |candidate: &Candidate| Candidate {
            tokens: candidate.tokens[..candidate.tokens.len().min(head)].to_vec(),
            log_probs: candidate.log_probs[..candidate.tokens.len().min(head)].to_vec(),
            end: candidate.end,
        };
        let heads = Candidates::new(whole.iter().map(cut).collect()).unwrap();
        let readings = verifier.read_beginnings(&context, &heads, &policies).unwrap();
        expect(&readings, &policies[1], Some(&helpful()), &context, &heads);
        let rest = Candidates::new(survivors.iter().map(|&i| whole[i].clone()).collect()).unwrap();
        let readings = verifier.read(&context, &rest, &policies).unwrap();
        expect(&readings, &policies[0], None, &context, &rest);
        expect(&readings, &policies[1], Some(&helpful()), &context, &rest);
        expect(&readings, &policies[2], Some(&honest()), &[&[7, 8], &context[..]].concat(), &rest);
        verifier.commit(chosen).unwrap();
        context.extend(&rest[chosen].tokens);
    }
    // Candidates that do not continue the heads are read from the start.
    let [one, other] = [candidates(&mut rng, &[4, 5]), candidates(&mut rng, &[6, 3])];
    verifier.read_beginnings(&context, &one, &policies).unwrap();
    let readings = verifier.read(&context, &other, &policies).unwrap();
    expect(&readings, &policies[1], Some(&helpful()), &context, &other);
}

#[test]
fn common_beginnings_of_candidates_change_no_reading() {
    let mut rng = ChaCha8Rng::seed_from_u64(15);
    let policies = [Policy::Backbone, variant("helpful")];
    let mut context: Vec<TokenId> = vec![5, 17, 96];
    let mut verifier = verifier();
    for chosen in [3, 1, 4] {
        let drawn = candidates(&mut rng, &[6, 6, 3]);
        let spans = [&drawn[0].tokens[..], &drawn[1].tokens, &drawn[0].tokens[..4], &drawn[2].tokens, &drawn[0].tokens];
        // The fourth begins as the first and goes on with tokens of its own. The fifth equals the
        // first.
        let branch = [&drawn[0].tokens[..3], &drawn[2].tokens].concat();
        let spans = [spans[0], spans[1], spans[2], &branch, spans[4]];
        let candidate = |tokens: &[TokenId]| Candidate {
            tokens: tokens.to_vec(),
            log_probs: vec![-1.0; tokens.len()],
            end: SpanEnd::Complete,
        };
        let candidates = Candidates::new(spans.into_iter().map(candidate).collect()).unwrap();
        let readings = verifier.read(&context, &candidates, &policies).unwrap();
        expect(&readings, &policies[0], None, &context, &candidates);
        expect(&readings, &policies[1], Some(&helpful()), &context, &candidates);
        // A row whose beginning was computed for another row is still committed whole.
        verifier.commit(chosen).unwrap();
        context.extend(&candidates[chosen].tokens);
    }
}

#[test]
fn adapters_come_go_and_change_between_steps() {
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let racks = racks();
    let mut verifier = Verifier::new(decoder(), racks.clone());
    let mut context: Vec<TokenId> = vec![9, 8, 7];
    let replaced = adapter(77, 3, &[Target::Up, Target::Output]);
    let sequence: [(&[Policy], Option<&LoraAdapter>); 6] = [
        (&[variant("helpful"), Policy::Backbone], Some(&helpful())),
        (&[Policy::Backbone, variant("honest"), variant("helpful")], None),
        (&[variant("honest")], Some(&honest())),
        (&[Policy::Backbone], None),
        (&[variant("honest"), Policy::Backbone], Some(&replaced)),
        (&[variant("helpful"), variant("honest"), Policy::Backbone], Some(&helpful())),
    ];
    for (step, (policies, first)) in sequence.into_iter().enumerate() {
        if step == 4 {
            racks.adapters.insert("honest", adapter(77, 3, &[Target::Up, Target::Output]));
        }
        let candidates = candidates(&mut rng, &[3, 5]);
        let readings = verifier.read(&context, &candidates, policies).unwrap();
        expect(&readings, &policies[0], first, &context, &candidates);
        verifier.commit(1).unwrap();
        context.extend(&candidates[1].tokens);
    }
}

#[test]
fn a_context_edited_between_steps_is_followed() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut verifier = verifier();
    let policy = [variant("helpful")];
    for context in [vec![1, 2, 3, 4, 5], vec![1, 2, 3], vec![1, 2, 9, 9, 9, 9], vec![7], vec![1, 2, 9, 9, 9, 9]] {
        let candidates = candidates(&mut rng, &[2, 3]);
        let readings = verifier.read(&context, &candidates, &policy).unwrap();
        expect(&readings, &policy[0], Some(&helpful()), &context, &candidates);
    }
}

#[test]
fn an_instruction_is_read_in_a_context_of_its_own() {
    let mut rng = ChaCha8Rng::seed_from_u64(16);
    let racks = racks();
    let instructions = racks.instructions.clone();
    let mut verifier = Verifier::new(decoder(), racks);
    // "calm" reads five tokens in place of the first two of the context. "honest" has an adapter
    // and reads four tokens before the context. "curt" makes the context shorter.
    let lanes: [(&str, usize, &[TokenId], Option<LoraAdapter>); 3] =
        [("calm", 2, &[40, 41, 42, 17, 3], None), ("honest", 0, &[50, 51, 52, 53], Some(honest())), ("curt", 3, &[60], None)];
    for (name, opening, tokens, _) in &lanes {
        instructions.insert(*name, Instruction::new(*opening, tokens.to_vec()));
    }
    let mut context: Vec<TokenId> = vec![5, 17, 96, 0];
    let all = [Policy::Backbone, variant("helpful"), variant("calm"), variant("honest"), variant("curt")];
    // Lanes are absent in some steps; candidates have one token or several.
    let steps: [(&[usize], usize, &[Policy]); 6] = [
        (&[4, 1, 6], 2, &all),
        (&[3, 3], 0, &all[1..]),
        (&[1, 1, 1], 1, &all),
        (&[5, 2], 1, &all[..2]),
        (&[2, 4], 0, &all),
        (&[3], 0, &all[2..3]),
    ];
    for (lengths, chosen, policies) in steps {
        let candidates = candidates(&mut rng, lengths);
        let readings = verifier.read(&context, &candidates, policies).unwrap();
        assert_eq!(readings.policies().count(), policies.len());
        for policy in policies {
            let Policy::Variant(name) = policy else {
                expect(&readings, policy, None, &context, &candidates);
                continue;
            };
            match lanes.iter().find(|(lane, ..)| *lane == &**name) {
                None => expect(&readings, policy, Some(&helpful()), &context, &candidates),
                Some((_, opening, tokens, adapter)) => {
                    let own = [tokens, &context[*opening..]].concat();
                    expect(&readings, policy, adapter.as_ref(), &own, &candidates);
                }
            }
        }
        verifier.commit(chosen).unwrap();
        context.extend(&candidates[chosen].tokens);
    }
    // A changed instruction under the same name starts a new lane.
    instructions.insert("calm", Instruction::new(0, vec![77]));
    let last = candidates(&mut rng, &[3, 2]);
    let readings = verifier.read(&context, &last, &all[2..3]).unwrap();
    expect(&readings, &all[2], None, &[&[77], &context[..]].concat(), &last);
    // The length limit applies to the lane's own context.
    instructions.insert("calm", Instruction::new(0, vec![1; 60]));
    let error = verifier.read(&context, &last, &all[2..3]).unwrap_err().to_string();
    assert!(error.contains("64"), "{error}");
}

/// Lanes under another model, with and without an adapter, read what that model computes.
#[test]
fn a_variant_reads_under_a_model_of_its_own() {
    let mut rng = ChaCha8Rng::seed_from_u64(17);
    let other = Arc::new(Decoder::random(&config(), 9, &Device::flex(), Precision::F32).unwrap());
    let racks = racks();
    racks.adapters.insert("small", honest());
    racks.readers.insert("small", Arc::clone(&other));
    racks.readers.insert("small/base", Arc::clone(&other));
    let mut verifier = Verifier::new(decoder(), racks.clone());
    let mut alone = Verifier::new(other, Racks { adapters: racks.adapters, ..Racks::default() });
    let mut context: Vec<TokenId> = vec![5, 17, 96, 0];
    for (lengths, chosen) in [(&[4, 1, 6][..], 2), (&[1, 1], 0), (&[3, 2], 1)] {
        let candidates = candidates(&mut rng, lengths);
        let policies = [Policy::Backbone, variant("helpful"), variant("small"), variant("small/base")];
        let readings = verifier.read(&context, &candidates, &policies).unwrap();
        expect(&readings, &policies[0], None, &context, &candidates);
        expect(&readings, &policies[1], Some(&helpful()), &context, &candidates);
        let wanted = alone.read(&context, &candidates, &[variant("small"), Policy::Backbone]).unwrap();
        for (lane, policy) in [("small", variant("small")), ("small/base", Policy::Backbone)] {
            let found = readings.get(&variant(lane)).unwrap();
            found.iter().zip(wanted.get(&policy).unwrap()).for_each(|(found, wanted)| close(found, wanted));
        }
        assert_ne!(readings.get(&variant("small")), readings.get(&variant("small/base")));
        verifier.commit(chosen).unwrap();
        alone.commit(chosen).unwrap();
        context.extend(&candidates[chosen].tokens);
    }
}

fn drafter(candidates: usize, keep_end_of_text: bool) -> Drafter {
    let end_of_text = vec![11, 12, 13, 14, 15, 16, 17, 18];
    let sampling = Sampling::new(1.0, 1.0, 0, 1.0).unwrap();
    Drafter::new(decoder(), DrafterConfig { candidates, sampling, end_of_text, keep_end_of_text })
}

fn draft(drafter: &mut Drafter, context: &[TokenId], limit: usize, rng: &mut dyn Rng) -> Candidates {
    let granularity = Capped { rule: Response, tokens: NonZeroUsize::new(6).unwrap() };
    drafter.propose(DraftRequest { context, granularity: &granularity, limit }, rng).unwrap()
}

#[test]
fn drafts_carry_their_own_log_probabilities_and_repeat_with_the_seed() {
    let (mut first, mut second) = (drafter(5, true), drafter(5, true));
    let (mut rng, mut again) = (ChaCha8Rng::seed_from_u64(8), ChaCha8Rng::seed_from_u64(8));
    let mut context: Vec<TokenId> = vec![4, 44];
    let mut ends = Vec::new();
    for step in 0..6 {
        let drafted = draft(&mut first, &context, 20, &mut rng);
        // The second drafter starts without a cache at each step.
        assert_eq!(tokens(&drafted), tokens(&draft(&mut second, &context, 20, &mut again)));
        second = drafter(5, true);
        for candidate in &drafted {
            let reading = plainly(None, &context, &candidate.tokens);
            for (a, b) in candidate.log_probs.iter().zip(&reading.log_probs) {
                assert!((a - b).abs() <= TOLERANCE * (1.0 + a.abs()), "{a} against {b}");
            }
            ends.push(candidate.end);
        }
        first.commit(step % 5).unwrap();
        context.extend(&drafted[step % 5].tokens);
    }
    assert!(ends.contains(&SpanEnd::Complete) && ends.contains(&SpanEnd::EndOfText));
}

fn tokens(candidates: &Candidates) -> Vec<&[TokenId]> {
    candidates.iter().map(|c| &c.tokens[..]).collect()
}

#[test]
fn an_end_of_text_is_kept_last_or_dropped_as_configured() {
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let is_end = |&t: &TokenId| (11..19).contains(&t);
    let kept = draft(&mut drafter(40, true), &[1, 2], 20, &mut rng);
    for candidate in &kept {
        let (last, rest) = candidate.tokens.split_last().unwrap();
        assert!(!rest.iter().any(is_end));
        assert_eq!(candidate.end == SpanEnd::EndOfText, is_end(last));
    }
    let dropped = draft(&mut drafter(40, false), &[1, 2], 20, &mut rng);
    // A span never begins with an end of text. Its log-probabilities are those of the distribution
    // that includes the end of text.
    for candidate in &dropped {
        let reading = plainly(None, &[1, 2], &candidate.tokens);
        for (a, b) in candidate.log_probs.iter().zip(&reading.log_probs) {
            assert!((a - b).abs() <= TOLERANCE * (1.0 + a.abs()), "{a} against {b}");
        }
    }
    assert!(dropped.iter().all(|c| !c.tokens.iter().any(is_end) && c.end == SpanEnd::Complete));
    assert!(dropped.iter().any(|c| c.tokens.len() < 6));
    let limited = draft(&mut drafter(40, false), &[1, 2], 3, &mut rng);
    assert!(limited.iter().any(|c| c.end == SpanEnd::Limit && c.tokens.len() == 3));
}

/// The log-probabilities are those of the distribution over all tokens.
#[test]
fn tokens_beyond_a_smaller_vocabulary_are_not_drafted() {
    let mut rng = ChaCha8Rng::seed_from_u64(10);
    for keep_end_of_text in [true, false] {
        let drafted = draft(&mut drafter(40, keep_end_of_text).with_vocab_size(50), &[1, 2], 20, &mut rng);
        for candidate in &drafted {
            assert!(candidate.tokens.iter().all(|&token| token < 50), "{:?}", candidate.tokens);
            let reading = plainly(None, &[1, 2], &candidate.tokens);
            for (a, b) in candidate.log_probs.iter().zip(&reading.log_probs) {
                assert!((a - b).abs() <= TOLERANCE * (1.0 + a.abs()), "{a} against {b}");
            }
        }
    }
}

#[test]
fn frozen_decoding_is_a_drafter_of_one() {
    let mut context = vec![3, 2, 1];
    Frozen::new(decoder())
        .decode(&mut context, &Sampling::greedy(), 12, &[], &mut ChaCha8Rng::seed_from_u64(0), |_| true)
        .unwrap();
    let mut greedy = Drafter::new(
        decoder(),
        DrafterConfig { candidates: 1, sampling: Sampling::greedy(), end_of_text: vec![], keep_end_of_text: true },
    );
    let request = DraftRequest { context: &[3, 2, 1], granularity: &Response, limit: 12 };
    let drafted = greedy.propose(request, &mut ChaCha8Rng::seed_from_u64(0)).unwrap();
    assert_eq!(context[3..], drafted[0].tokens);
}

#[test]
fn a_text_is_scored_like_a_candidate() {
    // More tokens than one pass scores.
    let text: Vec<u32> = (0..60).map(|i| (i * i + 3) % 11 + 1).collect();
    for from in [1, 2, 40] {
        let scores = Frozen::new(decoder()).score(&text, from, 3).unwrap();
        let reading = plainly(None, &text[..from], &text[from..]);
        assert_eq!(scores.len(), text.len() - from);
        for (place, (score, (log_prob, entropy))) in
            scores.iter().zip(reading.log_probs.iter().zip(&reading.min_entropy)).enumerate()
        {
            let near = |a: f32, b: f32| (a - b).abs() <= TOLERANCE * (1.0 + a.abs());
            assert!(near(score.log_prob, *log_prob) && near(score.top[0].1, -entropy), "token {place}: {score:?}");
            assert!(score.top.len() == 3 && score.top.is_sorted_by(|a, b| a.1 >= b.1), "{score:?}");
        }
    }
    let greedy = Frozen::new(decoder()).argmax(&text[..4]).unwrap();
    assert_eq!(Frozen::new(decoder()).score(&text[..5], 4, 1).unwrap()[0].top[0].0, greedy);
    assert!(Frozen::new(decoder()).score(&[1, 9999], 1, 0).is_err());
}

/// The test model with two weights in the first row of its head replaced: `weight` for token 5 and
/// `-weight` for token 6. If `weight` is infinite, one of the two logits is +∞, whatever the sign
/// of the hidden state.
fn damaged(weight: f32) -> Arc<Decoder> {
    let mut model = (*model()).clone();
    let head = model.lm_head.take().expect("the head is not tied").val();
    let spoilt = Tensor::from_data(TensorData::new(vec![weight, -weight], [1, 2]), &Device::flex());
    model.lm_head = Some(Param::from_tensor(head.slice_assign([0..1, 5..7], spoilt)));
    Arc::new(Decoder::new(model, Precision::F32).unwrap())
}

fn not_a_number(policy: &str, token: TokenId) -> EngineError {
    EngineError::NotANumber { policy: policy.to_owned(), token }
}

#[test]
fn nan_and_infinity_are_reported_with_the_model_and_the_token() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let config = DrafterConfig {
        candidates: 3,
        sampling: Sampling::new(1.0, 1.0, 0, 1.0).unwrap(),
        end_of_text: vec![],
        keep_end_of_text: true,
    };
    for weight in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for sampling in [Sampling::greedy(), config.sampling] {
            let mut context = vec![3, 2, 1];
            let frozen = Frozen::new(damaged(weight)).decode(&mut context, &sampling, 4, &[], &mut rng, |_| true);
            assert_eq!(frozen, Err(not_a_number("model", 1)));
            assert_eq!(context, [3, 2, 1]);
        }
        let request = DraftRequest { context: &[3, 2, 1], granularity: &Response, limit: 4 };
        let drafted = Drafter::new(damaged(weight), config.clone()).propose(request, &mut rng).unwrap_err();
        assert_eq!(drafted.downcast_ref(), Some(&not_a_number("model that drafts", 1)));

        let candidate = Candidate { tokens: vec![7, 8], log_probs: vec![-1.0; 2], end: SpanEnd::Complete };
        let candidates = Candidates::new(vec![candidate]).unwrap();
        let read =
            Verifier::new(damaged(weight), Racks::default()).read(&[3, 2, 1], &candidates, &[Policy::Backbone]).unwrap_err();
        assert_eq!(read.downcast_ref(), Some(&not_a_number("backbone", 7)));
    }
}

/// A race reads one-token beginnings, then whole survivors; a fallback then reads one-token
/// candidates of the same context.
#[test]
fn one_token_candidates_after_longer_ones_are_read_again() {
    let mut rng = ChaCha8Rng::seed_from_u64(13);
    let policies = [Policy::Backbone, variant("honest")];
    let (heads, survivors) = (candidates(&mut rng, &[1, 1, 1, 1]), candidates(&mut rng, &[2, 3]));
    let fallback = candidates(&mut rng, &[1, 1, 1, 1]);
    let mut verifier = Verifier::new(decoder(), racks());
    verifier.read_beginnings(&[1, 2], &heads, &policies).unwrap();
    verifier.read(&[1, 2], &survivors, &policies).unwrap();
    verifier.read(&[1, 2], &fallback, &policies).unwrap();
    verifier.commit(3).unwrap();
    // The context grew by the committed token, and by nothing of the survivors.
    let context = [&[1, 2][..], &fallback[3].tokens].concat();
    let next = candidates(&mut rng, &[2, 4]);
    let kept = verifier.read(&context, &next, &policies).unwrap();
    let anew = Verifier::new(decoder(), racks()).read(&context, &next, &policies).unwrap();
    for policy in &policies {
        for (kept, anew) in kept.get(policy).unwrap().iter().zip(anew.get(policy).unwrap()) {
            for (kept, anew) in kept.log_probs.iter().zip(&anew.log_probs) {
                // Roundings of products in another order.
                assert!((kept - anew).abs() < 1e-4, "{kept} {anew}");
            }
        }
    }
}

#[test]
fn an_adapter_with_nan_affects_only_its_own_lane() {
    let mut spoilt = honest();
    let (input, output) = Target::Up.dims(&config());
    let device = Device::flex();
    let change = LowRank { a: Tensor::full([input, 1], f32::NAN, &device), b: Tensor::ones([1, output], &device), scale: 1.0 };
    spoilt.layers[2].set(Target::Up, change);
    let racks = racks();
    racks.adapters.insert("spoilt", spoilt);
    let mut verifier = Verifier::new(decoder(), racks);
    let candidates = candidates(&mut ChaCha8Rng::seed_from_u64(12), &[3, 2]);
    let read = verifier.read(&[1, 2], &candidates, &[Policy::Backbone, variant("spoilt")]).unwrap_err();
    assert!(read.to_string().contains("the backbone under adapter \"spoilt\" returned NaN"), "{read}");
    let readings = verifier.read(&[1, 2], &candidates, &[Policy::Backbone, variant("honest")]).unwrap();
    expect(&readings, &variant("honest"), Some(&honest()), &[1, 2], &candidates);
}

#[test]
fn contexts_and_names_that_do_not_fit_are_named() {
    let mut rng = ChaCha8Rng::seed_from_u64(10);
    let error = |context: &[TokenId], lengths: &[usize], policy: Policy, rng: &mut ChaCha8Rng| {
        let error = verifier().read(context, &candidates(rng, lengths), &[policy]).unwrap_err();
        error.downcast_ref::<EngineError>().expect("an engine error").clone()
    };
    assert!(matches!(
        error(&[1; 60], &[2, 5], Policy::Backbone, &mut rng),
        EngineError::ContextFull { tokens: 65, limit: 64, .. }
    ));
    assert!(matches!(error(&[1, 97], &[2], Policy::Backbone, &mut rng), EngineError::Vocabulary { token: 97, .. }));
    assert_eq!(error(&[], &[2], Policy::Backbone, &mut rng), EngineError::EmptyContext { role: "backbone" });
    assert!(matches!(Frozen::new(decoder()).argmax(&[]), Err(EngineError::EmptyContext { .. })));
    let unknown = error(&[1], &[2], variant("funny"), &mut rng);
    assert!(unknown.to_string().contains("\"funny\"; loaded: helpful, honest"));
    let full = Drafter::new(
        decoder(),
        DrafterConfig { candidates: 1, sampling: Sampling::greedy(), end_of_text: vec![], keep_end_of_text: true },
    )
    .propose(DraftRequest { context: &[1; 64], granularity: &Response, limit: 5 }, &mut rng);
    assert!(full.unwrap_err().to_string().contains("the drafter holds 64"));
}

/// Drafts and reads a few steps from the context of generation `own`. Returns the tokens and all
/// readings, to be compared bit for bit.
fn generate(model: &Arc<Decoder>, own: u64) -> (Vec<TokenId>, Vec<Reading>) {
    let mut rng = ChaCha8Rng::seed_from_u64(own);
    let mut context: Vec<TokenId> = (0..3 + own as u32).map(|i| (7 * i + own as u32) % 97).collect();
    let sampling = Sampling::new(1.0, 0.9, 0, 1.0).unwrap();
    let config = DrafterConfig { candidates: 2 + own as usize % 3, sampling, end_of_text: vec![], keep_end_of_text: true };
    let mut drafter = Drafter::new(Arc::clone(model), config);
    let mut verifier = Verifier::new(Arc::clone(model), racks());
    let policies = if own.is_multiple_of(2) {
        vec![Policy::Backbone, variant("helpful")]
    } else {
        vec![variant("honest"), Policy::Backbone, variant("helpful")]
    };
    let mut seen = Vec::new();
    for step in 0..3 + own as usize % 2 {
        let request = DraftRequest { context: &context, granularity: &Response, limit: 3 + own as usize % 4 };
        let drafted = drafter.propose(request, &mut rng).unwrap();
        let read = verifier.read(&context, &drafted, &policies).unwrap();
        policies.iter().for_each(|policy| seen.extend(read.get(policy).unwrap().iter().cloned()));
        let chosen = step % drafted.len();
        drafter.commit(chosen).unwrap();
        verifier.commit(chosen).unwrap();
        context.extend(&drafted[chosen].tokens);
    }
    (context, seen)
}

#[test]
fn concurrent_generations_equal_separate_ones() {
    let alone: Vec<_> = (0..7).map(|own| generate(&decoder(), own)).collect();
    let scheduler = Scheduler::new();
    let model = Arc::new(Decoder::new((*model()).clone(), Precision::F32).unwrap().scheduled(&scheduler));
    let gate = std::sync::Barrier::new(7);
    let side_by_side: Vec<_> = std::thread::scope(|scope| {
        let generation = |own| {
            let (model, scheduler, gate) = (&model, &scheduler, &gate);
            scope.spawn(move || {
                let _here = scheduler.join(&Stop::new());
                gate.wait();
                generate(model, own)
            })
        };
        let threads: Vec<_> = (0..7).map(generation).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(side_by_side, alone);
    // A thread that has not entered the scheduler runs its passes at once.
    assert_eq!(generate(&model, 3), alone[3]);
}

/// The results of a row are bit-identical in any batch: the order of its sums depends neither on
/// the number of rows in a pass nor on the other rows. With AMX tiles this holds among passes of at
/// least sixteen rows, as here. At these depths, many rows are read in several sweeps; the
/// vocabulary has several parts.
#[test]
fn a_candidate_reads_to_the_same_bits_in_any_batch() {
    let config = Qwen2Config::from_json(
        "test",
        r#"{"vocab_size": 3000, "hidden_size": 64, "intermediate_size": 2000, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "max_position_embeddings": 256, "tie_word_embeddings": true}"#,
    )
    .unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let spans: Vec<Vec<TokenId>> = (0..40).map(|_| (0..24).map(|_| rng.random_range(0..3000)).collect()).collect();
    let candidates = |spans: &[Vec<TokenId>]| {
        let candidate = |tokens: &Vec<TokenId>| Candidate {
            log_probs: vec![-1.0; tokens.len()],
            tokens: tokens.clone(),
            end: SpanEnd::Limit,
        };
        Candidates::new(spans.iter().map(candidate).collect()).unwrap()
    };
    for precision in [Precision::F32, Precision::Bf16, Precision::Int8] {
        let decoder = Arc::new(Decoder::random(&config, 5, &Device::flex(), precision).unwrap());
        let read = |spans: &[Vec<TokenId>]| {
            let racks = Racks::default();
            racks.adapters.insert("calm", LoraAdapter::random(&config, 4, 3, &Device::flex()));
            let mut verifier = Verifier::new(Arc::clone(&decoder), racks);
            let policies = [Policy::Backbone, variant("calm")];
            let readings = verifier.read(&[1, 2, 3], &candidates(spans), &policies).unwrap();
            policies.map(|policy| readings.get(&policy).unwrap().to_vec())
        };
        let all = read(&spans);
        for some in [0..1, 3..8, 10..33] {
            for (found, expected) in read(&spans[some.clone()]).iter().zip(&all) {
                for (found, expected) in found.iter().zip(&expected[some.clone()]) {
                    assert_eq!(
                        (&found.log_probs, &found.min_entropy),
                        (&expected.log_probs, &expected.min_entropy),
                        "{precision:?}"
                    );
                }
            }
        }
    }
}
