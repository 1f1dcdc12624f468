//! Whole steps: propose, read, choose and commit.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sk_core::{BoxError, Candidates, Capped, DraftRequest, Engine, Response, Sampling, SpanEnd, TokenId};
use sk_remote::{Kind, RemoteEngine, RemoteOptions};

use crate::fake::Act;
use crate::*;

/// Drafts three spans.
pub(crate) fn draft(engine: &RemoteEngine, seed: u64) -> Result<Candidates, BoxError> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let request = DraftRequest { context: &CONTEXT, granularity: &Response, limit: 6 };
    generation(engine).proposal.propose(request, &mut rng)
}

/// Generates by the paper's rule with equal weights: the candidate with the largest gain of its
/// adapters over the backbone is chosen. Checks every number.
fn generate(engine: &RemoteEngine, sampling: Sampling, steps: usize) -> Vec<TokenId> {
    let mut generation = engine.start(&sampled(5, sampling), &spec()).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut context = CONTEXT.to_vec();
    let rule = Capped { rule: Response, tokens: NonZeroUsize::new(4).unwrap() };
    for _ in 0..steps {
        let request = DraftRequest { context: &context, granularity: &rule, limit: 10 };
        let candidates = generation.proposal.propose(request, &mut rng).unwrap();
        let readings = generation.backbone.read(&context, &candidates, &policies()).unwrap();
        let spans: Vec<&[TokenId]> = candidates.iter().map(|candidate| &candidate.tokens[..]).collect();
        let [base, helpful, honest] = policies();
        let named = [(base, None), (helpful, Some(ADAPTERS[0])), (honest, Some(ADAPTERS[1]))];
        assert_exact(&readings, &context, &spans, &named);
        let mean = |policy: &Policy, row: usize| -> f32 {
            let values = &readings.get(policy).unwrap()[row].log_probs;
            values.iter().sum::<f32>() / values.len() as f32
        };
        let gain = |row: usize| mean(&named[1].0, row) + mean(&named[2].0, row) - 2.0 * mean(&named[0].0, row);
        let best = (0..candidates.len()).max_by(|&a, &b| gain(a).total_cmp(&gain(b))).unwrap();
        // A scheme would use this draw of the same generator to choose.
        let _: f64 = rng.random();
        generation.backbone.commit(best).unwrap();
        generation.proposal.commit(best).unwrap();
        context.extend(&candidates[best].tokens);
        if candidates[best].end == SpanEnd::EndOfText {
            break;
        }
    }
    context
}

#[test]
fn a_generation_is_the_same_whatever_serves_it() {
    for sampling in [plain(), Sampling::new(0.7, 1.0, 0, 1.0).unwrap()] {
        let texts: Vec<Vec<Vec<TokenId>>> = Kind::ALL
            .iter()
            .map(|&kind| [1, 2, 5].map(|count| generate(&checked(&start(kind, count)), sampling, 6)).to_vec())
            .collect();
        for texts in &texts {
            assert!(texts[0].len() > CONTEXT.len() + 4);
            assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
        }
    }
}

#[test]
fn faults_on_the_way_change_no_token() {
    for kind in Kind::ALL {
        let expected = generate(&checked(&start(kind, 1)), plain(), 5);
        let servers = start(kind, 2);
        let mut options = options(&servers);
        // A request may meet faults in a row.
        options.retry.attempts = 20;
        let engine = engine_of(options);
        check(&engine).unwrap();
        for (place, server) in servers.iter().enumerate() {
            server.behave(move |_, number| match (number + 3 * place) % 6 {
                1 => Act::Status(500, None, "oops"),
                3 => Act::Cut,
                _ => Act::Serve,
            });
        }
        let before = engine.traffic();
        assert_eq!(generate(&engine, plain(), 5), expected, "{kind:?}");
        assert!(engine.traffic().since(before).retries > 1);
    }
}

#[test]
fn a_generation_counts_its_traffic_and_the_engine_all() {
    let servers = start(Kind::Sglang, 1);
    let engine = engine(&servers);
    let mut one = generation(&engine);
    read(&engine).unwrap();
    assert!(one.backbone.traffic().is_none());
    one.backbone.read(&CONTEXT, &candidates(&SPANS), &policies()).unwrap();
    let step = one.backbone.traffic();
    assert_eq!((step.requests, step.round_trips), (1, 1));
    assert_eq!((engine.traffic().requests, engine.traffic().bytes_in), (2, 2 * step.bytes_in));
}

#[test]
fn users_do_not_wait_for_each_other() {
    let servers = start(Kind::Vllm, 1);
    let options: RemoteOptions = options(&servers);
    let engine = engine_of(options);
    // Each user has a request per policy.
    let requests = 8 * policies().len();
    servers[0].behave(move |_, _| Act::Meet(requests));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_right(&read(&engine).unwrap()));
        }
    });
    assert_eq!(servers[0].most_at_once(), requests);
}
