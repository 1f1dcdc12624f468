//! What the check at the start detects and refuses. Its errors hold both numbers.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use sk_core::Policy;
use sk_remote::{AnswerError, Fault, IfLoaded, Kind, Probe, RemoteError};

use crate::fake::{Act, MODEL_LENGTH, Mistake};
use crate::*;

fn refusal(servers: &[Fake]) -> RemoteError {
    check(&engine(servers)).unwrap_err()
}

#[test]
fn servers_that_agree_pass() {
    for kind in Kind::ALL {
        let servers = start(kind, 2);
        let engine = engine(&servers);
        let report = check(&engine).unwrap();
        assert_eq!(report.servers.len(), 2);
        for (server, fake) in report.servers.iter().zip(&servers) {
            assert_eq!((server.role, &server.address), ("backbone", &fake.url));
            assert_eq!((server.tokenizes, server.limit), (true, Some(MODEL_LENGTH)));
            assert_eq!(server.noise, 0.0);
            // The number of requests that the documentation states.
            let stated = if kind == Kind::Sglang { 9 + 2 } else { 9 + 3 * 2 };
            assert_eq!(fake.seen().len(), stated, "{kind:?}");
        }
        let names: Vec<&str> = report.adapters.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ADAPTERS);
        assert!(report.adapters.iter().all(|(_, distance)| *distance > 0.1));
        assert_eq!(engine.context_limit(), Some(MODEL_LENGTH));
        assert_right(&read(&engine).unwrap());
    }
}

#[test]
fn a_server_that_mixes_up_adapters_in_batches_is_refused() {
    for kind in Kind::ALL {
        let servers = start(kind, 1);
        // A fault of the CPU build of vLLM: rows of the base model use another adapter's weights,
        // but only in a batch with other rows.
        servers[0].behave(|seen, _| {
            let rows = seen.body["prompt"].as_array().or(seen.body["input_ids"].as_array()).map_or(0, Vec::len);
            let mixed = Arc::new(move |_, adapter: Option<&str>| {
                (rows > 1 && adapter.is_none()).then_some(Mistake::Adapter(Some(ADAPTERS[0])))
            });
            Act::Mistake(mixed)
        });
        let error = refusal(&servers);
        let RemoteError::Mismatch { server, way, policy, expected, got, .. } = &error else { panic!("{error}") };
        assert_eq!((server, *way, policy.as_str()), (&servers[0].url, "in a mixed batch", "the base model"));
        assert!((expected - got).abs() > 1e-3);
        assert!(error.to_string().contains(&format!("{expected:.4}")) && error.to_string().contains(&format!("{got:.4}")));
    }
}

#[test]
fn an_adapter_that_changes_nothing_is_refused() {
    for kind in Kind::ALL {
        let servers = start(kind, 1);
        servers[0].set_up(|setup| {
            setup.adapters.insert(ADAPTERS[1].to_owned(), None);
        });
        let error = refusal(&servers);
        assert!(matches!(&error, RemoteError::SameAsBase { adapter, got, base, .. } if adapter == ADAPTERS[1] && got == base));
    }
}

#[test]
fn servers_of_one_role_must_have_the_same_weights() {
    for kind in Kind::ALL {
        let servers = start(kind, 3);
        servers[2].set_up(|setup| {
            setup.adapters.insert(ADAPTERS[0].to_owned(), Some("other".to_owned()));
        });
        let error = refusal(&servers);
        let RemoteError::Mismatch { server, way, policy, reference, .. } = error else { panic!("{error}") };
        assert_eq!((&server, way, policy.as_str()), (&servers[2].url, "alone", "adapter \"lora-helpful\""));
        assert_eq!(reference, format!("{} alone", servers[0].url));
    }
}

#[test]
fn tokenizers_are_compared_token_by_token() {
    for kind in Kind::ALL {
        let servers = start(kind, 1);
        let mut tokens = fake::tokenize(TEXT);
        tokens[5] = 0;
        let error = engine(&servers).check(&Probe { tokens: &tokens, text: TEXT }).unwrap_err();
        let theirs = fake::tokenize(TEXT)[5].to_string();
        let expected = RemoteError::Tokenizer { server: servers[0].url.clone(), position: 5, ours: "0".to_owned(), theirs };
        assert_eq!(error, expected);
        servers[0].set_up(|setup| setup.tokenizes = false);
        let report = check(&engine(&servers)).unwrap();
        assert!(!report.servers[0].tokenizes);
    }
}

#[test]
fn a_text_too_short_to_check_with_is_refused() {
    let servers = start(Kind::Vllm, 1);
    let error = engine(&servers).check(&Probe { tokens: &[1, 2, 3], text: TEXT }).unwrap_err();
    assert_eq!(error, RemoteError::ShortProbe { tokens: 3, least: 8 });
    assert!(servers[0].seen().is_empty());
}

#[test]
fn drafts_that_are_read_otherwise_are_refused() {
    for kind in Kind::ALL {
        let servers = start(kind, 1);
        servers[0].behave(|seen, _| {
            if !seen.drafts() {
                return Act::Serve;
            }
            Act::Alter(Arc::new(|answer| {
                for place in ["/choices/0/logprobs/token_logprobs/3", "/0/meta_info/output_token_logprobs/3/0"] {
                    if let Some(value) = answer.pointer_mut(place) {
                        *value = serde_json::json!(-9.0);
                    }
                }
            }))
        });
        let error = refusal(&servers);
        assert!(matches!(error, RemoteError::Drafted { returned, read, .. } if returned == -9.0 && read > -9.0), "{error}");
    }
}

#[test]
fn weights_that_change_after_the_check_are_noticed_in_the_same_step() {
    for kind in Kind::ALL {
        let servers = start(kind, 1);
        let engine = checked(&servers);
        servers[0].set_up(|setup| {
            setup.adapters.insert(ADAPTERS[0].to_owned(), Some("other".to_owned()));
        });
        let error = typed(read(&engine).unwrap_err());
        let RemoteError::Unanswered { last: Fault::Answer(AnswerError::Control { policy, expected, got }), .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(policy, "adapter \"lora-helpful\"");
        assert!(expected != got);
        // The other policies still work.
        let mut generation = generation(&engine);
        generation.backbone.read(&CONTEXT, &candidates(&SPANS), &[Policy::Backbone, variant("honest")]).unwrap();
    }
}

#[test]
fn adapters_are_loaded_by_every_server() {
    for kind in Kind::ALL {
        let servers = start(kind, 2);
        let engine = engine(&servers);
        let modules = |last: &str| ["q_proj".to_owned(), last.to_owned()];
        engine.load_adapter("kind", "adapters/kind", &modules("v_proj"), IfLoaded::Refuse).unwrap();
        assert!(servers.iter().all(|server| server.seen().len() == 1));
        let mut generation = generation(&engine);
        let readings = generation.backbone.read(&CONTEXT, &candidates(&SPANS), &[variant("kind")]).unwrap();
        assert_exact(&readings, &CONTEXT, &SPANS, &[(variant("kind"), Some("kind"))]);

        // The server may quote the names, which must not be taken for its reason.
        let error = engine.load_adapter("already-gone", "already-missing", &modules("v_proj"), IfLoaded::Refuse).unwrap_err();
        assert!(matches!(error, RemoteError::Refused { .. } | RemoteError::AdapterRefused { .. }), "{error}");
        assert!(error.to_string().contains("gone") && error.to_string().contains("missing"), "{error}");
        assert!(engine.adapters().get("already-gone").is_none());

        let error = engine.load_adapter("head", "adapters/head", &modules("base_model.lm_head"), IfLoaded::Refuse).unwrap_err();
        let (blade, module) = ("head".to_owned(), "base_model.lm_head".to_owned());
        assert_eq!(error, RemoteError::AdapterModule { blade, module });
    }
}

#[test]
fn a_server_that_loaded_an_adapter_before_its_answer_was_lost_is_not_an_error() {
    for kind in Kind::ALL {
        let servers = start(kind, 2);
        let engine = engine(&servers);
        servers[0].behave(|_, number| if number == 0 { Act::Cut } else { Act::Serve });
        engine.load_adapter("kind", "adapters/kind", &[], IfLoaded::Refuse).unwrap();
        assert_eq!(servers.iter().map(|server| server.seen().len()).collect::<Vec<_>>(), [2, 1]);

        let error = engine.load_adapter("kind", "adapters/kind", &[], IfLoaded::Refuse).unwrap_err();
        assert!(error.to_string().ends_with("give kind=lora:kind to use the one that it has, or unload that first"), "{error}");
        engine.load_adapter("kind", "adapters/kind", &[], IfLoaded::Keep).unwrap();
    }
}

#[test]
fn an_adapter_that_a_server_had_before_it_was_reached_is_not_taken_for_loaded() {
    for kind in Kind::ALL {
        let mut options = options(&start(kind, 1));
        options.retry.first_pause = Duration::from_millis(100);
        options.retry.longest_pause = Duration::from_secs(1);
        // A connection keeps the port while nothing listens.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let _ends = (TcpStream::connect(address).unwrap(), listener.accept().unwrap());
        drop(listener);
        options.backbone.urls = vec![format!("http://{address}")];
        // The first attempt is refused, since nothing listens yet.
        let late = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            Fake::start_on(TcpListener::bind(address).unwrap(), Setup::new(kind, &["kind"]))
        });
        let error = engine_of(options).load_adapter("kind", "adapters/kind", &[], IfLoaded::Refuse).unwrap_err();
        assert!(matches!(error, RemoteError::AdapterKnown { .. }), "{error}");
        assert_eq!(late.join().unwrap().seen().len(), 1);
    }
}

#[test]
fn a_server_that_loads_no_adapters_at_run_time_is_told_how_to() {
    let servers = start(Kind::Vllm, 1);
    let engine = engine(&servers);
    servers[0].behave(|_, _| Act::Status(404, None, r#"{"detail":"Not Found"}"#));
    let error = engine.load_adapter("kind", "adapters/kind", &[], IfLoaded::Refuse).unwrap_err().to_string();
    assert!(error.contains("VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"), "{error}");
}
