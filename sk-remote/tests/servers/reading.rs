//! Readings equal the model's numbers, for any number of servers, rows and policies.

use proptest::prelude::*;
use sk_core::{Instruction, InstructionRack, Policy, TokenId};
use sk_remote::{Key, Kind, RemoteError};

use crate::fake::{Act, Fake, MODEL_LENGTH, Setup};
use crate::*;

#[test]
fn readings_are_the_models_numbers() {
    for kind in Kind::ALL {
        for count in 1..4 {
            assert_right(&read(&engine(&start(kind, count))).unwrap());
        }
    }
}

#[test]
fn a_step_is_one_request_with_sglang_and_one_per_policy_at_once_with_vllm() {
    for (kind, requests) in [(Kind::Sglang, 1), (Kind::Vllm, 3)] {
        let servers = start(kind, 1);
        let engine = engine(&servers);
        servers[0].behave(move |_, _| Act::Meet(requests));
        assert_right(&read(&engine).unwrap());
        assert_eq!((servers[0].seen().len(), servers[0].most_at_once()), (requests, requests), "{kind:?}");
        let traffic = engine.traffic();
        assert_eq!((traffic.requests, traffic.round_trips, traffic.retries), (requests as u64, 1, 0));
        assert!(traffic.bytes_out > 100 && traffic.bytes_in > 100);
    }
}

#[test]
fn connections_are_kept() {
    for (kind, most) in [(Kind::Sglang, 1), (Kind::Vllm, 3)] {
        let servers = start(kind, 1);
        let engine = engine(&servers);
        for _ in 0..5 {
            read(&engine).unwrap();
        }
        assert!(servers[0].connections() <= most, "{kind:?}: {}", servers[0].connections());
    }
}

#[test]
fn a_policy_stays_with_its_server_and_policies_are_spread() {
    for kind in Kind::ALL {
        let servers = start(kind, 3);
        let engine = engine(&servers);
        let mut generation = generation(&engine);
        let mut context = CONTEXT.to_vec();
        for _ in 0..4 {
            generation.backbone.read(&context, &candidates(&SPANS), &policies()).unwrap();
            context.extend(SPANS[2]);
        }
        for server in &servers {
            let mut adapters: Vec<Vec<String>> = server
                .seen()
                .iter()
                .map(|seen| {
                    let mut adapters = seen.adapters();
                    adapters.dedup();
                    adapters
                })
                .collect();
            assert_eq!(adapters.len(), 4, "{kind:?}");
            adapters.dedup();
            assert_eq!(adapters.len(), 1, "{kind:?}: {adapters:?}");
        }
    }
}

#[test]
fn the_rows_of_a_policy_are_split_where_servers_are_left_over() {
    for kind in Kind::ALL {
        let servers = start(kind, 4);
        let engine = engine(&servers);
        let mut generation = generation(&engine);
        let readings = generation.backbone.read(&CONTEXT, &candidates(&SPANS), &[Policy::Backbone]).unwrap();
        assert_exact(&readings, &CONTEXT, &SPANS, &[(Policy::Backbone, None)]);
        assert!(servers.iter().all(|server| server.seen().len() == 1), "{kind:?}");
    }
}

#[test]
fn an_instruction_stands_in_the_place_of_the_opening() {
    for kind in Kind::ALL {
        let servers = start(kind, 2);
        let rack = InstructionRack::default();
        let engine = engine(&servers).with_instructions(&rack);
        rack.insert("polite", Instruction::new(2, vec![11, 12, 13]));
        rack.insert("honest", Instruction::new(1, vec![20]));
        let policies = [Policy::Backbone, variant("polite"), variant("honest")];
        let readings = generation(&engine).backbone.read(&CONTEXT, &candidates(&SPANS), &policies).unwrap();
        let polite = [&[11, 12, 13], &CONTEXT[2..]].concat();
        let honest = [&[20], &CONTEXT[1..]].concat();
        for (policy, context, adapter) in
            [(&policies[0], &CONTEXT[..], None), (&policies[1], &polite, None), (&policies[2], &honest, Some(ADAPTERS[1]))]
        {
            let expected: Vec<_> = SPANS.iter().map(|span| model::reading(adapter, context, span)).collect();
            assert_eq!(readings.get(policy).unwrap(), expected, "{policy:?}");
        }
    }
}

#[test]
fn a_long_context_is_read_ahead_once_with_sglang() {
    let servers = start(Kind::Sglang, 1);
    let engine = engine(&servers);
    let mut generation = generation(&engine);
    let context: Vec<TokenId> = (0..300).map(|place| place * 7 % VOCABULARY).collect();
    let spans = candidates(&SPANS);
    for _ in 0..3 {
        let readings = generation.backbone.read(&context, &spans, &policies()).unwrap();
        let [base, helpful, honest] = policies();
        let named = [(base, None), (helpful, Some(ADAPTERS[0])), (honest, Some(ADAPTERS[1]))];
        assert_exact(&readings, &context, &SPANS, &named);
    }
    let reads: Vec<bool> = servers[0].seen().iter().map(crate::fake::Seen::reads).collect();
    assert_eq!(reads, [false, true, true, true]);
}

#[test]
fn what_cannot_be_read_is_refused_by_name() {
    let servers = start(Kind::Vllm, 1);
    let engine = checked(&servers);
    let rack = InstructionRack::default();
    rack.insert("blank", Instruction::new(100, vec![]));
    let mut generation = generation(&engine.with_instructions(&rack));
    let mut refused = |context: &[TokenId], policy: Policy| {
        typed(generation.backbone.read(context, &candidates(&SPANS), &[policy]).unwrap_err())
    };
    let unknown = refused(&CONTEXT, variant("polite"));
    assert_eq!(unknown.to_string(), "no adapter or instruction is called \"polite\"; known: blank, helpful, honest");
    let head = refused(&CONTEXT, Policy::Head("reward".into()));
    assert!(head.to_string().starts_with("head \"reward\" is not available on servers"), "{head}");
    assert!(matches!(refused(&[], Policy::Backbone), RemoteError::EmptyContext { policy } if policy == "the base model"));
    assert!(matches!(refused(&CONTEXT, variant("blank")), RemoteError::EmptyContext { policy } if policy.contains("blank")));
    let long = refused(&[1; MODEL_LENGTH], Policy::Backbone);
    assert_eq!(long, RemoteError::ContextFull { role: "backbone", tokens: MODEL_LENGTH + 6, limit: MODEL_LENGTH });
}

#[test]
fn a_key_is_sent_and_never_shown() {
    let servers = start(Kind::Vllm, 1);
    let mut options = options(&servers);
    options.backbone = options.backbone.with_key(Key::new("sk-secret"));
    let engine = engine_of(options);
    read(&engine).unwrap();
    assert!(servers[0].seen().iter().all(|seen| seen.authorization.as_deref() == Some("Bearer sk-secret")));
    servers[0].behave(|_, _| Act::Status(401, None, r#"{"error":"Unauthorized: sk-secret"}"#));
    let error = typed(read(&engine).unwrap_err()).to_string();
    assert!(error.contains("Unauthorized: …") && !error.contains("sk-secret"), "{error}");
}

#[test]
fn a_generation_that_is_over_leaves_its_servers() {
    // A finished generation releases its lanes, so each new one finds the same least busy server.
    let servers = start(Kind::Sglang, 2);
    let engine = engine(&servers);
    for _ in 0..6 {
        let mut generation = generation(&engine);
        generation.backbone.read(&CONTEXT, &candidates(&SPANS[..1]), &[Policy::Backbone]).unwrap();
    }
    let seen: Vec<usize> = servers.iter().map(|server| server.seen().len()).collect();
    assert!(seen.contains(&6), "{seen:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Readings equal the model's numbers bit for bit, for any servers, rows and policies.
    #[test]
    fn readings_do_not_depend_on_servers_or_rows(
        kind in proptest::sample::select(&Kind::ALL[..]),
        servers in 1_usize..5,
        context in proptest::collection::vec(0..VOCABULARY, 1..30),
        spans in proptest::collection::vec(proptest::collection::vec(0..VOCABULARY, 1..7), 1..9),
        mask in 1_usize..8,
        is_checked: bool,
    ) {
        let servers: Vec<Fake> = (0..servers).map(|_| Fake::start(Setup::new(kind, &ADAPTERS))).collect();
        let engine = if is_checked { checked(&servers) } else { engine(&servers) };
        let all = policies().into_iter().zip([None, Some(ADAPTERS[0]), Some(ADAPTERS[1])]);
        let named: Vec<_> = all.enumerate().filter(|(bit, _)| mask >> bit & 1 == 1).map(|(_, named)| named).collect();
        let asked: Vec<Policy> = named.iter().map(|(policy, _)| policy.clone()).collect();
        let spans: Vec<&[TokenId]> = spans.iter().map(Vec::as_slice).collect();
        let mut generation = generation(&engine);
        for _ in 0..2 {
            let readings = generation.backbone.read(&context, &candidates(&spans), &asked).unwrap();
            assert_exact(&readings, &context, &spans, &named);
        }
    }
}
