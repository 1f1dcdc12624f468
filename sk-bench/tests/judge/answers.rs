//! How a judge's answers become scores or abstentions.

use serde_json::{Value, json};
use sk_bench::judge::{ChatJudge, ChatSettings, Endpoint, JudgeError, Scale, Score, Scoring, Structure, Verdict};

use crate::server::{Reply, Server};
use crate::{QUICK, TIMEOUT, abstention, ask, integer_judge, judge_with, settings, value};

/// Rounding of a handful of exponentials and logarithms.
const ROUNDING: f64 = 1e-12;

#[test]
fn a_question_and_its_answer() {
    let server = Server::start(|_, _| Reply::score(3));
    let verdict = ask(&integer_judge(&server), 7).unwrap();
    assert_eq!(verdict, Verdict::Score(Score { value: 0.3, reason: Some("because".to_owned()), mass: None }));
    let request = &server.requests()[0];
    assert_eq!((request.path.as_str(), request.authorization.as_deref()), ("/v1/chat/completions", None));
    let body = &request.body;
    assert_eq!((&body["model"], &body["temperature"], &body["seed"]), (&json!("judge-model"), &json!(0.0), &json!(7)));
    assert_eq!(body["messages"].as_array().unwrap().len(), 2);
    assert_eq!(
        body["response_format"]["json_schema"]["schema"]["properties"]["score"]["enum"],
        json!([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    );
    assert!(body.get("logprobs").is_none());
}

#[test]
fn prose_around_the_json_is_read_over() {
    let server =
        Server::start(|_, _| Reply::says("Of course!\n```json\n{\"score\": 10, \"reason\": \"vile\"}\n```\nI hope this helps."));
    assert_eq!(value(ask(&integer_judge(&server), 0)), 1.0);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn of_content_in_parts_the_texts_are_read() {
    let thinking = json!({"type": "thinking", "thinking": [{"type": "text", "text": "Perhaps 2."}]});
    let content = json!([thinking, {"type": "text", "text": "{\"score\":"}, {"type": "text", "text": " 8}"}]);
    let server = Server::start(move |_, _| Reply::completion(&json!({"message": {"content": content}, "finish_reason": "stop"})));
    assert_eq!(value(ask(&integer_judge(&server), 0)), 0.8);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_number_alone_needs_no_reminder() {
    for text in ["7", "7/10"] {
        let server = Server::start(move |_, _| Reply::says(text));
        assert_eq!(value(ask(&integer_judge(&server), 0)), 0.7);
        assert_eq!(server.requests().len(), 1, "{text}");
    }
}

#[test]
fn a_wrong_digit_is_met_by_a_reminder() {
    let server = Server::start(|_, number| if number == 0 { Reply::score(11) } else { Reply::score(4) });
    assert_eq!(value(ask(&integer_judge(&server), 0)), 0.4);
    let requests = server.requests();
    let turns = requests[1].body["messages"].as_array().unwrap();
    assert_eq!(turns.len(), 4);
    assert_eq!(turns[2]["role"], "assistant");
    assert!(turns[3]["content"].as_str().unwrap().contains("its score is 11"), "{turns:?}");
}

#[test]
fn a_model_that_never_gives_a_score_abstains() {
    for text in ["I would rather not say.", r#"{"score": 4.5}"#, r#"{"score": "4"}"#, "", r#"{"score": 4"#] {
        let server = Server::start(move |_, _| Reply::says(text));
        let verdict = ask(&integer_judge(&server), 0);
        assert!(matches!(&verdict, Ok(Verdict::Unreadable { reply, .. }) if reply == text), "{text}: {verdict:?}");
        let reason = abstention(verdict);
        assert!(reason.contains("score"), "{text}: {reason}");
        assert_eq!(server.requests().len(), 3, "{text}: the question and two reminders");
    }
}

#[test]
fn withheld_answers_are_abstentions() {
    let choices = [
        (
            json!({"message": {"content": null, "refusal": "I cannot judge this."}, "finish_reason": "stop"}),
            "I cannot judge this.",
            1,
        ),
        (json!({"message": {"content": ""}, "finish_reason": "content_filter"}), "content filter", 1),
        (json!({"message": {"content": "{\"score\": 5}"}, "finish_reason": "length"}), "cut off", 3),
    ];
    for (choice, says, asked) in choices {
        let server = Server::start(move |_, _| Reply::completion(&choice));
        let reason = abstention(ask(&integer_judge(&server), 0));
        assert!(reason.contains(says), "{reason}");
        assert_eq!(server.requests().len(), asked);
    }
}

#[test]
fn a_server_without_schemas_is_asked_for_an_object_and_one_without_formats_in_words() {
    for (supported, used) in [(Some("json_object"), Structure::Object), (None, Structure::Plain)] {
        let server = Server::start(move |request, _| {
            if request.format().is_none() || request.format() == supported {
                Reply::score(5)
            } else {
                Reply::error(400, "response_format is not supported")
            }
        });
        let judge = integer_judge(&server);
        assert_eq!(value(ask(&judge, 0)), 0.5);
        assert_eq!(judge.structure(), used);
        let before = server.requests().len();
        assert_eq!(value(ask(&judge, 1)), 0.5);
        assert_eq!(server.requests().len(), before + 1, "what the server accepted is remembered");
    }
}

#[test]
fn a_requested_form_is_kept() {
    let server = Server::start(|_, _| Reply::error(400, "response_format is not supported"));
    let judge = judge_with(&server, ChatSettings { structure: Some(Structure::Schema), ..settings(Scoring::Integer) }, TIMEOUT);
    assert!(matches!(ask(&judge, 0), Err(JudgeError::Rejected { status: 400, .. })));
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_question_refused_in_every_form_says_nothing_about_forms() {
    let server =
        Server::start(
            |_, number| {
                if number < 3 { Reply::error(400, &format!("context too long ({number})")) } else { Reply::score(1) }
            },
        );
    let judge = integer_judge(&server);
    let error = ask(&judge, 0).unwrap_err();
    assert!(error.is_local() && error.to_string().contains("context too long (0)"), "{error}");
    assert_eq!(judge.structure(), Structure::Schema);
    assert_eq!(value(ask(&judge, 0)), 0.1);
}

/// A completion of one token, with its alternatives.
fn tokens(text: &str, top: &[(&str, f64)]) -> Reply {
    let top: Vec<Value> = top.iter().map(|(token, p)| json!({"token": token, "logprob": p.ln(), "bytes": null})).collect();
    let token = json!({"token": text, "logprob": -0.1, "top_logprobs": top});
    Reply::completion(&json!({"message": {"content": text}, "finish_reason": "stop", "logprobs": {"content": [token]}}))
}

#[test]
fn scores_weighted_by_log_probabilities() {
    // On the scale 1–5: (4·.6 + 5·.2)/.8 = 4.25, which maps to 3.25/4.
    let server = Server::start(|_, _| tokens("4", &[("4", 0.6), ("5", 0.2), ("A", 0.1)]));
    let judge = judge_with(&server, settings(Scoring::Logprob), TIMEOUT);
    let Verdict::Score(Score { value, mass, reason }) = ask(&judge, 0).unwrap() else { panic!("abstained") };
    assert!((value - 3.25 / 4.0).abs() < ROUNDING, "{value}");
    assert!((mass.unwrap() - 0.8).abs() < ROUNDING && reason.is_none());
    let body = &server.requests()[0].body;
    assert_eq!((&body["logprobs"], &body["top_logprobs"]), (&json!(true), &json!(20)));
    assert!(body.get("response_format").is_none());
}

#[test]
fn a_wrong_digit_or_a_doubt_is_no_weighted_score() {
    let server = Server::start(|_, _| tokens("8", &[("8", 0.9)]));
    assert!(abstention(ask(&judge_with(&server, settings(Scoring::Logprob), TIMEOUT), 0)).contains("\"8\""));
    let server = Server::start(|_, _| tokens("4", &[("Well", 0.7), ("4", 0.3)]));
    assert!(abstention(ask(&judge_with(&server, settings(Scoring::Logprob), TIMEOUT), 0)).contains("0.300"));
}

#[test]
fn null_stands_for_no_alternatives_and_for_a_probability_of_zero() {
    for top in [Value::Null, json!([{"token": "4", "logprob": 0.0}, {"token": "1", "logprob": null}])] {
        let token = json!({"token": "4", "logprob": 0.0, "top_logprobs": top});
        let choice = json!({"message": {"content": "4"}, "finish_reason": "stop", "logprobs": {"content": [token]}});
        let server = Server::start(move |_, _| Reply::completion(&choice));
        assert_eq!(value(ask(&judge_with(&server, settings(Scoring::Logprob), TIMEOUT), 0)), 0.75);
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn a_server_without_log_probabilities_is_named() {
    for logprobs in [Value::Null, json!({"content": null}), json!({"content": []})] {
        let choice = json!({"message": {"content": "4"}, "finish_reason": "stop", "logprobs": logprobs});
        let server = Server::start(move |_, _| Reply::completion(&choice));
        let error = ask(&judge_with(&server, settings(Scoring::Logprob), TIMEOUT), 0).unwrap_err();
        assert!(matches!(error, JudgeError::NoLogprobs { .. }) && !error.is_local(), "{error}");
        assert!(error.to_string().contains("--scoring integer"), "{error}");
    }
}

#[test]
fn numbers_of_two_digits_cannot_be_weighted() {
    let endpoint = Endpoint::new("http://localhost:1/v1", None, TIMEOUT).unwrap();
    let settings = ChatSettings { scale: Scale::TENTHS, ..settings(Scoring::Logprob) };
    assert!(matches!(ChatJudge::new(endpoint, settings), Err(JudgeError::WideScale { .. })));
}

#[test]
fn fields_can_be_added_to_requests_and_taken_out() {
    let server = Server::start(|_, _| Reply::score(0));
    let extra = json!({"max_tokens": null, "max_completion_tokens": 99, "chat_template_kwargs": {"enable_thinking": false}});
    let judge =
        judge_with(&server, ChatSettings { extra: extra.as_object().unwrap().clone(), ..settings(Scoring::Integer) }, TIMEOUT);
    value(ask(&judge, 0));
    let body = &server.requests()[0].body;
    assert!(body.get("max_tokens").is_none());
    assert_eq!(body["max_completion_tokens"], 99);
    assert_eq!(body["chat_template_kwargs"]["enable_thinking"], false);
}

#[test]
fn the_only_model_is_found_and_several_are_listed() {
    let serving = |models: &'static [&'static str]| {
        Server::start(move |request, _| {
            assert_eq!(request.path, "/v1/models");
            let data: Vec<Value> = models.iter().map(|id| json!({"id": id, "object": "model"})).collect();
            Reply::Status(200, Vec::new(), json!({"object": "list", "data": data}).to_string())
        })
    };
    let only = |server: &Server| Endpoint::new(&server.url, None, TIMEOUT).unwrap().only_model(QUICK);
    assert_eq!(only(&serving(&["qwen"])).unwrap(), "qwen");
    let error = only(&serving(&["qwen", "llama"])).unwrap_err().to_string();
    assert!(error.contains("qwen, llama") && error.contains("--model"), "{error}");
    assert!(only(&serving(&[])).unwrap_err().to_string().contains("no model"));
}
