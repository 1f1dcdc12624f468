//! Limits: of memory, size, time and the number of requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{LONG_ANSWERS, PATIENCE, Reply, Server, chunks, hello, long_answer, text, unchunked};
use crate::common::{assert_refused, copy_of, edit_json, models, run, stderr};

#[cfg(target_os = "linux")]
#[test]
fn memory_that_is_not_there_is_refused_and_the_server_stays() {
    let folder = tempfile::tempdir().unwrap();
    let backbone = copy_of("backbone", folder.path());
    edit_json(&backbone.join("config.json"), |config| config["max_position_embeddings"] = json!(1_000_000_000));
    let command = format!(
        "ulimit -v 8000000; exec {} serve --port 0 --memory 1000000 --max-new-tokens 1000000000 --concurrent 2 --device cpu --backbone {} --blade helpful={}",
        env!("CARGO_BIN_EXE_swiss-knife"),
        backbone.display(),
        models().join("blades/helpful").display()
    );
    let server = Server::of(Command::new("sh").args(["-c", &command]));
    let ask = |tokens: u64| server.chat(&json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": tokens}));
    for tokens in [50_000_000, 900_000_000] {
        let Reply(status, _, body) = ask(tokens);
        assert!(status == 400 && body.contains("this server gives all answers"), "{status}: {body}");
    }
    assert_eq!(ask(4).0, 200);
}

#[test]
fn more_tokens_than_an_answer_may_have_are_refused() {
    let server = Server::start(&["--max-new-tokens", "20"]);
    for field in ["max_tokens", "max_completion_tokens"] {
        let refused = server.chat(&hello(&json!({"max_tokens": null, field: 21})));
        assert_eq!((refused.0, refused.json()["error"]["param"].as_str()), (400, Some(field)), "{}", refused.2);
        assert!(refused.2.contains("at most 20 tokens"), "{}", refused.2);
    }
    let all = server.chat(&hello(&json!({"max_tokens": null}))).json();
    assert_eq!(all["usage"]["completion_tokens"], 20);
}

#[test]
fn the_memory_of_an_answer_is_computed_without_overflow() {
    let server = Server::start(&["--max-candidates", "18446744073709551615"]);
    // Multiplied by the bytes of a token, this is a multiple of 2⁶⁴.
    let wide = json!({"swiss_knife": {"set": ["proposal.candidates=144115188075855872"]}, "max_tokens": 128});
    let reply = server.chat(&hello(&wide));
    assert_eq!(reply.0, 400, "{}", reply.2);
    assert!(!text(&server.chat(&hello(&json!({})))).is_empty());
}

#[test]
fn a_scheme_beyond_the_limits_is_not_served() {
    let refused = |args: &[&str], parts: &[&str]| {
        assert_refused(&run([&["serve", "--port", "0"], args].concat()), parts);
    };
    refused(&["--n", "65"], &["65 candidates", "--max-candidates is 64"]);
    let instructions = ["a", "b", "c"].map(|name| format!("{name}=instruction:Answer briefly."));
    let blades = instructions.iter().flat_map(|blade| ["--blade", blade]);
    // Three more ship with the program.
    refused(&blades.clone().chain(["--max-blades", "5"]).collect::<Vec<_>>(), &["6 blades", "--max-blades is 5"]);
    // A scheme that seats no others than its own still seats those of the options.
    let base = blades.chain(["--scheme", "base", "--max-blades", "2"]);
    refused(&base.collect::<Vec<_>>(), &["4 blades", "--max-blades is 2"]);
}

#[test]
fn the_largest_limits_are_none() {
    let options = ["--concurrent", "--waiting", "--timeout", "--patience", "--keep-alive", "--drain"];
    let args: Vec<&str> = options.into_iter().flat_map(|option| [option, "18446744073709551615"]).collect();
    let server = Server::start(&args);
    assert!(!text(&server.chat(&hello(&json!({})))).is_empty());
}

#[test]
fn an_instruction_needs_memory_too() {
    let folder = tempfile::tempdir().unwrap();
    let backbone = copy_of("backbone", folder.path());
    edit_json(&backbone.join("config.json"), |config| config["max_position_embeddings"] = json!(100_000));
    let blade = format!("calm={}", models().join("blades/helpful").display());
    let serve = ["serve", "--port", "0", "--memory", "1", "--device", "cpu", "--backbone", backbone.to_str().unwrap()];
    let server = Server::of(Command::new(env!("CARGO_BIN_EXE_swiss-knife")).args(serve).args(["--blade", &blade]));
    let ask = |instruction: &str| {
        let blades = json!({"calm": format!("instruction:{instruction}")});
        server.chat(&hello(&json!({"max_tokens": 4, "swiss_knife": {"blades": blades}})))
    };
    assert_eq!(ask("Be calm.").0, 200);
    let refused = ask(&"Be calm. ".repeat(3000));
    assert!(refused.0 == 400 && refused.2.contains("this server gives all answers 1 MiB"), "{}", refused.2);
}

#[test]
fn requests_have_limits() {
    let server = Server::start(&["--max-body", "600", "--max-header", "700", "--max-depth", "5", "--max-prompt-tokens", "60"]);
    let long = hello(&json!({"user": "x".repeat(600)}));
    assert_eq!(server.chat(&long).json()["error"]["code"], "request_too_large");
    let header = format!("X-Long: {}\r\n", "x".repeat(800));
    assert_eq!(server.ask("GET", "/health", &header, &Value::Null).0, 431);
    let deep = server.chat(&hello(&json!({"metadata": [[[[[1]]]]]})));
    assert!(deep.0 == 400 && deep.2.contains("6 levels deep"), "{}", deep.2);
    let header = "X-Swiss-Knife: [[[[[[1]]]]]]\r\n";
    let deep = server.ask("POST", "/v1/chat/completions", header, &hello(&json!({})));
    assert!(deep.0 == 400 && deep.2.contains("6 levels deep"), "{}", deep.2);
    let prompt = |length: usize| json!({"prompt": "x".repeat(length), "max_tokens": 2});
    let long = server.ask("POST", "/v1/completions", "", &prompt(61));
    assert_eq!((long.0, long.json()["error"]["code"].as_str()), (400, Some("context_length_exceeded")), "{}", long.2);
    assert_eq!(server.ask("POST", "/v1/completions", "", &prompt(60)).0, 200);
}

#[test]
fn too_many_requests_are_refused_with_retry_after() {
    let server = Server::start(&["--concurrent", "1", "--waiting", "1", "--span-tokens", "2"]);
    // The estimate is of the answers that have ended.
    assert_eq!(server.chat(&hello(&json!({}))).0, 200);
    let replies: Vec<Reply> = thread::scope(|scope| {
        let ask = |seed: usize| {
            let server = &server;
            scope.spawn(move || server.chat(&hello(&json!({"max_tokens": 300, "seed": seed}))))
        };
        let clients: Vec<_> = (0..8).map(ask).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let refused: Vec<&Reply> = replies.iter().filter(|reply| reply.0 == 429).collect();
    assert!(!refused.is_empty() && refused.len() < 8, "{} of 8 refused", refused.len());
    assert!(refused[0].1.contains("retry-after: ") && refused[0].json()["error"]["type"] == "rate_limit_error");
    // A request that can never fit is refused with 400, not with 429.
    let small = Server::start(&["--memory", "1", "--max-candidates", "300"]);
    let wide = json!({"set": ["proposal.candidates=300"]});
    for (fields, param) in [
        (json!({}), "max_tokens"),
        (json!({"max_tokens": null}), "max_tokens"),
        (json!({"max_tokens": null, "max_completion_tokens": 40}), "max_completion_tokens"),
    ] {
        let mut body = hello(&fields);
        body["swiss_knife"] = wide.clone();
        let refused = small.chat(&body);
        assert_eq!((refused.0, refused.json()["error"]["param"].as_str()), (400, Some(param)), "{}", refused.2);
    }
}

#[test]
fn limits_under_which_every_request_is_refused() {
    for option in ["--timeout", "--memory"] {
        assert_refused(&run(["serve", option, "0"]), &[option, "invalid value '0'"]);
    }
    let small = run(["serve", "--port", "0", "--memory", "1"]);
    let error = stderr(&small);
    assert_eq!(small.status.code(), Some(2), "{error}");
    assert!(error.contains("error: answers can use 1 MiB of memory (--memory 1,") && error.contains("raise --memory"), "{error}");
}

#[test]
fn no_request_outlasts_its_time_by_more_than_a_step() {
    let options = ["--concurrent", "1", "--timeout", "30", "--patience", "300"];
    let server = Server::start(&[&LONG_ANSWERS[..], &options].concat());
    let mut body = long_answer();
    body["n"] = json!(4);
    let mut stream = server.send("POST", "/v1/chat/completions", "", &body.to_string());
    server.until(|server| {
        let spans = [(); 5].map(|()| {
            thread::sleep(Duration::from_millis(500));
            server.metric("swiss_knife_span_seconds_count")
        });
        let is_blocked = spans[0] > 0.0 && spans[4] == spans[0];
        is_blocked && server.metric("swiss_knife_answers_under_way") > 0.0
    });
    // No slot becomes free for another request. A stream begins, and ends with the error.
    let mut late = server.send("POST", "/v1/chat/completions", "", &hello(&json!({"stream": true})).to_string());
    let waited = server.chat(&hello(&json!({})));
    assert_eq!((waited.0, waited.json()["error"]["code"].as_str()), (503, Some("unavailable")), "{}", waited.2);
    assert!(waited.1.contains("retry-after: 1"), "{}", waited.1);
    let mut text = String::new();
    late.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("the request waited for other answers"), "{text}");
    let id = text.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap().to_owned();
    server.until(|server| {
        let log = server.log.lock().unwrap();
        log.lines().any(|line| line.contains("stream failed") && line.contains(&id) && line.contains("the request waited"))
    });
    // An answer ends with the steps before its time is over; a later one takes none.
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let chunks = chunks(&unchunked(text.split_once("\r\n\r\n").unwrap().1));
    let of = |choice: usize| chunks.iter().filter(move |chunk| chunk["choices"][0]["index"] == choice);
    let steps = |choice| of(choice).filter(|chunk| chunk["swiss_knife"]["step"].is_object()).count();
    assert!(steps(0) > 0 && steps(3) == 0, "{} and {} steps", steps(0), steps(3));
    assert_eq!(of(3).next_back().unwrap()["choices"][0]["finish_reason"], "length");
    // The estimate of `retry-after` counts no answer that took none.
    let begun = (0..4).filter(|&choice| steps(choice) > 0).count();
    assert_eq!(server.metric("swiss_knife_answer_seconds_count"), begun as f64);
}

#[test]
fn an_answer_ends_with_its_client() {
    // Many candidates, so that an answer takes far longer than it takes to hang up.
    let server = Server::start(&["--span-tokens", "2", "--n", "48", "--concurrent", "4"]);
    for stream in [true, false] {
        let body = hello(&json!({"stream": stream, "max_tokens": 440, "n": 4}));
        let mut connection = server.send("POST", "/v1/chat/completions", "", &body.to_string());
        let start = Instant::now();
        while server.metric("swiss_knife_answers_under_way") < 1.0 {
            assert!(start.elapsed() < PATIENCE);
        }
        if stream {
            // The response has begun.
            connection.read_exact(&mut [0]).unwrap();
        }
        drop(connection);
        while server.metric("swiss_knife_answers_under_way") > 0.0 {
            assert!(start.elapsed() < PATIENCE, "still under way");
        }
    }
    assert!(server.metric("swiss_knife_answers_total{outcome=\"hung_up\"}") >= 2.0);
    assert_eq!(server.metric("swiss_knife_answers_total{outcome=\"complete\"}"), 0.0);
    // None of the eight answers ran to its end.
    assert!(server.metric("swiss_knife_tokens_total") < 8.0 * 440.0, "{}", server.metric("swiss_knife_tokens_total"));
    // The request without a stream has no response, and is counted and logged.
    assert_eq!(server.metric("swiss_knife_requests_total{status=\"499\"}"), 1.0);
    let logged = |line: &str| line.contains("/v1/chat/completions") && line.contains("status=499");
    server.until(|server| server.log.lock().unwrap().lines().any(logged));
    assert!(!text(&server.chat(&hello(&json!({})))).is_empty());
}

#[test]
fn answers_that_are_cut_off_are_counted_with_what_they_cost() {
    let server = Server::start(&["--span-tokens", "2", "--n", "48", "--concurrent", "1"]);
    let body = hello(&json!({"stream": true, "max_tokens": 440, "n": 4}));
    let mut lines = BufReader::new(server.send("POST", "/v1/chat/completions", "", &body.to_string())).lines();
    // The first chunk is empty; the second has the first span.
    assert!(lines.by_ref().map_while(Result::ok).filter(|line| line.starts_with("data: ")).nth(1).is_some());
    drop(lines);
    server.until(|server| server.metric("swiss_knife_answers_under_way") == 0.0);
    // The three answers that did not start hang up, too.
    server.until(|server| server.metric("swiss_knife_answers_total{outcome=\"hung_up\"}") == 4.0);
    let counted =
        ["tokens", "drafted_tokens", "scored_tokens", "steps"].map(|name| server.metric(&format!("swiss_knife_{name}_total")));
    assert!(counted.iter().all(|count| *count > 0.0), "{counted:?}");
    let log = server.log.lock().unwrap().clone();
    let line = log.lines().find(|line| line.contains("outcome=\"hung_up\"")).unwrap();
    let expected = [format!(" tokens={}", counted[0]), format!(" steps={}", counted[3])];
    assert!(expected.iter().all(|field| line.contains(field.as_str())), "{expected:?}: {line}");
}

#[test]
fn slow_clients_are_disconnected() {
    let server = Server::start(&[&LONG_ANSWERS[..], &["--patience", "3"]].concat());
    let start = Instant::now();
    for half in ["", "POST /v1/chat/completions HTTP/1.1\r\nHost: te"] {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(half.as_bytes());
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        assert!(text.is_empty() || text.contains("408"), "{text}");
    }
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let begun = Instant::now();
    stream.write_all(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{").unwrap();
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    assert!(text.starts_with("HTTP/1.1 408"), "{text}");
    assert!(begun.elapsed() < 2 * Duration::from_secs(3), "it gets no more time: {:?}", begun.elapsed());
    assert!(start.elapsed() > Duration::from_secs(3) && start.elapsed() < PATIENCE);
    // A client that reads nothing is cut off, and its slot becomes free.
    let mut reader = server.send_and_take_nothing();
    server.until(|server| server.metric("swiss_knife_answers_under_way") == 0.0);
    thread::sleep(Duration::from_secs(2));
    let mut rest = Vec::new();
    let _ = reader.read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains("[DONE]"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_client_that_reads_slowly_gets_its_answers() {
    let server = Server::start(&[&LONG_ANSWERS[..], &["--patience", "2"]].concat());
    let mut body = long_answer();
    (body["n"], body["max_tokens"]) = (json!(4), json!(100));
    // With a large receive buffer, a client makes room in large pieces only.
    let mut stream = server.send_from(4096, "POST", "/v1/chat/completions", "", &body.to_string());
    // The answers wait for room among the events of their request for longer than `--patience`.
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    for _ in 0..40 {
        let read = stream.read(&mut piece).unwrap();
        text.extend_from_slice(&piece[..read]);
        thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(server.metric("swiss_knife_answers_total{outcome=\"hung_up\"}"), 0.0);
    stream.read_to_end(&mut text).unwrap();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(text.contains("[DONE]") && !text.contains("\"error\""), "{}", &text[text.len().saturating_sub(500)..]);
}

#[test]
fn no_client_delays_the_shutdown() {
    let mut server = Server::start(&[&LONG_ANSWERS[..], &["--patience", "10"]].concat());
    let mut half = TcpStream::connect(&server.address).unwrap();
    half.write_all(b"GET /health HTTP/1.1\r\nHost: te").unwrap();
    let _reader = server.send_and_take_nothing();
    let mut answered = server.send("POST", "/v1/chat/completions", "", &hello(&json!({"max_tokens": 200})).to_string());
    server.until(|server| server.metric("swiss_knife_first_span_seconds_count") > 1.0);
    server.terminate();
    // The server closes connections without a request when SIGTERM arrives, so a reply may be
    // empty.
    server.until(|server| {
        let mut text = String::new();
        let _ = server.send("GET", "/ready", "", "").read_to_string(&mut text);
        text.starts_with("HTTP/1.1 503")
    });
    let refused = server.chat(&hello(&json!({})));
    assert!(refused.0 == 503 && refused.1.contains("retry-after"), "{}", refused.1);
    // An answer that is under way ends as usual.
    let mut text = String::new();
    answered.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("\"finish_reason\":"), "{text}");
    assert_eq!(server.wait().0, Some(0));
    // `--drain` limits how long the server waits for answers.
    let mut server = Server::start(&[&LONG_ANSWERS[..], &["--drain", "1"]].concat());
    let _reader = server.send_and_take_nothing();
    server.terminate();
    let (status, took) = server.wait();
    assert!(status == Some(0) && took < Duration::from_secs(20), "{status:?} {took:?}");
}

#[test]
fn a_second_signal_ends_the_server_at_once() {
    let mut server = Server::start(&LONG_ANSWERS);
    let _reader = server.send_and_take_nothing();
    server.terminate();
    server.until(|server| server.log.lock().unwrap().contains("again ends it now"));
    // The server waits for the second signal from shortly after its message.
    let start = Instant::now();
    let status = loop {
        server.terminate();
        thread::sleep(Duration::from_millis(100));
        if let Some(status) = server.process.try_wait().unwrap() {
            break status;
        }
        assert!(start.elapsed() < PATIENCE, "the server goes on");
    };
    #[cfg(unix)]
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(2));
    #[cfg(not(unix))]
    assert_eq!(status.code(), Some(130));
}

#[test]
fn comments_keep_a_stream_alive_unless_they_are_switched_off() {
    // A step of two thousand candidates takes a while.
    let body = hello(&json!({"stream": true, "max_tokens": 400, "swiss_knife": {"set": ["proposal.candidates=2000"]}}));
    let lines = |every: &str, patience: u64| {
        let server = Server::start(&["--keep-alive", every, "--max-candidates", "2000", "--span-tokens", "400"]);
        let stream = server.send("POST", "/v1/chat/completions", "", &body.to_string());
        stream.set_read_timeout(Some(Duration::from_secs(patience))).unwrap();
        (server, BufReader::new(stream).lines().map_while(Result::ok))
    };
    let (server, mut lines_with_comments) = lines("1", PATIENCE.as_secs());
    assert!(lines_with_comments.any(|line| line == ":"));
    drop(server);
    let (_server, mut other_lines) = lines("0", 4);
    assert!(!other_lines.any(|line| line == ":"));
}
