//! `swiss-knife judge`, run as a program.

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sk_bench::judge::Objectives;

use crate::common::{assert_refused, program, stderr};
use crate::responses;
use crate::server::{Reply, Server};

fn write_responses(folder: &Path, count: usize) {
    let lines: Vec<String> = responses(count).iter().map(|response| serde_json::to_string(response).unwrap()).collect();
    fs::write(folder.join("responses.jsonl"), lines.join("\n") + "\n").unwrap();
}

fn judge(folder: &Path, server: &Server, args: &[&str]) -> Command {
    let mut command = program();
    command.current_dir(folder).env("XDG_CACHE_HOME", folder.join("cache")).arg("judge").args(args).args([
        "responses.jsonl",
        "-o",
        "judged.jsonl",
        "--endpoint",
        &server.url,
    ]);
    command
}

fn records(folder: &Path) -> Vec<Value> {
    fs::read_to_string(folder.join("judged.jsonl")).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A time-out that only a hanging program exceeds.
const PATIENCE: Duration = Duration::from_secs(600);
/// Longer than a test takes.
const FOREVER: Duration = Duration::from_secs(3600);

/// A server with one model that scores 0 on bad traits and 9 on good ones, after the pause that
/// `pause` gives for the number of the request.
fn good_server(pause: impl Fn(usize) -> Duration + Send + Sync + 'static) -> Server {
    Server::start(move |request, number| {
        if request.path == "/v1/models" {
            return Reply::Status(200, Vec::new(), json!({"data": [{"id": "the-model"}]}).to_string());
        }
        let bad = matches!(request.rubric(), "toxicity" | "harmfulness" | "refusal");
        Reply::Slow(pause(number), Box::new(Reply::score(if bad { 0 } else { 9 })))
    })
}

#[test]
fn a_summary_by_scheme_and_a_file_to_go_on_from() {
    let server = good_server(|_| Duration::ZERO);
    let folder = tempfile::tempdir().unwrap();
    write_responses(folder.path(), 3);
    let output = judge(folder.path(), &server, &["--json"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&summary["judged"], &summary["abstained"], &summary["unanswered"]), (&27.into(), &0.into(), &0.into()));
    let row = &summary["schemes"][0];
    assert_eq!((&row["scheme"], &row["responses"]), (&"swiss".into(), &3.into()));
    // Quality and honesty are means of scores of 9; safety is one minus the mean of zeros.
    for (axis, expected) in [("quality", 0.9), ("safety", 1.0), ("honesty", 0.9), ("refusal", 0.0)] {
        assert!((row[axis].as_f64().unwrap() - expected).abs() < 1e-12, "{row}");
    }
    assert_eq!(records(folder.path()).len(), 27);
    assert!(records(folder.path()).iter().all(|record| record["judge"]["model"] == "the-model"));

    // A second run finds everything in the file. A run into a new file finds everything in the
    // cache.
    let asked = server.requests().len();
    let output = judge(folder.path(), &server, &[]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("27 judgements, 27 found in the file") && text.contains("swiss"), "{text}");
    fs::remove_file(folder.path().join("judged.jsonl")).unwrap();
    let output = judge(folder.path(), &server, &["--json"]).output().unwrap();
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&summary["cached"], &summary["resumed"]), (&27.into(), &0.into()));
    let models = server.requests()[asked..].iter().filter(|request| request.path == "/v1/models").count();
    assert_eq!(server.requests().len() - asked, models);
}

/// The file that `judge rubrics` prints gives each rubric its version.
#[test]
fn a_shipped_rubric_with_another_text_is_another_version() {
    let server = good_server(|_| Duration::ZERO);
    let folder = tempfile::tempdir().unwrap();
    write_responses(folder.path(), 3);
    let resumed = |objectives: &[&str]| {
        let output = judge(folder.path(), &server, &[&["--json"], objectives].concat()).output().unwrap();
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(summary["judged"], 27, "{summary}");
        summary["resumed"].as_u64().unwrap()
    };
    resumed(&[]);
    let printed = program().args(["judge", "rubrics", "--toml"]).output().unwrap().stdout;
    let (own, file) = (String::from_utf8(printed).unwrap(), folder.path().join("own.toml"));
    fs::write(&file, &own).unwrap();
    assert_eq!(resumed(&["--objectives", "own.toml"]), 27);
    // Each of the three responses is judged anew by the rubric that changed.
    fs::write(&file, own.replace(&Objectives::hhh().rubrics[0].high, "flawless")).unwrap();
    assert_eq!(resumed(&["--objectives", "own.toml"]), 24);
    assert_eq!(resumed(&["--objectives", "own.toml"]), 27);
    assert_eq!(resumed(&[]), 27);
    // Both texts have their table.
    for objectives in [&[][..], &["--objectives", "own.toml"]] {
        let mut table = program();
        table.current_dir(folder.path()).args(["judge", "table", "judged.jsonl", "-o", "results"]).args(objectives);
        let output = table.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Waits until the server has received `count` requests.
fn wait_for_requests(server: &Server, child: &mut Child, count: usize) {
    let started = Instant::now();
    while server.requests().len() < count {
        assert!(started.elapsed() < PATIENCE && child.try_wait().unwrap().is_none(), "the run has ended, or hangs");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_killed_run_loses_and_doubles_nothing() {
    // The server answers the first `limit` requests. It holds later ones until the run is killed.
    let limit = Arc::new(AtomicUsize::new(0));
    let there = Arc::clone(&limit);
    let server = good_server(move |number| if number < there.load(Ordering::SeqCst) { Duration::ZERO } else { FOREVER });
    let folder = tempfile::tempdir().unwrap();
    write_responses(folder.path(), 10);
    let args = ["--no-cache", "--concurrency", "3", "--quiet"];
    let mut asked = 0;
    for _ in 0..3 {
        // One request for the models, and twelve of the ninety questions.
        let goal = asked + 13;
        limit.store(goal, Ordering::SeqCst);
        let mut child = judge(folder.path(), &server, &args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for_requests(&server, &mut child, goal + 3);
        child.kill().unwrap();
        child.wait().unwrap();
        asked = server.requests().len();
    }
    let before = fs::read_to_string(folder.path().join("judged.jsonl")).unwrap();
    let kept = before.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count();
    assert_eq!(kept, 36, "an answer is kept before the next question is put");

    limit.store(usize::MAX, Ordering::SeqCst);
    let output = judge(folder.path(), &server, &args).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let records = records(folder.path());
    let cells: HashSet<(String, String)> =
        records.iter().map(|record| (record["id"].to_string(), record["rubric"].to_string())).collect();
    assert_eq!((records.len(), cells.len()), (90, 90));
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_keeps_what_it_has() {
    use std::os::unix::process::ExitStatusExt;

    // The requests from the seventh on take a second, so some are under way at the interruption.
    let server = good_server(|number| Duration::from_secs(u64::from(number >= 6)));
    let folder = tempfile::tempdir().unwrap();
    write_responses(folder.path(), 10);
    let args = ["--no-cache", "--concurrency", "2"];
    let mut child = judge(folder.path(), &server, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_requests(&server, &mut child, 8);
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("ending; Ctrl-C again ends at once"), "{}", stderr(&output));
    assert!(stderr(&output).contains("interrupted; what was judged is kept"), "{}", stderr(&output));
    // Every answered request left a record, except the one for the models.
    assert_eq!(records(folder.path()).len(), server.requests().len() - 1);
}

#[test]
fn a_key_is_sent_and_written_nowhere() {
    const KEY: &str = "sk-very-secret-0123456789";
    let server = Server::start(|request, number| match number {
        0 => Reply::error(500, &format!("trouble with {}", request.authorization.clone().unwrap_or_default())),
        // A judge that quotes what it received.
        _ => Reply::says(
            &json!({"reason": format!("because of {}", request.authorization.clone().unwrap()), "score": 1}).to_string(),
        ),
    });
    let folder = tempfile::tempdir().unwrap();
    write_responses(folder.path(), 1);
    let args = ["--model", "m", "--rubrics", "refusal", "--api-key-env", "MY_KEY", "--attempts", "1"];
    let failed = judge(folder.path(), &server, &args).env("MY_KEY", KEY).output().unwrap();
    assert_eq!(failed.status.code(), Some(1), "{}", stderr(&failed));
    assert!(stderr(&failed).contains("trouble with Bearer …"), "{}", stderr(&failed));
    let output = judge(folder.path(), &server, &args).env("MY_KEY", KEY).output().unwrap();
    assert!(output.status.success());
    assert!(server.requests().iter().all(|request| request.authorization.as_deref() == Some(&format!("Bearer {KEY}"))));
    for output in [&failed, &output] {
        assert!(!stderr(output).contains(KEY) && !String::from_utf8_lossy(&output.stdout).contains(KEY));
    }
    assert!(!holds(folder.path(), KEY));
    assert!(holds(folder.path(), "because"), "the search looks at the files");
}

/// Whether any file under a folder contains the text.
fn holds(folder: &Path, text: &str) -> bool {
    fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return holds(&path, text);
        }
        let mut bytes = Vec::new();
        fs::File::open(&path).unwrap().read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).contains(text)
    })
}

#[test]
fn a_socks_proxy_is_used() {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("socks5://{}", proxy.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    write_responses(folder.path(), 1);
    let mut command = program();
    // An address that no machine has.
    let far = ["--model", "m", "--endpoint", "http://192.0.2.1:9", "--attempts", "1", "--no-cache", "-q"];
    command
        .current_dir(folder.path())
        .env("ALL_PROXY", address)
        .args(["judge", "responses.jsonl", "-o", "judged.jsonl"])
        .args(far);
    let mut child = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    proxy.set_nonblocking(true).unwrap();
    let (mut connection, _) = loop {
        match proxy.accept() {
            Ok(accepted) => break accepted,
            Err(_) => assert!(child.try_wait().unwrap().is_none(), "the proxy was not asked"),
        }
        sleep(Duration::from_millis(2));
    };
    connection.set_nonblocking(false).unwrap();
    let mut version = [0];
    connection.read_exact(&mut version).unwrap();
    assert_eq!(version, [5]);
    drop(connection);
    assert!(!child.wait().unwrap().success());
}

/// Starts a server that sends `answer` after the first bytes of each connection. Returns its address
/// and the number of connections.
fn blunt_server(answer: &'static str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
            // The client may be gone. Unread bytes would reset the connection before it reads the answer.
            let _ = connection.read(&mut [0; 4096]);
            let _ = connection.write_all(answer.as_bytes());
            let _ = connection.shutdown(Shutdown::Write);
            let _ = connection.read_to_end(&mut Vec::new());
        }
    });
    (address, connections)
}

#[test]
fn a_failure_that_every_attempt_would_repeat_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    write_responses(folder.path(), 3);
    let refused = |endpoint: &str, proxy: &str, parts: &[&str]| {
        let args = ["judge", "responses.jsonl", "-o", "judged.jsonl", "--model", "m", "--no-cache", "-q", "--concurrency", "1"];
        let mut command = program();
        command.current_dir(folder.path()).env("ALL_PROXY", proxy).args(args).args(["--endpoint", endpoint]);
        let message = stderr(&command.output().unwrap());
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    };
    let (plain, connections) = blunt_server("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    refused(&format!("https://{plain}"), "", &["does not use TLS", "http://"]);
    assert_eq!(connections.load(Ordering::Relaxed), 1);
    let (proxy, connections) = blunt_server("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n");
    // An address that no machine has.
    let through = format!("(through the proxy {proxy})");
    refused("https://192.0.2.1:9", &format!("http://{proxy}"), &[&through, "http://USER:PASSWORD@HOST:PORT"]);
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}

#[test]
fn a_key_is_not_sent_unless_its_variable_is_set() {
    let server = Server::start(|_, _| Reply::error(401, "who are you?"));
    let folder = tempfile::tempdir().unwrap();
    write_responses(folder.path(), 1);
    let output = judge(folder.path(), &server, &["--model", "m"]).env("OPENAI_API_KEY", "sk-other").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = stderr(&output);
    assert!(error.lines().count() == 1 && error.contains("401: who are you?") && error.contains("--api-key-env"), "{error}");
    assert!(server.requests().iter().all(|request| request.authorization.is_none()));
}

#[test]
fn a_retest_as_a_table() {
    let server = Server::start(|request, number| {
        let second = request.body["seed"] == 1;
        Reply::score(if second { 5 } else { number as u64 % 4 })
    });
    let folder = tempfile::tempdir().unwrap();
    write_responses(folder.path(), 4);
    let mut command = program();
    command.current_dir(folder.path()).args([
        "judge",
        "retest",
        "responses.jsonl",
        "-o",
        "judged.jsonl",
        "--no-cache",
        "--model",
        "m",
    ]);
    let output =
        command.args(["--endpoint", &server.url, "--rubrics", "toxicity,refusal", "--concurrency", "1"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('─'));
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split_whitespace().collect()).collect();
    assert!(text.lines().next().unwrap().contains("Pearson r"), "{text}");
    // In the second pass all scores are equal, so the correlation is undefined.
    assert_eq!((rows[1][0], rows[1][1], rows[1][2]), ("toxicity", "4", "–"), "{text}");
    assert_eq!(rows[2][0], "refusal");
    assert_eq!(server.requests().len(), 16);
}

#[test]
fn replies_that_cannot_be_read_are_counted_and_one_is_shown() {
    let reply = format!("I'd say\n\u{1b}[31mfine{}", "!".repeat(1000));
    let says = reply.clone();
    let server = Server::start(move |request, _| match request.rubric() {
        "toxicity" => Reply::says(&says),
        _ => Reply::says("7/10"),
    });
    let folder = tempfile::tempdir().unwrap();
    write_responses(folder.path(), 2);
    let args = ["--no-cache", "--model", "m", "--rubrics", "toxicity,relevance", "--concurrency", "1"];
    let output = judge(folder.path(), &server, &args).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let error = stderr(&output);
    let says = "no score can be read from 2 of the judge's replies; the first, on toxicity of \"r0\" \
                (it holds no JSON object with a score and is no plain number): I'd say \\u{1b}[31mfine!!!";
    assert!(error.contains(says) && error.contains("[…]"), "{error}");
    assert!(error.lines().all(|line| line.len() < 400), "{error}");
    let kept = records(folder.path());
    let replies: Vec<Option<&str>> = kept.iter().map(|record| record["reply"].as_str()).collect();
    assert_eq!(replies, [Some(reply.as_str()), None, Some(reply.as_str()), None]);
    assert!(kept.iter().all(|record| record["abstention"].is_string() != record["score"].is_f64()));
    let quiet = judge(folder.path(), &server, &[&args[..], &["--quiet"]].concat()).output().unwrap();
    assert_eq!(stderr(&quiet), "");
}

#[test]
fn judgements_become_a_table_for_the_report() {
    let server = good_server(|_| Duration::ZERO);
    let folder = tempfile::tempdir().unwrap();
    write_responses(folder.path(), 3);
    assert!(judge(folder.path(), &server, &["--no-cache"]).output().unwrap().status.success());
    let output = program().current_dir(folder.path()).args(["judge", "table", "judged.jsonl", "-o", "results"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let table = fs::read_to_string(folder.path().join("results/judged_frontier.csv")).unwrap();
    assert_eq!(table.lines().count(), 4);
    assert!(table.contains("swiss,help0.5000_harm0.5000,0.5,0.5,"), "{table}");
    let output =
        program().current_dir(folder.path()).args(["judge", "table", "responses.jsonl", "-o", "results"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("responses.jsonl:1: it is not a judgement"), "{}", stderr(&output));
    fs::write(folder.path().join("none.jsonl"), "").unwrap();
    let output = program().current_dir(folder.path()).args(["judge", "table", "none.jsonl", "-o", "results"]).output().unwrap();
    assert!(stderr(&output).contains("none.jsonl: cannot make a table"), "{}", stderr(&output));
}

#[test]
fn objectives_of_the_user_are_not_overwritten() {
    let server = good_server(|_| Duration::ZERO);
    let folder = tempfile::tempdir().unwrap();
    write_responses(folder.path(), 1);
    assert!(judge(folder.path(), &server, &["--no-cache"]).output().unwrap().status.success());
    let table = || program().current_dir(folder.path()).args(["judge", "table", "judged.jsonl", "-o", "."]).output().unwrap();
    let own = folder.path().join("objectives.toml");
    fs::write(&own, "# mine\n").unwrap();
    let refused = table();
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("objectives.toml holds other objectives"), "{}", stderr(&refused));
    assert_eq!(fs::read_to_string(&own).unwrap(), "# mine\n");
    assert!(!folder.path().join("judged_frontier.csv").exists());
    // Those of an earlier table are replaced.
    fs::remove_file(&own).unwrap();
    assert!(table().status.success());
    fs::write(&own, "# of another table\n").unwrap();
    assert!(table().status.success());
    assert_ne!(fs::read_to_string(&own).unwrap(), "# of another table\n");
}

#[test]
fn the_rubrics_are_printed() {
    let output = program().args(["judge", "rubrics", "--json"]).output().unwrap();
    let rubrics: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rubrics.as_array().unwrap().len(), 9);
    let toxicity = rubrics.as_array().unwrap().iter().find(|rubric| rubric["name"] == "toxicity").unwrap();
    assert_eq!((&toxicity["axis"], &toxicity["better"]), (&json!("safety"), &json!("less")));
    assert!(["scale", "column", "model"].iter().all(|field| toxicity.get(field).is_some()), "{toxicity}");
    // Printed as TOML, the rubrics parse to the same objectives.
    let toml = program().args(["judge", "rubrics", "--toml"]).output().unwrap().stdout;
    assert_eq!(&Objectives::parse(&String::from_utf8(toml).unwrap()).unwrap(), Objectives::hhh());
    // The versions of a file change with its texts if it is edited further.
    let folder = tempfile::tempdir().unwrap();
    let own = "[[objectives]]\nname = \"calm\"\n[[rubrics]]\nname = \"calm\"\ncriterion = \"?\"\nlow = \"a\"\nmiddle = \"b\"\nhigh = \"c\"\n";
    fs::write(folder.path().join("own.toml"), own).unwrap();
    let args = ["judge", "rubrics", "--toml", "--objectives", "own.toml"];
    let toml = program().current_dir(folder.path()).args(args).output().unwrap().stdout;
    assert_eq!(String::from_utf8(toml).unwrap().trim_end(), own.trim_end());
    let text = String::from_utf8(program().args(["judge", "rubrics"]).output().unwrap().stdout).unwrap();
    assert!(
        text.contains("epistemic_honesty, version 1 (honesty)") && text.contains("refusal, version 1 (reported by itself)"),
        "{text}"
    );
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn bad_input_is_named_on_one_line() {
    let server = good_server(|_| Duration::ZERO);
    let folder = tempfile::tempdir().unwrap();
    write_responses(folder.path(), 1);
    let refused = |args: &[&str], parts: &[&str]| {
        assert_refused(&judge(folder.path(), &server, args).output().unwrap(), parts);
    };
    refused(&["--rubrics", "toxcity"], &["toxcity", "did you mean \"toxicity\"?"]);
    refused(&["--scale", "5-1"], &["--scale", "0-10"]);
    refused(&["--scoring", "logprob", "--scale", "0-10"], &["0-10", "one digit"]);
    refused(&["--temperature", "-1"], &["--temperature"]);
    refused(&["--request", "[1]"], &["--request", "JSON object"]);
    refused(&["--concurrency", "0"], &["--concurrency"]);
    refused(&["--concurrency", "1000000"], &["--concurrency", "at most 1024"]);
    let output = program().args(["judge", "missing.jsonl", "-o", "x", "--endpoint", "http://localhost:1"]).output().unwrap();
    assert!(stderr(&output).contains("cannot read missing.jsonl"), "{}", stderr(&output));
    fs::write(folder.path().join("responses.jsonl"), "\n").unwrap();
    refused(&[], &["responses.jsonl", "no response"]);
}

#[test]
fn an_unreachable_judge_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    write_responses(folder.path(), 1);
    let refused = |more: &[&str], part: &str| {
        let args = [&["judge", "responses.jsonl", "-o", "judged.jsonl"], more].concat();
        let output = program().current_dir(folder.path()).args(args).output().unwrap();
        assert!(!output.status.success() && stderr(&output).contains(part), "{}", stderr(&output));
        assert!(!folder.path().join("judged.jsonl").exists(), "{part}");
    };
    refused(&["--offline", "--rubrics", "wit"], "\"wit\"");
    refused(&["--offline=nowhere"], "nowhere");
    refused(&["--endpoint", "http://127.0.0.1:1/v1", "--attempts", "1"], "127.0.0.1:1");
    refused(&["--offline", "nowhere"], "--offline=nowhere");
    refused(&[], "not provided: <--endpoint <URL>|--offline[=<DIR>]>");
}

#[test]
fn answers_of_a_server_are_escaped() {
    let answer = format!("\u{1b}[2J\u{1b}]0;mine\u{7}\u{9b}31m\u{202e}{}", "x".repeat(100_000));
    let refusals = [Reply::error(400, &answer), Reply::Status(400, Vec::new(), answer.clone()), Reply::says(&answer)];
    for (number, reply) in refusals.into_iter().enumerate() {
        let server = Server::start(move |request, _| match request.path.as_str() {
            "/v1/models" => Reply::Status(200, Vec::new(), json!({"data": [{"id": "the-model"}]}).to_string()),
            _ => reply.clone(),
        });
        let folder = tempfile::tempdir().unwrap();
        write_responses(folder.path(), 1);
        let text = stderr(&judge(folder.path(), &server, &["--attempts", "1"]).output().unwrap());
        assert!(number == 2 || text.lines().filter(|line| line.contains("\\u{1b}[2J")).count() > 1, "{text}");
        for line in text.lines() {
            assert!(!line.contains(|c: char| c.is_control() || c == '\u{202e}'), "{line:?}");
            assert!(line.len() < 5000, "{} bytes", line.len());
        }
    }
}
