//! How a judge handles servers that fail.

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sk_bench::judge::run::{Panel, judge_all};
use sk_bench::judge::{ChatJudge, ChatSettings, Endpoint, JudgeError, Objectives, Retry, Scoring};
use sk_remote::Key;

use crate::server::{Deserted, Reply, Server};
use crate::{QUICK, TIMEOUT, abstention, ask, integer_judge, judge_at, judge_with, responses, rubrics, run, settings, value};

#[test]
fn passing_troubles_are_met_by_asking_again() {
    let whole = r#"{"choices": [{"message": {"content": "{\"score\": 2}"}, "finish_reason": "stop"}]}"#;
    let half_json = &whole[..whole.len() / 2];
    let troubles = [
        Reply::error(500, "boom"),
        Reply::error(503, "loading the model"),
        Reply::error(408, "too slow"),
        Reply::error(429, "slow down"),
        Reply::Hang,
        Reply::Half(whole.to_owned()),
        Reply::Status(200, Vec::new(), half_json.to_owned()),
        Reply::Status(200, Vec::new(), String::new()),
        Reply::Status(200, Vec::new(), "{\"choices\": []}".to_owned()),
        Reply::Status(502, Vec::new(), "<html>bad gateway</html>".to_owned()),
    ];
    for trouble in troubles {
        let reply = trouble.clone();
        let server = Server::start(move |_, number| if number < 2 { reply.clone() } else { Reply::score(2) });
        assert_eq!(value(ask(&integer_judge(&server), 0)), 0.2, "{trouble:?}");
        assert_eq!(server.requests().len(), 3, "{trouble:?}");
    }
}

#[test]
fn lasting_failures_end_after_all_attempts_and_are_named() {
    for (reply, says) in [
        (Reply::error(500, "out of memory"), "status 500: out of memory"),
        (Reply::Status(200, Vec::new(), "<html>hello</html>".to_owned()), "<html>hello</html>"),
    ] {
        let server = Server::start(move |_, _| reply.clone());
        let error = ask(&integer_judge(&server), 0).unwrap_err();
        assert!(matches!(error, JudgeError::Unanswered { attempts: 4, .. }) && error.is_local(), "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(server.requests().len(), 4);
    }
}

#[test]
fn the_list_of_models_is_asked_for_like_an_answer() {
    let only = |server: &Server| Endpoint::new(&server.url, None, TIMEOUT).unwrap().only_model(QUICK);
    let models = || Reply::Status(200, Vec::new(), r#"{"data": [{"id": "m"}]}"#.to_owned());
    let server = Server::start(move |_, number| if number == 0 { Reply::error(503, "loading") } else { models() });
    assert_eq!(only(&server).unwrap(), "m");
    let error = only(&Server::start(|_, _| Reply::error(503, "loading"))).unwrap_err();
    assert!(matches!(error, JudgeError::Unanswered { attempts: 4, .. }), "{error}");
    let error = only(&Server::start(|_, _| Reply::error(401, "bad key"))).unwrap_err().to_string();
    assert!(error.contains("bad key; no API key was sent") && !error.contains("--model"), "{error}");
}

#[test]
fn an_error_leaves_out_the_key() {
    let server = Server::start(|_, _| Reply::Status(200, Vec::new(), r#"{"choices":"bad sk-SECRET123"}"#.to_owned()));
    let endpoint = Endpoint::new(&server.url, Key::new("sk-SECRET123"), TIMEOUT).unwrap();
    let error = ask(&ChatJudge::new(endpoint, settings(Scoring::Integer)).unwrap(), 0).unwrap_err().to_string();
    assert!(error.contains("bad …") && !error.contains("SECRET"), "{error}");
}

#[test]
fn an_answer_is_read_whatever_its_encoding() {
    let latin = b"{\"error\": {\"message\": \"Cl\xe9 refus\xe9e\"}}";
    let server = Server::start(|_, _| Reply::Bytes(401, Vec::new(), latin.to_vec()));
    let error = ask(&integer_judge(&server), 0).unwrap_err();
    assert!(matches!(error, JudgeError::Invalid(_)) && error.to_string().contains("Cl\u{fffd} refus"), "{error}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn an_answer_that_decompresses_to_megabytes_is_refused() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(&vec![b' '; 9 << 20]).unwrap();
    let body = encoder.finish().unwrap();
    let server = Server::start(move |_, _| Reply::Bytes(200, vec![("content-encoding", "gzip".to_owned())], body.clone()));
    let error = ask(&integer_judge(&server), 0).unwrap_err().to_string();
    assert!(error.contains("larger than"), "{error}");
}

#[test]
fn an_address_without_a_server() {
    let nobody = Deserted::new();
    let error = ask(&judge_at(&nobody.url, settings(Scoring::Integer), TIMEOUT), 0).unwrap_err();
    assert!(matches!(error, JudgeError::Unanswered { .. }), "{error}");
}

#[test]
fn an_answer_past_the_time_out_does_not_count() {
    const PATIENCE: Duration = Duration::from_secs(1);
    let slow = Reply::Slow(10 * PATIENCE, Box::new(Reply::score(9)));
    let server = Server::start(move |_, number| if number == 0 { slow.clone() } else { Reply::score(1) });
    let started = Instant::now();
    assert_eq!(value(ask(&judge_with(&server, settings(Scoring::Integer), PATIENCE), 0)), 0.1);
    assert!(started.elapsed() >= PATIENCE, "{:?}", started.elapsed());
    let slow = Server::start(|_, _| Reply::Slow(10 * PATIENCE, Box::new(Reply::score(9))));
    let once = ChatSettings { retry: Retry { attempts: 1, ..QUICK }, ..settings(Scoring::Integer) };
    let error = ask(&judge_with(&slow, once, PATIENCE), 0).unwrap_err().to_string();
    assert!(error.ends_with("no answer: it took longer than 1 s (--timeout)"), "{error}");
}

#[test]
fn retry_after_is_waited_for() {
    let limit = Reply::Status(429, vec![("retry-after", "1".to_owned())], String::new());
    let server = Server::start(move |_, number| if number == 0 { limit.clone() } else { Reply::score(1) });
    value(ask(&integer_judge(&server), 0));
    let requests = server.requests();
    let waited = requests[1].at - requests[0].at;
    // Without the header, the pause is at most 10 ms.
    assert!(waited >= Duration::from_millis(990), "{waited:?}");
}

#[test]
fn a_server_that_asks_for_a_pause_gets_it_from_all_questions() {
    let limit = Reply::Status(429, vec![("retry-after", "2".to_owned())], String::new());
    let server = Server::start(move |_, number| match number {
        0 => limit.clone(),
        _ => Reply::Slow(Duration::from_millis(400), Box::new(Reply::score(1))),
    });
    let folder = tempfile::tempdir().unwrap();
    let (responses, rubrics) = (responses(12), rubrics(&["toxicity"]));
    let outcome = run(&integer_judge(&server), &responses, &rubrics, 1, &folder.path().join("judged.jsonl")).unwrap();
    assert_eq!(outcome.answers.len(), 12);
    let requests = server.requests();
    // The four questions under way may arrive before the pause; each thread then waits. Without the
    // pause, groups of three every 400 ms would all arrive within 1.2 s.
    let came = requests.iter().filter(|request| (request.at - requests[0].at) < Duration::from_millis(1900)).count();
    assert!(came <= 10, "{came} of 12 came at once");
}

#[test]
fn a_pause_beyond_patience_is_not_waited_for() {
    let server = Server::start(|_, _| Reply::Status(429, vec![("retry-after", "86400".to_owned())], String::new()));
    let started = Instant::now();
    let error = ask(&integer_judge(&server), 0).unwrap_err();
    assert!(error.to_string().contains("86400 s"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(3600));
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn errors_that_concern_all_questions_stop_the_run() {
    for (status, says) in [(401, "no API key was sent"), (403, "--api-key-env"), (404, "\"judge-model\"")] {
        let server = Server::start(move |_, _| Reply::error(status, "no"));
        let folder = tempfile::tempdir().unwrap();
        let error =
            run(&integer_judge(&server), &responses(50), &rubrics(&["refusal"]), 1, &folder.path().join("j")).unwrap_err();
        assert!(!error.is_local() && !error.is_external() && error.to_string().contains(says), "{error}");
        assert!(server.requests().len() <= 4, "each of four questions under way may find out");
    }
}

#[test]
fn a_redirection_is_not_followed() {
    let elsewhere = Server::start(|_, _| Reply::score(1));
    let target = format!("{}/chat/completions", elsewhere.url);
    let server = Server::start(move |_, _| Reply::Status(307, vec![("location", target.clone())], String::new()));
    let error = ask(&integer_judge(&server), 0).unwrap_err();
    let says = format!("redirects to {}/chat/completions, and redirects are not followed", elsewhere.url);
    assert!(error.to_string().contains(&says) && !error.is_local(), "{error}");
    assert!(elsewhere.requests().is_empty());
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn many_failures_in_a_row_stop_the_run() {
    let server = Server::start(|_, _| Reply::error(500, "gone"));
    let once = Retry { attempts: 1, ..QUICK };
    let judge = judge_with(&server, ChatSettings { retry: once, ..settings(Scoring::Integer) }, TIMEOUT);
    let folder = tempfile::tempdir().unwrap();
    let error = run(&judge, &responses(100), &rubrics(&["refusal"]), 1, &folder.path().join("j")).unwrap_err();
    assert!(matches!(error, JudgeError::Outage { .. }) && error.is_external(), "{error}");
    let asked = server.requests().len();
    assert!((10..10 + 4).contains(&asked), "{asked}: ten in a row, and three that were under way");
}

/// Rejections stand side by side in a file, as those of long responses or of a red team's prompts
/// do.
#[test]
fn questions_that_are_rejected_do_not_count_as_an_outage_while_others_are_answered() {
    let is_rejected = |text: &str| (5..15).any(|i| text.contains(&format!("Answer {i}.")));
    let server = Server::start(move |request, _| {
        let text = request.body["messages"][1]["content"].as_str().unwrap();
        if is_rejected(text) { Reply::error(400, "too long") } else { Reply::score(1) }
    });
    let folder = tempfile::tempdir().unwrap();
    let (responses, rubrics, file) = (responses(30), rubrics(&["toxicity", "refusal"]), folder.path().join("j"));
    let outcome = run(&integer_judge(&server), &responses, &rubrics, 1, &file).unwrap();
    assert_eq!((outcome.answers.len(), outcome.unanswered), (40, 20));
    assert!(outcome.trouble.unwrap().to_string().contains("too long"));
    let again = run(&integer_judge(&server), &responses, &rubrics, 1, &file).unwrap();
    assert_eq!((again.answers.len(), again.resumed, again.unanswered), (40, 40, 20));
    // Without an answer to any question, the request itself may be at fault.
    let nothing = Server::start(|_, _| Reply::error(400, "unknown field"));
    let error = run(&integer_judge(&nothing), &responses, &rubrics, 1, &folder.path().join("k")).unwrap_err();
    assert!(matches!(error, JudgeError::Outage { .. }), "{error}");
}

#[test]
fn a_question_that_a_content_filter_rejects_is_an_abstention() {
    for status in [400, 403] {
        let body = r#"{"error": {"code": "content_filter", "message": "The prompt was filtered."}}"#;
        let server = Server::start(move |_, _| Reply::Status(status, Vec::new(), body.to_owned()));
        assert!(abstention(ask(&integer_judge(&server), 0)).contains("content filter"));
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn a_server_that_limits_the_rate_is_asked_at_that_rate() {
    const EVERY: Duration = Duration::from_millis(100);
    /// Answers in each interval.
    const RATE: usize = 5;
    let intervals = Mutex::new((Instant::now(), 0));
    let server = Server::start(move |_, _| {
        let mut intervals = intervals.lock().unwrap();
        if intervals.0.elapsed() >= EVERY {
            *intervals = (Instant::now(), 0);
        }
        intervals.1 += 1;
        if intervals.1 <= RATE {
            Reply::score(1)
        } else {
            Reply::Status(429, vec![("retry-after", "0.1".to_owned())], String::new())
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let (responses, rubrics) = (responses(100), rubrics(&["toxicity"]));
    // With a doubled pause for all, 16 threads and four attempts lose most questions.
    let retry = Retry { longest: Duration::from_secs(60), first: EVERY, ..QUICK };
    let judge = judge_with(&server, ChatSettings { retry, ..settings(Scoring::Integer) }, TIMEOUT);
    let panel = Panel { responses: &responses, objectives: Objectives::hhh(), rubrics: &rubrics, passes: 1, concurrency: 16 };
    let outcome = judge_all(&panel, &judge, &folder.path().join("j"), &|_| ()).unwrap();
    assert_eq!((outcome.answers.len(), outcome.unanswered), (100, 0));
}

#[test]
fn a_question_that_is_refused_again_and_again_is_given_up() {
    let server = Server::start(|request, _| {
        let text = request.body["messages"][1]["content"].as_str().unwrap();
        if text.contains("Answer 0.") {
            Reply::Status(429, vec![("retry-after", "0.001".to_owned())], "too large".to_owned())
        } else {
            Reply::Slow(Duration::from_millis(2), Box::new(Reply::score(1)))
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let (responses, rubrics) = (responses(1000), rubrics(&["toxicity"]));
    let outcome = run(&integer_judge(&server), &responses, &rubrics, 1, &folder.path().join("j")).unwrap();
    assert_eq!((outcome.answers.len(), outcome.unanswered), (999, 1));
    // Four attempts, and ten times as many that do not count.
    assert!(server.requests().len() <= 999 + 44, "{}", server.requests().len());
}

#[test]
fn an_account_without_credit_ends_the_run() {
    let server = Server::start(|_, number| if number < 4 { Reply::score(1) } else { Reply::error(402, "no balance") });
    let folder = tempfile::tempdir().unwrap();
    let (responses, rubrics) = (responses(50), rubrics(&["toxicity"]));
    let error = run(&integer_judge(&server), &responses, &rubrics, 1, &folder.path().join("j")).unwrap_err();
    assert!(error.to_string().contains("no balance") && !error.is_local(), "{error}");
    assert!(server.requests().len() <= 4 + 4, "each of four questions under way may find out");
}

#[test]
fn nothing_is_asked_again_after_an_error_that_concerns_all_questions() {
    let server = Server::start(|request, _| {
        let text = request.body["messages"][1]["content"].as_str().unwrap();
        if text.contains("Answer 0.") {
            return Reply::Status(503, vec![("retry-after", "4".to_owned())], String::new());
        }
        Reply::Slow(Duration::from_millis(200), Box::new(Reply::error(401, "bad key")))
    });
    let folder = tempfile::tempdir().unwrap();
    let (responses, rubrics, started) = (responses(2), rubrics(&["toxicity"]), Instant::now());
    let error = run(&integer_judge(&server), &responses, &rubrics, 1, &folder.path().join("j")).unwrap_err();
    assert!(error.to_string().contains("bad key"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    assert!(server.requests().len() <= 2);
}

#[test]
fn questions_under_way_are_limited() {
    // The first requests wait for each other, so that as many as allowed are under way. Half the
    // time-out is long enough for all of them to arrive.
    let come = AtomicUsize::new(0);
    let server = Server::start(move |_, _| {
        come.fetch_add(1, Ordering::SeqCst);
        let started = Instant::now();
        while come.load(Ordering::SeqCst) < 4 && started.elapsed() < TIMEOUT / 2 {
            sleep(Duration::from_millis(1));
        }
        Reply::Slow(Duration::from_millis(20), Box::new(Reply::score(1)))
    });
    let folder = tempfile::tempdir().unwrap();
    run(&integer_judge(&server), &responses(20), &rubrics(&["refusal", "toxicity"]), 1, &folder.path().join("j")).unwrap();
    assert_eq!(server.most_at_once(), 4);
    assert_eq!(server.requests().len(), 40);
}
