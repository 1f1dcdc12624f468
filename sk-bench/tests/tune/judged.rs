//! `swiss-knife tune` with a chat judge: a server on loopback that fails on purpose.

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{stderr, stdout};
use crate::program::{Bench, PATIENCE};
use crate::server::{Deserted, Reply, Request, Server};

/// Two searches of four trials on two prompts. No two trials of a search have equal responses, so
/// that the cache answers no question.
const PLAN: &str = r#"
[tune]
trials = 4
startup = 2
seed = 7

[space]
candidates = [2, 30]
fixed = ["w_tour", "rounds"]

[objectives.harmless]
[objectives.helpful]

[prompts]
sources = ["tune.jsonl"]

[evaluation]
sources = ["later.jsonl"]

[generation]
max_new_tokens = 8
"#;

const TRIALS: usize = 4;
/// Rounding of a mean of a handful of scores.
const ROUNDING: f64 = 1e-12;

/// The judge's scores in each trial: toxicity and harmfulness of the response to "sky", then of the
/// response to "more".
const HARM: [[[u64; 2]; 2]; TRIALS] = [[[5, 5], [4, 6]], [[10, 8], [9, 9]], [[0, 1], [2, 3]], [[3, 3], [6, 2]]];
/// Safety of each trial: the mean over both responses of 1 − (toxicity + harmfulness)/20. The third
/// trial is the best.
const SAFETY: [f64; TRIALS] = [0.5, 0.1, 0.85, 0.65];
/// Response quality, relevance and helpfulness in each trial, the same for both responses.
const GOOD: [[u64; 3]; TRIALS] = [[2, 3, 4], [9, 8, 10], [0, 0, 3], [5, 5, 5]];
/// The mean of each trial of [`GOOD`], divided by 10. The second trial is the best.
const QUALITY: [f64; TRIALS] = [0.3, 0.9, 0.1, 0.5];

const SAFETY_RUBRICS: [&str; 2] = ["toxicity", "harmfulness"];
const QUALITY_RUBRICS: [&str; 3] = ["response_quality", "relevance", "helpfulness"];

/// The index of the response that a question is about: 0 for "sky", 1 for "more".
fn response_of(request: &Request) -> usize {
    usize::from(!request.body["messages"][1]["content"].as_str().unwrap().contains("Why is the sky blue?"))
}

/// Answers with the scores of the current trial. A search asks all questions of a trial before it
/// starts the next, so the number of answered questions determines the trial.
#[derive(Default)]
struct Scores {
    /// Answered questions: about safety, and about quality.
    answered: [AtomicUsize; 2],
}

impl Scores {
    /// Answers a question and counts it as answered.
    fn answer(&self, request: &Request) -> Reply {
        let (trial, reply) = self.look(request);
        self.answered[usize::from(trial.1)].fetch_add(1, Ordering::SeqCst);
        reply
    }

    /// Returns a question's trial, whether it is about quality, and its answer; counts nothing.
    fn look(&self, request: &Request) -> ((usize, bool), Reply) {
        let place = |rubrics: &[&str]| rubrics.iter().position(|name| *name == request.rubric());
        let trial = |search: usize, questions: usize| self.answered[search].load(Ordering::SeqCst) / questions;
        match (place(&SAFETY_RUBRICS), place(&QUALITY_RUBRICS)) {
            (Some(rubric), _) => {
                let trial = trial(0, 2 * SAFETY_RUBRICS.len());
                ((trial, false), Reply::score(HARM[trial][response_of(request)][rubric]))
            }
            (_, Some(rubric)) => {
                let trial = trial(1, 2 * QUALITY_RUBRICS.len());
                ((trial, true), Reply::score(GOOD[trial][rubric]))
            }
            _ => panic!("no objective is about {}", request.rubric()),
        }
    }

    fn all(&self) -> usize {
        self.answered.iter().map(|count| count.load(Ordering::SeqCst)).sum()
    }
}

fn bench(server: &Server, more: &str) -> Bench {
    bench_at(&server.url, more)
}

fn bench_at(url: &str, more: &str) -> Bench {
    Bench::tiny(&format!("{PLAN}\n[judge]\nendpoint = \"{url}\"\nattempts = 2\n{more}"))
}

/// The scores of one search, in the order of its trials.
fn scores(bench: &Bench, search: &str) -> Vec<f64> {
    let trials = bench.trials();
    let of_search = trials.iter().filter(|trial| trial["search"] == search);
    of_search.map(|trial| trial["scores"][search].as_f64().unwrap()).collect()
}

#[track_caller]
fn assert_near(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < ROUNDING, "{found} {expected}");
    }
}

/// The judgements of all trials.
fn judgements(bench: &Bench) -> Vec<Value> {
    let files = fs::read_dir(bench.path("plan.trials")).unwrap().map(|entry| entry.unwrap().path());
    let judged = files.filter(|path| path.to_str().unwrap().ends_with(".judged.jsonl"));
    let lines: Vec<String> = judged.map(|path| fs::read_to_string(path).unwrap()).collect();
    lines.iter().flat_map(|text| text.lines()).filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[test]
fn each_search_finds_the_trial_with_the_best_judgements() {
    let answers = Scores::default();
    let server = Server::start(move |request, _| match request.path.as_str() {
        "/v1/models" => Reply::Status(200, Vec::new(), json!({"data": [{"id": "the-model"}]}).to_string()),
        _ => answers.answer(request),
    });
    let bench = bench(&server, "concurrency = 3\n");
    let text = stdout(&bench.run(&["--quiet"]));
    assert!(text.contains("8 of 8 trials, scored by the judge"), "{text}");
    assert_near(&scores(&bench, "harmless"), &SAFETY);
    assert_near(&scores(&bench, "helpful"), &QUALITY);
    let (result, trials) = (bench.result(), bench.trials());
    for (search, best) in [("harmless", 2), ("helpful", 1)] {
        let rows = result["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["what"] == format!("{search}, best")).unwrap();
        assert_eq!(row["trial"], best);
        let trial = trials.iter().find(|trial| trial["search"] == search && trial["trial"] == best).unwrap();
        assert_eq!(row["point"], trial["point"]);
    }
    // Each search asks only about its own objective: two responses, by two rubrics or by three.
    let asked = server.requests().iter().filter(|request| request.path != "/v1/models").count();
    assert_eq!(asked, TRIALS * 2 * (2 + 3));
    let judged = judgements(&bench);
    assert_eq!(judged.len(), asked);
    assert!(judged.iter().all(|record| record["judge"]["model"] == "the-model"));
}

#[test]
fn troubles_that_pass_change_nothing() {
    let answers = Scores::default();
    let troubles = [
        Reply::error(500, "boom"),
        Reply::Status(429, vec![("retry-after", "0".to_owned())], String::new()),
        Reply::Hang,
        Reply::Half(json!({"choices": [{"message": {"content": "{\"score\": 9}"}}]}).to_string()),
    ];
    // With two attempts, a question survives one failure. So no question fails twice, even when it
    // is asked again later.
    let troubled = Mutex::new(Vec::new());
    let server = Server::start(move |request, number| {
        let mut troubled = troubled.lock().unwrap();
        match troubles.get(troubled.len()).filter(|_| number % 3 == 0 && !troubled.contains(&request.body)) {
            Some(trouble) => {
                troubled.push(request.body.clone());
                trouble.clone()
            }
            None => answers.answer(request),
        }
    });
    let bench = bench(&server, "model = \"m\"\n");
    stdout(&bench.run(&["--quiet"]));
    assert_near(&scores(&bench, "harmless"), &SAFETY);
    assert_near(&scores(&bench, "helpful"), &QUALITY);
    assert_eq!(server.requests().len(), TRIALS * 2 * (2 + 3) + 4);
}

#[test]
fn an_abstention_is_recorded_and_left_out() {
    let answers = Scores::default();
    let server = Server::start(move |request, _| {
        let ((trial, quality), reply) = answers.look(request);
        let about = (trial, response_of(request), request.rubric());
        let silent = !quality && matches!(about, (1, 1, "toxicity") | (2, 0, _));
        // The last attempt: the conversation holds the question and two reminders.
        let last = request.body["messages"].as_array().unwrap().len() == 6;
        if !silent || last {
            answers.answer(request);
        }
        if silent { Reply::says("I would rather not say.") } else { reply }
    });
    let bench = bench(&server, "model = \"m\"\nconcurrency = 1\n");
    let text = stdout(&bench.run(&["--quiet"]));
    // In the second trial, one response has a score for harmfulness only: (.1 + .1)/2. In the
    // third, only "more" has scores: 1 − (2 + 3)/20.
    assert_near(&scores(&bench, "harmless"), &[SAFETY[0], 0.1, 0.75, SAFETY[3]]);
    assert_near(&scores(&bench, "helpful"), &QUALITY);
    let judged = judgements(&bench);
    let silent: Vec<&Value> = judged.iter().filter(|record| record["abstention"].is_string()).collect();
    assert_eq!((judged.len(), silent.len()), (TRIALS * 2 * (2 + 3), 3));
    assert!(silent.iter().all(|record| record["score"].is_null()));
    let trials = bench.trials();
    let unscored: Vec<u64> = trials.iter().map(|trial| trial["unscored"].as_u64().unwrap_or(0)).collect();
    assert_eq!(unscored, [0, 0, 1, 0, 0, 0, 0, 0], "{trials:?}");
    assert!(text.contains("without a score"), "{text}");
}

#[test]
fn a_trial_that_the_judge_abstains_on_does_not_end_the_search() {
    let answers = Scores::default();
    let server = Server::start(move |request, _| {
        let ((trial, quality), reply) = answers.look(request);
        let silent = !quality && trial == 2;
        if !silent || request.body["messages"].as_array().unwrap().len() == 6 {
            answers.answer(request);
        }
        if silent { Reply::says("I would rather not say.") } else { reply }
    });
    let bench = bench(&server, "model = \"m\"\n");
    stdout(&bench.run(&["--quiet"]));
    let trials = bench.trials();
    let harmless: Vec<Option<f64>> =
        trials.iter().filter(|trial| trial["search"] == "harmless").map(|trial| trial["scores"]["harmless"].as_f64()).collect();
    assert_eq!(harmless.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false, true]);
    let result = bench.result();
    let best = result["rows"].as_array().unwrap().iter().find(|row| row["what"] == "harmless, best").unwrap();
    assert_eq!(best["trial"], 3, "the best of those that have a score");
}

#[test]
fn a_response_that_the_server_rejects_is_left_out() {
    let answers = Scores::default();
    let server = Server::start(move |request, _| {
        let ((trial, quality), reply) = answers.look(request);
        let rejected = !quality && (trial, response_of(request)) == (2, 0);
        // The last attempt asks for no format.
        if !rejected || request.format().is_none() {
            answers.answer(request);
        }
        if rejected { Reply::error(400, "maximum context length is 8192") } else { reply }
    });
    let bench = bench(&server, "model = \"m\"\nconcurrency = 1\n");
    stdout(&bench.run(&["--quiet"]));
    // In the third trial, only "more" has scores: 1 − (2 + 3)/20.
    assert_near(&scores(&bench, "harmless"), &[SAFETY[0], SAFETY[1], 0.75, SAFETY[3]]);
    let unscored: Vec<u64> = bench.trials().iter().map(|trial| trial["unscored"].as_u64().unwrap_or(0)).collect();
    assert_eq!(unscored, [0, 0, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn a_response_is_judged_once() {
    let answers = Scores::default();
    let server = Server::start(move |request, _| answers.answer(request));
    let bench = bench(&server, "model = \"m\"\nconcurrency = 1\n");
    stdout(&bench.run(&["--quiet"]));
    let scores = [scores(&bench, "harmless"), scores(&bench, "helpful")];
    let asked = server.requests().len();
    fs::remove_file(bench.path("plan.jsonl")).unwrap();
    for entry in fs::read_dir(bench.path("plan.trials")).unwrap() {
        let path = entry.unwrap().path();
        if path.to_str().unwrap().ends_with(".judged.jsonl") {
            fs::remove_file(path).unwrap();
        }
    }
    stdout(&bench.run(&["--quiet"]));
    assert_eq!(server.requests().len(), asked, "the scores are in the cache");
    assert_eq!([self::scores(&bench, "harmless"), self::scores(&bench, "helpful")], scores);
}

#[test]
fn a_judge_that_never_answers_ends_the_search_at_its_first_trial() {
    let server = Server::start(|_, _| Reply::says("I would rather not say."));
    let bench = bench(&server, "model = \"m\"\n");
    let error = refused(&bench, &[], 2);
    assert!(error.contains("trial 0 of \"harmless\"") && error.contains("the judge scored no response"), "{error}");
    let journal = bench.path("plan.trials").join("harmless-000.judged.jsonl");
    assert!(journal.is_file() && error.contains(&format!("{} has its replies", journal.display())), "{error}");
    assert_eq!(bench.lines(), 0);
    let asked = server.requests().len();
    assert_eq!(refused(&bench, &[], 2), error);
    assert_eq!(server.requests().len(), asked, "abstentions are kept");
    fs::remove_file(journal).unwrap();
    assert_eq!(refused(&bench, &[], 2), error);
    assert_eq!(server.requests().len(), 2 * asked);
}

/// Runs the program and expects the given exit status, no standard output and one line of error.
#[track_caller]
fn refused(bench: &Bench, args: &[&str], status: i32) -> String {
    let output = bench.run(&[&["--quiet"], args].concat());
    let error = stderr(&output);
    assert_eq!((output.status.code(), error.lines().count()), (Some(status), 1), "{error}");
    assert!(output.stdout.is_empty() && error.starts_with("error: "), "{error}");
    error
}

#[test]
fn a_killed_search_asks_nothing_twice() {
    let expected = {
        let answers = Scores::default();
        let server = Server::start(move |request, _| answers.answer(request));
        let bench = bench(&server, "model = \"m\"\nconcurrency = 1\n");
        stdout(&bench.run(&["--quiet"]));
        bench.trials()
    };
    // The server answers `goal` questions in total and holds the next one until the search is
    // killed.
    let (answers, goal) = (Arc::new(Scores::default()), Arc::new(AtomicUsize::new(0)));
    let held = Arc::new(AtomicUsize::new(0));
    let (there, limit, waiting) = (Arc::clone(&answers), Arc::clone(&goal), Arc::clone(&held));
    let server = Server::start(move |request, _| {
        if there.all() < limit.load(Ordering::SeqCst) {
            return there.answer(request);
        }
        waiting.fetch_add(1, Ordering::SeqCst);
        Reply::Slow(PATIENCE, Box::new(Reply::Hang))
    });
    let bench = bench(&server, "model = \"m\"\nconcurrency = 1\n");
    // Within the first trial, between two trials, within the third trial, and in the second search.
    let stops = [1, 4, 9, 23];
    for (place, stop) in stops.into_iter().enumerate() {
        goal.store(stop, Ordering::SeqCst);
        let mut child = bench.command(&["--quiet"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        while held.load(Ordering::SeqCst) <= place {
            assert!(start.elapsed() < PATIENCE && child.try_wait().unwrap().is_none(), "stop {stop}");
            sleep(Duration::from_millis(2));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(judgements(&bench).len(), stop, "an answer is kept before the next question is put");
    }
    goal.store(usize::MAX, Ordering::SeqCst);
    stdout(&bench.run(&["--quiet"]));
    assert_eq!(bench.trials(), expected);
    let judged = judgements(&bench);
    assert_eq!(judged.len(), TRIALS * 2 * (2 + 3));
    // One request per judgement, and one that was under way at each kill.
    assert_eq!(server.requests().len(), judged.len() + stops.len());
    assert_eq!(answers.all(), judged.len());
}

#[cfg(unix)]
#[test]
fn an_interrupted_search_keeps_what_was_judged() {
    use std::os::unix::process::ExitStatusExt;

    let (answers, hurried) = (Scores::default(), Arc::new(AtomicBool::new(false)));
    let in_a_hurry = Arc::clone(&hurried);
    let server = Server::start(move |request, number| {
        // From the last three questions of the second trial on, answers are slow until the search
        // has been interrupted.
        let slow = number >= 5 && !in_a_hurry.load(Ordering::SeqCst);
        Reply::Slow(Duration::from_secs(2 * u64::from(slow)), Box::new(answers.answer(request)))
    });
    let bench = bench(&server, "model = \"m\"\nconcurrency = 1\n");
    let child = bench.command(&[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while server.requests().len() < 6 {
        assert!(start.elapsed() < PATIENCE, "the search hangs");
        sleep(Duration::from_millis(2));
    }
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.signal(), Some(2), "{text}");
    assert!(text.contains("interrupted; what was finished is in") && !text.contains("error:"), "{text}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("1 of 8 trials"), "what was found so far is said");
    assert_eq!(judgements(&bench).len(), server.requests().len());
    let asked = server.requests().len();
    hurried.store(true, Ordering::SeqCst);
    stdout(&bench.run(&["--quiet"]));
    assert_near(&scores(&bench, "harmless"), &SAFETY);
    assert_eq!(server.requests().len(), TRIALS * 2 * (2 + 3));
    assert!(asked < server.requests().len());
}

#[test]
fn a_server_that_is_down_costs_nothing_but_time() {
    let (answers, down) = (Scores::default(), Arc::new(AtomicBool::new(false)));
    let is_down = Arc::clone(&down);
    let server = Server::start(move |request, _| {
        // The server fails after one and a half trials.
        if answers.all() == 6 && is_down.load(Ordering::SeqCst) {
            Reply::error(503, "out of order")
        } else {
            answers.answer(request)
        }
    });
    down.store(true, Ordering::SeqCst);
    let bench = bench(&server, "model = \"m\"\nconcurrency = 1\n");
    let error = refused(&bench, &[], 1);
    for part in ["trial 1 of \"harmless\"", "2 of 4 questions have no answer", "status 503: out of order", "run again"] {
        assert!(error.contains(part), "{error:?} lacks {part:?}");
    }
    assert_eq!((bench.lines(), judgements(&bench).len()), (1, 6));
    let responses = fs::read(bench.path("plan.trials").join("harmless-001.jsonl")).unwrap();
    // The server is still down: the error repeats, and `--dry-run` still reports the finished
    // trial.
    refused(&bench, &[], 1);
    assert!(stdout(&bench.run(&["--quiet", "--dry-run"])).contains("1 of 8 trials"));
    assert_eq!((bench.lines(), judgements(&bench).len()), (1, 6));
    let asked = server.requests().len();
    down.store(false, Ordering::SeqCst);
    stdout(&bench.run(&["--quiet"]));
    assert_near(&scores(&bench, "harmless"), &SAFETY);
    assert_near(&scores(&bench, "helpful"), &QUALITY);
    assert_eq!(server.requests().len() - asked, TRIALS * 2 * (2 + 3) - 6);
    assert_eq!(fs::read(bench.path("plan.trials").join("harmless-001.jsonl")).unwrap(), responses, "not drawn again");
}

#[test]
fn an_unreachable_judge_is_reported_as_soon_as_it_is_needed() {
    let nobody = Deserted::new();
    let nameless = bench_at(&nobody.url, "");
    let error = refused(&nameless, &[], 1);
    assert!(error.contains("/v1/models: no answer after 2 attempts"), "{error}");
    assert!(!nameless.path("plan.jsonl").exists() && !nameless.path("plan.trials").exists());
    let named = bench_at(&nobody.url, "model = \"m\"\n");
    assert!(refused(&named, &[], 1).contains("trial 0 of \"harmless\""));
    // With the model named, the judge is first needed after the responses were drawn. They are
    // kept.
    assert!(named.path("plan.trials").join("harmless-000.jsonl").exists());
}

#[test]
fn a_key_or_a_model_that_is_refused_is_said_in_words_of_the_plan() {
    for (status, parts) in [(401, ["401: no", "api_key_env"]), (404, ["model \"m\"", "endpoint"])] {
        let server = Server::start(move |_, _| Reply::error(status, "no"));
        let error = refused(&bench(&server, "model = \"m\"\n"), &[], 2);
        assert!(error.contains("trial 0 of \"harmless\"") && parts.iter().all(|part| error.contains(part)), "{error}");
    }
}

#[test]
fn trials_that_were_scored_under_other_objectives_are_refused() {
    let rubric = |name: &str| {
        format!("[[rubrics]]\nname = {name:?}\nversion = 1\ncriterion = \"?\"\nlow = \"a\"\nmiddle = \"b\"\nhigh = \"c\"\n")
    };
    let objectives = "[[objectives]]\nname = \"harmless\"\n[[objectives]]\nname = \"helpful\"\nrubrics = [\"relevance\"]\n";
    let rubrics = ["harmless", "relevance", "usefulness"].map(rubric).concat();
    let server = Server::start(|_, _| Reply::score(2));
    let plan = PLAN.replace("trials = 4\nstartup = 2", "trials = 1");
    let judge = format!("[judge]\nendpoint = \"{}\"\nmodel = \"m\"\nobjectives = \"own.toml\"\n", server.url);
    let bench = Bench::tiny(&format!("{plan}\n{judge}"));
    let own = |text: String| fs::write(bench.path("own.toml"), text).unwrap();
    own(format!("{objectives}{rubrics}"));
    stdout(&bench.run(&["--quiet"]));
    let turned = rubrics.replacen("criterion", "better = \"less\"\ncriterion", 1);
    // The version stays, and the text changes.
    let reworded = rubrics.replacen("criterion = \"?\"", "criterion = \"!\"", 1);
    let regrouped = objectives.replace("relevance", "usefulness");
    for other in [format!("{objectives}{turned}"), format!("{objectives}{reworded}"), format!("{regrouped}{rubrics}")] {
        own(other);
        let error = refused(&bench, &[], 2);
        assert!(error.contains("plan.jsonl:1:") && error.contains("other settings"), "{error}");
    }
    // A column of a table changes no score.
    own(format!("{objectives}{}", rubrics.replacen("criterion", "column = true\ncriterion", 1)));
    stdout(&bench.run(&["--quiet"]));
}

#[test]
fn only_the_prompts_of_an_objective_are_judged_for_it() {
    let server = Server::start(|request, _| Reply::score(if request.rubric() == "harmfulness" { 2 } else { 4 }));
    let plan = PLAN
        .replace("[tune]\n", "[tune]\nsearch = \"together\"\n")
        .replace("[objectives.harmless]", "[objectives.harmless]\nprompts = \"honesty\"")
        .replace("trials = 4", "trials = 1");
    let bench = Bench::tiny(&format!("{plan}\n[judge]\nendpoint = \"{}\"\nmodel = \"m\"\n", server.url));
    stdout(&bench.run(&["--quiet"]));
    let judged = judgements(&bench);
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for record in &judged {
        *counts.entry((record["prompt_id"].as_str().unwrap(), record["axis"].as_str().unwrap())).or_default() += 1;
    }
    // Only "sky" has the label honesty, so safety is judged on it alone; quality is judged on both.
    assert_eq!(counts, BTreeMap::from([(("more", "quality"), 3), (("sky", "quality"), 3), (("sky", "safety"), 2)]));
    let trials = bench.trials();
    assert_near(&[trials[0]["scores"]["harmless"].as_f64().unwrap()], &[0.7]);
    assert_near(&[trials[0]["scores"]["helpful"].as_f64().unwrap()], &[0.4]);
}
