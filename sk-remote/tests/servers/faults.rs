//! Servers that fail or send wrong numbers: the outcome is a typed error or a successful retry,
//! never a wrong number.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sk_remote::{AnswerError, Fault, Key, Kind, RemoteError};

use crate::fake::{Act, Mistake};
use crate::*;

type IsExpected = fn(&Fault) -> bool;

/// The name of the fault that takes as long as the client is patient.
const HANG: &str = "hang";

/// Returns an engine that has checked its servers. It waits two seconds for a server that hangs.
fn facing(fault: &str, servers: &[Fake]) -> RemoteEngine {
    let mut options = options(servers);
    if fault == HANG {
        options.retry.patience = Duration::from_secs(2);
    }
    let engine = engine_of(options);
    check(&engine).unwrap();
    engine
}

fn altered(change: impl Fn(&mut Value) + Send + Sync + 'static) -> Act {
    Act::Alter(Arc::new(change))
}

/// The rows of an answer, for either kind of server.
fn rows(answer: &mut Value) -> &mut Vec<Value> {
    let rows = if answer.is_array() { answer } else { &mut answer["choices"] };
    rows.as_array_mut().unwrap()
}

/// The entry of the second token of the first row: an object by token id, or a list.
fn entry(answer: &mut Value) -> &mut Value {
    let row = &mut rows(answer)[0];
    if row.get("meta_info").is_some() {
        &mut row["meta_info"]["input_token_logprobs"][2]
    } else {
        &mut row["prompt_logprobs"][CONTEXT.len() + 1]
    }
}

/// Sets the log-probability of the second token of the first row.
fn set_value(answer: &mut Value, value: &Value) {
    let target = SPANS[0][1].to_string();
    match entry(answer) {
        Value::Array(entry) => entry[0] = value.clone(),
        entry => entry[&target]["logprob"] = value.clone(),
    }
}

/// Answers with a fault in one row.
fn mistaken(mistake: Mistake, row: usize) -> Act {
    Act::Mistake(Arc::new(move |place, _| (place == row).then(|| mistake.clone())))
}

/// Every fault of a single answer: its name, how the server behaves, and the expected error.
fn all_faults() -> Vec<(&'static str, Act, IsExpected)> {
    let answer: IsExpected = |fault| matches!(fault, Fault::Answer(_));
    let body: IsExpected = |fault| matches!(fault, Fault::Body { .. });
    let connection: IsExpected = |fault| matches!(fault, Fault::Connection { .. });
    vec![
        ("429", Act::Status(429, None, r#"{"error":{"message":"busy"}}"#), |fault| {
            *fault == Fault::Status { status: 429, message: "busy".to_owned() }
        }),
        ("500", Act::Status(500, None, "Internal Server Error"), |fault| matches!(fault, Fault::Status { status: 500, .. })),
        ("503", Act::Status(503, Some("0"), ""), |fault| matches!(fault, Fault::Status { status: 503, .. })),
        (HANG, Act::Hang(LONG), |fault| matches!(fault, Fault::TimedOut { .. })),
        ("closed", Act::Close, connection),
        ("cut body", Act::Cut, connection),
        ("an empty body", altered(|answer| *answer = Value::Null), body),
        ("malformed JSON", Act::Replace(":", ";"), body),
        ("NaN as Python writes it", Act::Replace("null", "NaN"), body),
        (
            "no number",
            altered(|answer| set_value(answer, &Value::Null)),
            |fault| matches!(fault, Fault::Answer(AnswerError::Value { row: 0, position: 1, value }) if value.is_nan()),
        ),
        ("a number out of range", altered(|answer| set_value(answer, &json!(-1e300))), |fault| {
            matches!(fault, Fault::Answer(AnswerError::Value { .. }) | Fault::Body { .. })
        }),
        (
            "a positive log-probability",
            altered(|answer| set_value(answer, &json!(0.5))),
            |fault| matches!(fault, Fault::Answer(AnswerError::Value { row: 0, position: 1, value }) if *value == 0.5),
        ),
        ("a token above the most probable", altered(|answer| set_value(answer, &json!(-1e-6))), |fault| {
            matches!(fault, Fault::Answer(AnswerError::Top { row: 0, position: 1, .. }))
        }),
        ("a missing row", altered(|answer| drop(rows(answer).pop())), |fault| {
            matches!(fault, Fault::Answer(AnswerError::Rows { .. }))
        }),
        (
            "a row twice",
            altered(|answer| {
                let row = rows(answer)[0].clone();
                rows(answer)[1] = row;
            }),
            answer,
        ),
        (
            "swapped rows",
            altered(|answer| {
                rows(answer).swap(0, 1);
                // vLLM identifies rows by an index, so renumber them.
                for (index, row) in rows(answer).iter_mut().enumerate().filter(|(_, row)| row.get("index").is_some()) {
                    row["index"] = json!(index);
                }
            }),
            answer,
        ),
        (
            "a missing position",
            altered(|answer| {
                let row = &mut rows(answer)[0];
                let list = if row.get("meta_info").is_some() {
                    &mut row["meta_info"]["input_token_logprobs"]
                } else {
                    &mut row["prompt_logprobs"]
                };
                list.as_array_mut().unwrap().pop();
            }),
            |fault| matches!(fault, Fault::Answer(AnswerError::Positions { row: 0, .. })),
        ),
        (
            "other ids",
            altered(|answer| match entry(answer) {
                Value::Array(entry) => entry[1] = json!(40),
                entry => *entry = json!({"40": {"logprob": -0.5, "rank": 1}}),
            }),
            |fault| matches!(fault, Fault::Answer(AnswerError::Tokens { row: 0, .. })),
        ),
        ("a stale row", mistaken(Mistake::Stale, 1), |fault| matches!(fault, Fault::Answer(AnswerError::Disagreement { .. }))),
        ("another adapter's row", mistaken(Mistake::Adapter(Some("foreign")), 1), |fault| {
            matches!(fault, Fault::Answer(AnswerError::Disagreement { .. }))
        }),
        ("another adapter's rows", Act::Mistake(Arc::new(|_, _| Some(Mistake::Adapter(Some("foreign"))))), |fault| {
            matches!(fault, Fault::Answer(AnswerError::Control { .. }))
        }),
    ]
}

#[test]
fn an_answer_that_fails_once_is_asked_for_again() {
    for kind in Kind::ALL {
        for (name, act, _) in all_faults() {
            let servers = start(kind, 1);
            let engine = facing(name, &servers);
            let before = engine.traffic();
            servers[0].behave(move |_, number| if number == 0 { act.clone() } else { Act::Serve });
            let readings = read(&engine).unwrap_or_else(|error| panic!("{kind:?}, {name}: {error}"));
            assert_right(&readings);
            // Where time-outs are short, other requests may exceed theirs.
            let retries = engine.traffic().since(before).retries;
            assert!(retries == 1 || (name == HANG && retries > 1), "{kind:?}, {name}: {retries}");
        }
    }
}

#[test]
fn an_answer_that_fails_always_is_a_typed_error() {
    for kind in Kind::ALL {
        for (name, act, is_expected) in all_faults() {
            let servers = start(kind, 1);
            let engine = facing(name, &servers);
            servers[0].behave(move |_, _| act.clone());
            let error = typed(read(&engine).err().unwrap_or_else(|| panic!("{kind:?}: {name} was taken for an answer")));
            let RemoteError::Unanswered { server, task, last, .. } = &error else { panic!("{kind:?}, {name}: {error}") };
            assert!(is_expected(last), "{kind:?}, {name}: {last:?}");
            assert!(*server == servers[0].url && task.contains("the base model"), "{error}");
        }
    }
}

#[test]
fn another_server_answers_for_one_that_fails_always() {
    for kind in Kind::ALL {
        for (name, act, _) in all_faults() {
            let servers = start(kind, 2);
            let engine = facing(name, &servers);
            servers[0].behave(move |_, _| act.clone());
            let mut generation = generation(&engine);
            for _ in 0..2 {
                let read = generation.backbone.read(&CONTEXT, &candidates(&SPANS), &policies());
                assert_right(&read.unwrap_or_else(|error| panic!("{kind:?}, {name}: {error}")));
            }
        }
    }
}

#[test]
fn drafts_that_fail_are_drawn_again() {
    let cut: fn() -> Act = || Act::Cut;
    let short: fn() -> Act = || {
        altered(|answer| {
            let row = &mut rows(answer)[0];
            let ids = if row.get("meta_info").is_some() {
                &mut row["meta_info"]["output_token_logprobs"]
            } else {
                &mut row["token_ids"]
            };
            ids.as_array_mut().unwrap().pop();
        })
    };
    let aborted: fn() -> Act = || {
        altered(|answer| {
            let row = &mut rows(answer)[0];
            match row.get("meta_info") {
                Some(_) => row["meta_info"]["finish_reason"]["type"] = json!("abort"),
                None => row["finish_reason"] = json!("abort"),
            }
        })
    };
    let missing: fn() -> Act = || altered(|answer| drop(rows(answer).pop()));
    for kind in Kind::ALL {
        for act in [cut, short, aborted, missing] {
            let servers = start(kind, 1);
            let engine = engine(&servers);
            let expected = steps::draft(&engine, 1).unwrap();
            servers[0].behave(move |_, number| if number == 0 { act() } else { Act::Serve });
            assert_eq!(steps::draft(&engine, 1).unwrap(), expected);
            servers[0].behave(move |_, _| act());
            let error = typed(steps::draft(&engine, 1).unwrap_err());
            let RemoteError::Unanswered { task, .. } = &error else { panic!("{error}") };
            assert_eq!(task, "drafting 3 spans with the backbone");
        }
    }
}

#[test]
fn a_server_that_says_no_is_quoted_and_not_asked_again() {
    for kind in Kind::ALL {
        for status in [400, 401, 404, 422] {
            let servers = start(kind, 2);
            let engine = checked(&servers);
            for server in &servers {
                server.behave(move |_, _| Act::Status(status, None, r#"{"error":{"message":"no such thing"}}"#));
            }
            let error = typed(read(&engine).unwrap_err());
            let RemoteError::Refused { task, status: got, message, .. } = &error else { panic!("{error}") };
            assert_eq!((*got, message.as_str()), (status, "no such thing"));
            assert!(task.starts_with("reading "), "{task}");
            // Each of the three policies is read once at each server.
            let seen: usize = servers.iter().map(|server| server.seen().len()).sum();
            assert!(seen <= 6, "{seen} requests");
        }
    }
}

#[test]
fn a_redirect_is_not_followed_and_its_target_is_told() {
    let servers = start(Kind::Sglang, 1);
    let engine = engine(&servers);
    servers[0].behave(|_, _| Act::Redirect("https://elsewhere.example/generate".to_owned()));
    let error = typed(read(&engine).unwrap_err());
    assert!(matches!(error, RemoteError::Refused { status: 307, .. }), "{error}");
    assert!(error.to_string().contains("redirects to https://elsewhere.example/generate"), "{error}");
    assert_eq!(servers[0].seen().len(), 1);
}

#[test]
fn an_unknown_adapter_is_refused_in_the_words_of_the_server() {
    for (kind, words) in [(Kind::Vllm, "does not exist"), (Kind::Sglang, "never been loaded")] {
        let servers = start(kind, 1);
        let engine = engine(&servers);
        servers[0].set_up(|setup| drop(setup.adapters.remove(ADAPTERS[1])));
        let error = typed(read(&engine).unwrap_err()).to_string();
        assert!(error.contains(words) && error.contains("lora-honest"), "{error}");
    }
}

#[test]
fn another_server_answers_for_one_that_refuses() {
    for kind in Kind::ALL {
        let servers = start(kind, 2);
        let engine = checked(&servers);
        servers[0].set_up(|setup| setup.adapters.clear());
        for _ in 0..2 {
            assert_right(&read(&engine).unwrap());
        }
    }
}

#[test]
fn an_error_quotes_the_server_and_leaves_out_the_key() {
    let servers = start(Kind::Vllm, 1);
    let mut options = options(&servers);
    options.backbone.key = Key::new("sk-SECRET123");
    let engine = engine_of(options);
    let key_in_finish = json!({"choices": [{"index": 0, "token_ids": [], "logprobs": {"token_logprobs": []},
        "finish_reason": "error: bad key sk-SECRET123"}]});
    for (body, said) in [
        (r#"{"error":{"message":"engine dead"}}"#, "missing field `choices` at line 1 column 35: engine dead"),
        ("<html>Log in</html>", "expected value at line 1 column 1: <html>Log in</html>"),
        (r#"{"choices":"key sk-SECRET123"}"#, "invalid type: string \"key …\""),
        (&key_in_finish.to_string(), "ended by \"error: bad key …\""),
    ] {
        let body = body.to_owned();
        servers[0].behave(move |_, _| Act::Say(200, body.clone()));
        let error = typed(steps::draft(&engine, 1).unwrap_err()).to_string();
        assert!(error.contains(said) || (said.contains("ended") && error.contains("1 rows")), "{error}");
        assert!(!error.contains("SECRET"), "{error}");
    }
}

#[test]
fn an_error_quotes_why_sglang_aborted_a_row() {
    let servers = start(Kind::Sglang, 1);
    let engine = engine(&servers);
    servers[0].behave(|_, _| {
        altered(|answer| {
            for row in rows(answer) {
                *row = json!({"text": "", "meta_info": {"finish_reason": {"type": "abort", "message": "out of memory"}}});
            }
        })
    });
    let error = typed(read(&engine).unwrap_err()).to_string();
    assert!(error.contains("abort: out of memory"), "{error}");
}

#[test]
fn an_error_says_what_to_do() {
    let servers = start(Kind::Vllm, 1);
    let engine = engine(&servers);
    for (act, part) in [
        (Act::Status(401, None, r#"{"error":"Unauthorized"}"#), "Unauthorized; check the API key of the servers"),
        (Act::Status(429, Some("3600"), "busy"), "failed after 1 attempt and "),
        (Act::Status(429, Some("3600"), "busy"), "busy; it asks for a pause of 3600 s"),
    ] {
        servers[0].behave(move |_, _| act.clone());
        let error = typed(read(&engine).unwrap_err()).to_string();
        assert!(error.contains(part), "{error}");
    }
    servers[0].behave(|_, _| {
        altered(|answer| rows(answer).iter_mut().for_each(|row| drop(row.as_object_mut().unwrap().remove("token_ids"))))
    });
    let error = typed(steps::draft(&engine, 1).unwrap_err()).to_string();
    assert!(error.contains("no token_ids; serve with a version of vLLM that knows return_token_ids"), "{error}");
}

#[test]
fn retry_after_is_waited_for_or_answered_by_an_error() {
    let servers = start(Kind::Sglang, 1);
    let engine = engine(&servers);
    servers[0].behave(|_, number| if number == 0 { Act::Status(429, Some("0.3"), "") } else { Act::Serve });
    let start = Instant::now();
    assert_right(&read(&engine).unwrap());
    assert!(start.elapsed() >= Duration::from_millis(300));
    servers[0].behave(|_, _| Act::Status(429, Some("3600"), "come back tomorrow"));
    let error = typed(read(&engine).unwrap_err());
    assert!(matches!(error, RemoteError::Unanswered { attempts: 1, .. }), "{error}");
}

#[test]
fn a_server_that_dies_in_mid_step_costs_a_retry_and_is_used_again() {
    for kind in Kind::ALL {
        let servers = start(kind, 2);
        let mut options = options(&servers);
        (options.retry.set_aside, options.retry.longest_aside) = (Duration::from_secs(2), Duration::from_secs(2));
        let engine = engine_of(options);
        let mut generation = generation(&engine);
        let mut read = || {
            assert_right(&generation.backbone.read(&CONTEXT, &candidates(&SPANS), &policies()).unwrap());
        };
        read();
        servers[1].behave(|_, _| Act::Die);
        let before = engine.traffic();
        read();
        assert!(engine.traffic().since(before).retries >= 1);
        // The server is set aside, so the next step does not use it.
        let before = engine.traffic();
        read();
        assert_eq!(engine.traffic().since(before).retries, 0, "{kind:?}");
        servers[1].revive();
        servers[1].behave(|_, _| Act::Serve);
        // For a new generation, the revived server is the least busy.
        let start = Instant::now();
        while servers[1].seen().is_empty() {
            assert!(start.elapsed() < LONG, "{kind:?}");
            assert_right(&crate::read(&engine).unwrap());
        }
    }
}

#[test]
fn all_servers_gone_is_an_error() {
    for kind in Kind::ALL {
        let servers = start(kind, 2);
        let engine = engine(&servers);
        for server in &servers {
            server.behave(|_, _| Act::Die);
        }
        let error = typed(read(&engine).unwrap_err());
        assert!(matches!(error, RemoteError::Unanswered { attempts: 4, .. }), "{error}");
    }
}

#[test]
fn a_late_server_is_given_up_for_another() {
    for kind in Kind::ALL {
        let servers = start(kind, 2);
        let mut options = options(&servers);
        options.retry.patience = Duration::from_secs(2);
        let (patience, engine) = (options.retry.patience, engine_of(options));
        servers[0].behave(|_, _| Act::Slow(LONG));
        let start = Instant::now();
        assert_right(&read(&engine).unwrap());
        assert!(start.elapsed() >= patience);
    }
}

#[test]
fn a_generation_waits_no_longer_than_it_has_time() {
    for act in [Act::Hang(LONG), Act::Status(429, Some("20"), "")] {
        let servers = start(Kind::Vllm, 1);
        let options = options(&servers);
        let end = Instant::now() + Duration::from_millis(300);
        let left = Arc::new(move || end.saturating_duration_since(Instant::now()));
        let engine = engine_of(options).with_time_left(left);
        servers[0].behave(move |_, _| act.clone());
        let error = typed(steps::draft(&engine, 1).unwrap_err());
        assert!(matches!(error, RemoteError::Stopped { .. }), "{error}");
        assert!(end.elapsed() < Duration::from_secs(15));
    }
}

#[test]
fn a_server_is_not_set_aside_when_the_time_of_a_request_ends() {
    for kind in Kind::ALL {
        let servers = start(kind, 2);
        let mut options = options(&servers);
        let long = Duration::from_secs(100);
        (options.retry.patience, options.retry.deadline) = (long, long);
        (options.retry.set_aside, options.retry.longest_aside) = (long, long);
        let engine = engine_of(options);
        let end = Instant::now() + Duration::from_millis(300);
        let left = Arc::new(move || end.saturating_duration_since(Instant::now()));
        servers[0].behave(|_, _| Act::Hang(Duration::from_secs(1)));
        let error = typed(read(&engine.clone().with_time_left(left)).unwrap_err());
        assert!(matches!(error, RemoteError::Stopped { .. }), "{error}");
        servers[0].behave(|_, _| Act::Serve);
        let asked = servers[0].seen().len();
        assert_right(&read(&engine).unwrap());
        assert!(servers[0].seen().len() > asked, "{kind:?}");
    }
}

#[test]
fn a_server_that_failed_is_not_asked_for_a_while() {
    for kind in Kind::ALL {
        let servers = start(kind, 2);
        let mut options = options(&servers);
        let long = Duration::from_secs(100);
        (options.retry.set_aside, options.retry.longest_aside) = (long, long);
        let engine = engine_of(options);
        servers[0].behave(|_, _| Act::Status(500, None, ""));
        assert_right(&read(&engine).unwrap());
        let asked = servers[0].seen().len();
        assert!(asked > 0);
        // Other generations avoid it too.
        for _ in 0..3 {
            assert_right(&read(&engine).unwrap());
        }
        assert_eq!(servers[0].seen().len(), asked, "{kind:?}");
        // If no other server is left, it is used again.
        servers[0].behave(|_, _| Act::Serve);
        servers[1].behave(|_, _| Act::Die);
        assert_right(&read(&engine).unwrap());
    }
}
