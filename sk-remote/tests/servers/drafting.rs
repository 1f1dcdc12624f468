//! Candidates are drawn from a seed, cut where the granularity ρ ends a span, and carry the model's
//! own log-probabilities.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sk_core::{
    Candidates, Capped, DraftModel, DraftRequest, Drafting, Engine, Granularity, Merge, Prior, Response, Sampling, SpanEnd,
    TokenId, VocabularyHead,
};
use sk_remote::{Kind, RemoteEngine, RemoteError};

use crate::fake::Act;
use crate::*;

fn propose(engine: &RemoteEngine, drafting: &Drafting, granularity: &dyn Granularity, limit: usize, seed: u64) -> Candidates {
    let mut generation = engine.start(drafting, &spec()).unwrap();
    let request = DraftRequest { context: &CONTEXT, granularity, limit };
    generation.proposal.propose(request, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap()
}

fn spans(candidates: &Candidates) -> Vec<Vec<TokenId>> {
    candidates.iter().map(|candidate| candidate.tokens.clone()).collect()
}

fn with(sampled: Drafting, keep: bool, most: usize) -> Drafting {
    match sampled {
        Drafting::Sampled { model, candidates, sampling, .. } => {
            Drafting::Sampled { model, candidates, sampling, keep_end_of_text: keep, span_tokens: NonZeroUsize::new(most) }
        }
        other => other,
    }
}

/// Checks that each log-probability is the model's own, before temperature.
fn assert_untempered(candidates: &Candidates) {
    for candidate in candidates {
        assert_eq!(candidate.log_probs, model::reading(None, &CONTEXT, &candidate.tokens).log_probs);
    }
}

#[test]
fn candidates_carry_the_models_own_log_probabilities() {
    for kind in Kind::ALL {
        for tempered in [false, true] {
            for is_checked in [false, true] {
                let servers = start(kind, 1);
                servers[0].set_up(|setup| setup.tempered = tempered);
                let engine = if is_checked { checked(&servers) } else { engine(&servers) };
                for (temperature, is_altered) in [(1.0, false), (0.6, true), (0.0, true)] {
                    let sampling = Sampling::new(temperature, 1.0, 0, 1.0).unwrap();
                    servers[0].behave(|_, _| Act::Serve);
                    let candidates = propose(&engine, &sampled(5, sampling), &Response, 9, 1);
                    assert_untempered(&candidates);
                    // Drafts are read back, unless the check has shown that this is not needed.
                    let is_read = servers[0].seen().iter().any(fake::Seen::reads);
                    assert_eq!(is_read, is_altered && (tempered || !is_checked), "{kind:?} {temperature} {is_checked}");
                }
            }
        }
    }
}

#[test]
fn spans_end_where_the_rule_the_limit_or_the_text_does() {
    for kind in Kind::ALL {
        let servers = start(kind, 1);
        let engine = engine(&servers);
        let three = Capped { rule: Response, tokens: NonZeroUsize::new(3).unwrap() };
        for candidate in &propose(&engine, &sampled(40, plain()), &three, 50, 3) {
            match candidate.end {
                SpanEnd::Complete => assert!(candidate.tokens.len() == 3 && !candidate.tokens.contains(&END)),
                SpanEnd::EndOfText => {
                    assert_eq!(candidate.tokens.iter().position(|&token| token == END), Some(candidate.tokens.len() - 1));
                }
                SpanEnd::Limit => panic!("{candidate:?}"),
            }
        }
        // A span is drafted in pieces. The first has 32 tokens, so these spans take three pieces.
        let long = propose(&engine, &sampled(12, plain()), &Response, 150, 4);
        assert!(long.iter().any(|candidate| candidate.end == SpanEnd::EndOfText && candidate.tokens.len() > 32), "{kind:?}");
        assert!(long.iter().all(|candidate| candidate.end != SpanEnd::Limit || candidate.tokens.len() == 150));
        assert_untempered(&long);
        let capped = propose(&engine, &with(sampled(8, plain()), true, 4), &Response, 150, 5);
        assert!(capped.iter().all(|candidate| candidate.tokens.len() <= 4));
        assert!(capped.iter().any(|candidate| candidate.end == SpanEnd::Limit));
    }
}

#[test]
fn an_end_of_text_that_is_dropped_completes_a_span_and_never_opens_one() {
    for kind in Kind::ALL {
        let servers = start(kind, 1);
        for tempered in [true, false] {
            servers[0].set_up(|setup| setup.tempered = tempered);
            let engine = checked(&servers);
            let dropped = propose(&engine, &with(sampled(60, plain()), false, 40), &Response, 40, 6);
            assert!(dropped.iter().all(|candidate| !candidate.tokens.contains(&END)), "{kind:?}");
            assert!(dropped.iter().any(|candidate| candidate.end == SpanEnd::Complete));
            assert_untempered(&dropped);
        }
        let engine = engine(&servers);
        let kept = propose(&engine, &with(sampled(60, plain()), true, 40), &Response, 40, 6);
        assert!(kept.iter().any(|candidate| candidate.end == SpanEnd::EndOfText));
    }
}

#[test]
fn draws_depend_on_the_generator_and_on_nothing_else() {
    for kind in Kind::ALL {
        let (one, three) = (start(kind, 1), start(kind, 3));
        let draw = |servers: &[Fake], seed| spans(&propose(&engine(servers), &sampled(6, plain()), &Response, 8, seed));
        assert_eq!(draw(&one, 1), draw(&three, 1), "{kind:?}");
        assert_ne!(draw(&one, 1), draw(&one, 2));
        let drawn = draw(&one, 1);
        assert!(drawn.iter().any(|span| *span != drawn[0]), "{kind:?}: rows share a seed");
    }
}

#[test]
fn greedy_rows_are_drawn_once() {
    for kind in Kind::ALL {
        let servers = start(kind, 1);
        let engine = engine(&servers);
        let candidates = propose(&engine, &sampled(4, Sampling::greedy()), &Response, 6, 1);
        assert_eq!(candidates.len(), 4);
        assert!(candidates.iter().all(|candidate| *candidate == candidates[0]), "{kind:?}");
        let (tokens, mut state) = (&candidates[0].tokens, model::State::new(None).after(&CONTEXT));
        for &token in tokens {
            assert_eq!(token, model::top(&state.log_probs(1.0)).0);
            state = state.after(&[token]);
        }
    }
}

#[test]
fn a_drafter_of_its_own_drafts() {
    let (backbone, drafter) = (start(Kind::Sglang, 1), start(Kind::Vllm, 1));
    let mut options = options(&backbone);
    options.drafter = Some(role(&drafter));
    let engine = engine_of(options);
    assert_eq!(check(&engine).unwrap().servers.iter().map(|server| server.role).collect::<Vec<_>>(), ["backbone", "drafter"]);
    backbone[0].behave(|_, _| Act::Serve);
    drafter[0].behave(|_, _| Act::Serve);
    propose(&engine, &sampled(4, plain()), &Response, 6, 1);
    assert_eq!((backbone[0].seen().len(), drafter[0].seen().len()), (0, 1));
    let Drafting::Sampled { candidates, sampling, keep_end_of_text, span_tokens, .. } = sampled(4, plain()) else { panic!() };
    let model = DraftModel::Backbone;
    let own = Drafting::Sampled { model, candidates, sampling, keep_end_of_text, span_tokens };
    propose(&engine, &own, &Response, 6, 1);
    assert_eq!((backbone[0].seen().len(), drafter[0].seen().len()), (1, 1));
}

#[test]
fn what_cannot_be_drafted_is_refused_by_name() {
    let servers = start(Kind::Vllm, 1);
    let engine = engine(&servers);
    let Drafting::Sampled { candidates, sampling, keep_end_of_text, span_tokens, .. } = sampled(4, plain()) else { panic!() };
    let model = DraftModel::Soup(Merge::Exact);
    let soup = Drafting::Sampled { model, candidates, sampling, keep_end_of_text, span_tokens };
    let error = typed(engine.start(&soup, &spec()).err().unwrap());
    assert!(matches!(error, RemoteError::Unsupported { .. }) && error.to_string().contains("a soup of adapters"), "{error}");
    assert!(servers[0].seen().is_empty());

    let penalised = sampled(4, Sampling::new(1.0, 1.0, 0, 1.05).unwrap());
    assert!(engine.start(&penalised, &spec()).is_ok());
    let servers = start(Kind::Sglang, 1);
    let error = typed(crate::engine(&servers).start(&penalised, &spec()).err().unwrap());
    assert!(matches!(error, RemoteError::Unsupported { .. }) && error.to_string().contains("penalty of 1.05"), "{error}");
}

/// The `count` most probable next tokens of the model, in order of their ids, and the sum of their
/// probabilities.
fn most_probable(count: usize) -> (Vec<(TokenId, f32)>, f32) {
    let log_probs = model::State::new(None).after(&CONTEXT).log_probs(1.0);
    let mut all: Vec<(TokenId, f32)> = (0..).zip(log_probs).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all.truncate(count);
    all.sort_by_key(|(token, _)| *token);
    let mass = all.iter().map(|(_, log_prob)| log_prob.exp()).sum();
    (all, mass)
}

#[test]
fn of_a_vocabulary_the_most_probable_tokens_are_candidates_renormalised() {
    let propose = |engine: &RemoteEngine, prior, head| propose(engine, &Drafting::Vocabulary { prior, head }, &Response, 9, 0);
    for kind in Kind::ALL {
        let engine = engine(&start(kind, 1));
        let same = |candidates: &Candidates, expected: &[(TokenId, f32)]| {
            assert_eq!(candidates.len(), expected.len());
            for (candidate, (token, log_prob)) in candidates.iter().zip(expected) {
                assert_eq!(candidate.tokens, [*token]);
                assert!((candidate.log_probs[0] - log_prob).abs() < 1e-5, "{kind:?}: {candidate:?} {log_prob}");
                assert_eq!(candidate.end, if *token == END { SpanEnd::EndOfText } else { SpanEnd::Complete });
            }
        };
        for (asked, had) in [(0, 20), (5, 5), (50, 20)] {
            let (all, mass) = most_probable(had);
            let expected: Vec<_> = all.iter().map(|(token, log_prob)| (*token, log_prob - mass.ln())).collect();
            let candidates = propose(&engine, Prior::Backbone, VocabularyHead::new(asked, 0.0).unwrap());
            assert_eq!(candidates.head(), Some(had));
            same(&candidates, &expected);
        }
        let (all, _) = most_probable(20);
        let most = all.iter().map(|(_, log_prob)| *log_prob).fold(f32::NEG_INFINITY, f32::max);
        let plausible: Vec<_> = all.iter().filter(|(_, log_prob)| *log_prob >= most + 0.5_f32.ln()).collect();
        let candidates = propose(&engine, Prior::Uniform, VocabularyHead::new(0, 0.5).unwrap());
        let uniform = -(plausible.len() as f32).ln();
        same(&candidates, &plausible.iter().map(|(token, _)| (*token, uniform)).collect::<Vec<_>>());
        assert!(candidates.len() < 20 && candidates.head() == Some(candidates.len()));
        // The drafter is the backbone here, so the numbers are the same.
        same(&propose(&engine, Prior::Drafter, VocabularyHead::ALL), &{
            let (all, mass) = most_probable(20);
            all.iter().map(|(token, log_prob)| (*token, log_prob - mass.ln())).collect::<Vec<_>>()
        });
    }
}

#[test]
fn too_few_tokens_of_a_vocabulary_are_asked_for_again() {
    for kind in Kind::ALL {
        let servers = start(kind, 1);
        servers[0].behave(|_, number| match number {
            0 => Act::Alter(std::sync::Arc::new(|answer| {
                match answer.pointer_mut("/choices/0/logprobs/top_logprobs/0") {
                    Some(tops) => *tops = serde_json::json!({"token_id:3": -0.5}),
                    None => answer[0]["meta_info"]["output_top_logprobs"] = serde_json::json!([[[-0.5, 3, null]]]),
                };
            })),
            _ => Act::Serve,
        });
        let vocabulary = Drafting::Vocabulary { prior: Prior::Backbone, head: VocabularyHead::ALL };
        assert_eq!(propose(&engine(&servers), &vocabulary, &Response, 9, 0).len(), 20);
        assert_eq!(servers[0].seen().len(), 2);
    }
}

#[test]
fn a_draft_without_a_context_is_refused() {
    let engine = engine(&start(Kind::Sglang, 1));
    let mut generation = generation(&engine);
    let request = DraftRequest { context: &[], granularity: &Response, limit: 5 };
    let error = generation.proposal.propose(request, &mut ChaCha8Rng::seed_from_u64(0)).unwrap_err();
    assert_eq!(typed(error), RemoteError::EmptyContext { policy: "the backbone".to_owned() });
}
