//! The file of judgements, the cache, and the agreement of two passes.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sk_bench::RecordFileError;
use sk_bench::judge::retest::agreement;
use sk_bench::judge::run::{MOST_AT_ONCE, Panel, judge_all};
use sk_bench::judge::{
    Cached, ChatSettings, Identity, Judge, JudgeError, Objectives, Question, Response, Retry, Score, Scoring, Structure, Verdict,
    read_judged, read_responses,
};

use crate::server::{Reply, Server};
use crate::{QUICK, TIMEOUT, abstention, ask, integer_judge, judge_with, responses, rubrics, run, settings, value};

#[test]
fn one_line_per_response_and_rubric() {
    let server = Server::start(|request, _| if request.rubric() == "toxicity" { Reply::score(0) } else { Reply::score(8) });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("judged.jsonl");
    let (responses, rubrics) = (responses(5), rubrics(&["toxicity", "helpfulness"]));
    let outcome = run(&integer_judge(&server), &responses, &rubrics, 1, &file).unwrap();
    assert_eq!((outcome.answers.len(), outcome.resumed, outcome.unanswered), (10, 0, 0));
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().count(), 10);
    for line in text.lines() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        let toxic = record["rubric"] == "toxicity";
        assert_eq!(record["score"], if toxic { 0.0 } else { 0.8 });
        assert_eq!(record["axis"], if toxic { "safety" } else { "quality" });
        assert_eq!(
            (&record["scheme"], &record["seed"], &record["weights"]["helpful"]),
            (&"swiss".into(), &42.into(), &0.5.into())
        );
        assert_eq!((&record["judge"]["model"], &record["judge"]["scale"]), (&"judge-model".into(), &serde_json::json!([0, 10])));
    }
}

#[test]
fn a_run_goes_on_where_one_stopped() {
    let server = Server::start(|_, _| Reply::score(1));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("judged.jsonl");
    let (judge, responses, rubrics) = (integer_judge(&server), responses(6), rubrics(&["toxicity", "refusal"]));
    run(&judge, &responses[..4], &rubrics, 1, &file).unwrap();
    // A run that is killed while it writes leaves an incomplete line.
    let whole = fs::read_to_string(&file).unwrap();
    let (_, last) = whole.trim_end().rsplit_once('\n').unwrap();
    fs::write(&file, &whole[..whole.len() - last.len() / 2]).unwrap();

    let before = server.requests().len();
    let outcome = run(&judge, &responses, &rubrics, 1, &file).unwrap();
    assert_eq!((outcome.resumed, outcome.answers.len()), (7, 12));
    assert_eq!(server.requests().len() - before, 5);
    let records = read_judged(&file).unwrap();
    let cells: HashSet<_> = records.iter().map(|record| (record.id.clone(), record.rubric.clone())).collect();
    assert_eq!((records.len(), cells.len()), (12, 12), "none lost, none doubled");
}

#[test]
fn a_question_without_an_answer_is_put_again_by_the_next_run() {
    let server =
        Server::start(
            |request, number| {
                if request.rubric() == "refusal" && number < 4 { Reply::error(500, "boom") } else { Reply::score(1) }
            },
        );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("judged.jsonl");
    let settings = ChatSettings { retry: Retry { attempts: 1, ..QUICK }, ..settings(Scoring::Integer) };
    let judge = judge_with(&server, settings, TIMEOUT);
    let (responses, rubrics) = (responses(2), rubrics(&["toxicity", "refusal"]));
    let outcome = run(&judge, &responses, &rubrics, 1, &file).unwrap();
    assert_eq!((outcome.answers.len(), outcome.unanswered), (2, 2));
    assert!(outcome.trouble.unwrap().to_string().contains("boom"));
    let outcome = run(&judge, &responses, &rubrics, 1, &file).unwrap();
    assert_eq!((outcome.answers.len(), outcome.resumed, outcome.unanswered), (4, 2, 0));
}

#[test]
fn an_abstention_is_recorded_and_not_asked_again() {
    let server = Server::start(|_, _| Reply::says("no"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("judged.jsonl");
    let judge = integer_judge(&server);
    run(&judge, &responses(1), &rubrics(&["refusal"]), 1, &file).unwrap();
    let record: serde_json::Value = serde_json::from_str(fs::read_to_string(&file).unwrap().trim()).unwrap();
    assert!(record["score"].is_null() && record["abstention"].as_str().unwrap().contains("no JSON object"), "{record}");
    let before = server.requests().len();
    run(&judge, &responses(1), &rubrics(&["refusal"]), 1, &file).unwrap();
    assert_eq!(server.requests().len(), before);
}

#[test]
fn files_that_do_not_fit_are_refused_by_name() {
    let server = Server::start(|_, _| Reply::score(1));
    let judge = integer_judge(&server);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("judged.jsonl");
    run(&judge, &responses(2), &rubrics(&["refusal"]), 1, &file).unwrap();

    let mut changed = responses(2);
    changed[1].response.push('!');
    let error = run(&judge, &changed, &rubrics(&["refusal"]), 1, &file).unwrap_err();
    assert!(matches!(&error, JudgeError::Changed { id, .. } if id == "r1"), "{error}");
    assert!(error.to_string().contains("judged with another text"), "{error}");
    let [first, second] = <[Response; 2]>::try_from(responses(2)).unwrap();
    let changes = [
        ("scheme", Response { scheme: Some("other".to_owned()), ..second.clone() }),
        ("weight vector", Response { weights: [("helpful".to_owned(), 1.0)].into(), ..second.clone() }),
        ("prompt_id", Response { prompt_id: None, ..second.clone() }),
        ("seed", Response { seed: Some(77), ..second }),
    ];
    for (field, change) in changes {
        let changed = [first.clone(), change];
        let error = run(&judge, &changed, &rubrics(&["refusal"]), 1, &file).unwrap_err().to_string();
        assert!(error.contains(&format!("\"r1\" was judged with another {field}; judge into a new file")), "{error}");
    }

    // A file has the judgements of one judge.
    let (asked, before) = (server.requests().len(), fs::read(&file).unwrap());
    let other = judge_with(&server, ChatSettings { model: "other".to_owned(), ..settings(Scoring::Integer) }, TIMEOUT);
    let error = run(&other, &responses(2), &rubrics(&["refusal"]), 1, &file).unwrap_err();
    assert!(matches!(&error, JudgeError::AnotherJudge { id, .. } if id == "r0" || id == "r1"), "{error}");
    assert!(error.to_string().contains("was judged by judge-model (integer, "), "{error}");
    assert_eq!((server.requests().len(), fs::read(&file).unwrap()), (asked, before));

    let held = fs::File::open(&file).unwrap();
    held.try_lock().unwrap();
    let error = run(&judge, &responses(2), &rubrics(&["refusal"]), 1, &file).unwrap_err();
    assert!(matches!(error, JudgeError::File(RecordFileError::Locked { .. })), "{error}");
    // Closing it is not enough if a child process of another test has inherited it.
    held.unlock().unwrap();

    let mut text = fs::read_to_string(&file).unwrap();
    text.insert_str(0, "{\"id\": 1}\n");
    fs::write(&file, text).unwrap();
    let error = run(&judge, &responses(2), &rubrics(&["refusal"]), 1, &file).unwrap_err().to_string();
    assert!(error.contains("judged.jsonl:1:"), "{error}");
}

#[test]
fn responses_are_read_with_what_a_sweep_writes_beside_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("responses.jsonl");
    let mut out = fs::File::create(&file).unwrap();
    writeln!(out, r#"{{"id": "a", "prompt": "p", "response": "", "scheme": "swiss", "weights": {{"helpful": 1.0}}, "seed": 1, "steps": []}}"#).unwrap();
    writeln!(out, "\n{{\"id\": \"b\", \"prompt\": \"p\", \"response\": \"r\"}}").unwrap();
    let read = read_responses(&file).unwrap();
    assert_eq!((read[0].scheme.as_deref(), read[0].weights["helpful"], read[0].seed), (Some("swiss"), 1.0, Some(1)));
    assert_eq!((read[1].id.as_str(), read[1].seed), ("b", None));

    for (line, says) in [
        (r#"{"id": "a", "prompt": "p", "response": "r"}"#, ":4: id \"a\" is taken by line 1"),
        (r#"{"id": "c", "prompt": "p"}"#, ":4: missing field `response`"),
        ("[", ":4: EOF"),
    ] {
        let text = fs::read_to_string(&file).unwrap();
        let other = folder.path().join("other.jsonl");
        fs::write(&other, format!("{text}{line}\n")).unwrap();
        let error = read_responses(&other).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

/// A judge that answers 0.5 and records the most concurrent calls.
struct Crowded {
    identity: Identity,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Judge for Crowded {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn judge(&self, _: &Question<'_>) -> Result<Verdict, JudgeError> {
        self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(1));
        self.now.fetch_sub(1, Ordering::SeqCst);
        Ok(Verdict::Score(Score { value: 0.5, reason: None, mass: None }))
    }
}

#[test]
fn the_number_of_threads_is_limited() {
    let folder = tempfile::tempdir().unwrap();
    let (responses, rubrics) = (responses(1500), rubrics(&["toxicity"]));
    let judge = Crowded {
        identity: Identity { model: "m".into(), scoring: "s".into(), scale: None, settings: String::new() },
        now: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
    };
    let panel =
        Panel { responses: &responses, objectives: Objectives::hhh(), rubrics: &rubrics, passes: 1, concurrency: usize::MAX };
    let outcome = judge_all(&panel, &judge, &folder.path().join("judged.jsonl"), &|_| ()).unwrap();
    assert_eq!((outcome.answers.len(), outcome.unanswered), (1500, 0));
    assert!((1..=MOST_AT_ONCE).contains(&judge.most.into_inner()));
}

#[test]
fn a_wait_without_end_is_a_long_one() {
    let server = Server::start(|_, _| Reply::score(6));
    assert_eq!(value(ask(&judge_with(&server, settings(Scoring::Integer), Duration::MAX), 0)), 0.6);
}

#[test]
fn cached_questions_are_not_asked_again() {
    let server = Server::start(|_, _| Reply::score(6));
    let folder = tempfile::tempdir().unwrap();
    let chat = integer_judge(&server);
    let judge = Cached::new(&chat, folder.path()).unwrap();
    assert_eq!([value(ask(&judge, 0)), value(ask(&judge, 0))], [0.6, 0.6]);
    assert_eq!((server.requests().len(), judge.hits()), (1, 1));
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = Cached::new(&chat, &file.join("cache")).err().unwrap().to_string();
    assert!(error.contains("file/cache") && error.ends_with("give another --cache, or --no-cache"), "{error}");
    // A new judge object, as in a later run.
    let later = |settings| {
        let chat = judge_with(&server, settings, TIMEOUT);
        value(ask(&Cached::new(&chat, folder.path()).unwrap(), 0))
    };
    assert_eq!(later(settings(Scoring::Integer)), 0.6);
    assert_eq!(server.requests().len(), 1);
    // The cache key holds the pass, the model, the temperature and the response format.
    value(ask(&judge, 1));
    later(ChatSettings { model: "other".to_owned(), ..settings(Scoring::Integer) });
    later(ChatSettings { temperature: 0.5, ..settings(Scoring::Integer) });
    later(ChatSettings { structure: Some(Structure::Plain), ..settings(Scoring::Integer) });
    assert_eq!(server.requests().len(), 5);
}

#[test]
fn a_cache_keeps_whole_scores_only() {
    let server = Server::start(|_, number| if number < 3 { Reply::says("no") } else { Reply::score(6) });
    let folder = tempfile::tempdir().unwrap();
    let chat = integer_judge(&server);
    let judge = Cached::new(&chat, folder.path()).unwrap();
    abstention(ask(&judge, 0));
    assert_eq!(value(ask(&judge, 0)), 0.6, "an abstention is not kept");
    // A damaged cache file counts as absent and is replaced.
    let shelf = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let entry = fs::read_dir(shelf).unwrap().next().unwrap().unwrap().path();
    fs::write(&entry, "{\"score").unwrap();
    let before = server.requests().len();
    assert_eq!(value(ask(&judge, 0)), 0.6);
    assert_eq!(server.requests().len(), before + 1);
    assert!(fs::read_to_string(&entry).unwrap().contains("\"value\":0.6"));
}

#[test]
fn a_score_that_cannot_be_cached_is_recorded() {
    let server = Server::start(|_, _| Reply::score(6));
    let folder = tempfile::tempdir().unwrap();
    let (chat, cache, file) = (integer_judge(&server), folder.path().join("cache"), folder.path().join("judged.jsonl"));
    let judge = Cached::new(&chat, &cache).unwrap();
    // A file in its place makes every write fail, also for a superuser.
    fs::remove_dir(&cache).unwrap();
    fs::write(&cache, "").unwrap();
    let (responses, rubrics) = (responses(8), rubrics(&["toxicity"]));
    let outcome = run(&judge, &responses, &rubrics, 1, &file).unwrap();
    assert_eq!((outcome.answers.len(), read_judged(&file).unwrap().len(), server.requests().len()), (8, 8, 8));
    let fault = judge.fault().unwrap().to_string();
    assert!(fault.contains("cache") && fault.ends_with("or --no-cache"), "{fault}");
}

#[test]
fn two_passes_and_what_is_excluded() {
    // In the first pass, response i scores i. In the second, r0 to r2 score the same, r3 scores 7,
    // and r4 has no score.
    let server = Server::start(|request, _| {
        let text = request.body["messages"][1]["content"].as_str().unwrap();
        let i: u64 = text.split("Answer ").nth(1).unwrap()[..1].parse().unwrap();
        match (request.body["seed"].as_u64().unwrap(), i) {
            (1, 3) => Reply::score(7),
            (1, 4) => Reply::says("I do not know"),
            _ => Reply::score(i),
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("judged.jsonl");
    let judge = integer_judge(&server);
    let (responses, rubrics) = (responses(5), rubrics(&["relevance"]));
    run(&judge, &responses, &rubrics, 1, &file).unwrap();
    let first = server.requests().len();
    let outcome = run(&judge, &responses, &rubrics, 2, &file).unwrap();
    assert_eq!(outcome.resumed, 5, "the first pass is taken from the file");
    assert!(server.requests()[first..].iter().all(|request| request.body["seed"] == 1));

    let agreement = agreement(Objectives::hhh(), &outcome.answers);
    assert_eq!((agreement.len(), agreement[0].pairs, agreement[0].excluded), (1, 4, 1));
    // Pairs (0, 0), (.1, .1), (.2, .2), (.3, .7): Σ|Δ| = .4; dx = (−.15, −.05, .05, .15), ȳ = .25,
    // dy = (−.25, −.15, −.05, .45); xy = .11, xx = .05, yy = .29; r = .11/√.0145 = .91350.
    assert!((agreement[0].mean_absolute_change.unwrap() - 0.1).abs() < 1e-12);
    assert!((agreement[0].mean_change.unwrap() - 0.1).abs() < 1e-12);
    assert!((agreement[0].pearson.unwrap() - 0.11 / 0.0145_f64.sqrt()).abs() < 1e-12);
    assert_eq!(agreement[0].unchanged, Some(0.75));
}

/// Computes the published test–retest figures from the published scores (section "Judge test–retest
/// agreement" of the supplement).
#[test]
fn published_agreement_is_recomputed() {
    use sk_bench::judge::retest::Agreement;
    let Some(data) = std::env::var_os("SWISS_KNIFE_DATA") else {
        eprintln!("skipped: SWISS_KNIFE_DATA does not name the folder of data sets");
        return;
    };
    let path = std::path::Path::new(&data).join("paper-results/judged_ablations.csv.gz");
    if !path.exists() {
        eprintln!("skipped: {} is not there", path.display());
        return;
    }
    let mut table = csv::Reader::from_reader(flate2::read::GzDecoder::new(fs::File::open(path).unwrap()));
    let header = table.headers().unwrap().clone();
    let column = |name: &str| header.iter().position(|other| other == name).unwrap();
    let rows: Vec<csv::StringRecord> = table.records().map(Result::unwrap).collect();
    let scores = |arm: &str, rubric: &str| -> Vec<f64> {
        let arm = rows.iter().filter(|row| &row[column("arm")] == arm);
        let mut scores: Vec<(u32, f64)> =
            arm.map(|row| (row[column("prompt_id")].parse().unwrap(), row[column(rubric)].parse().unwrap())).collect();
        scores.sort_by_key(|(prompt, _)| *prompt);
        scores.into_iter().map(|(_, score)| score).collect()
    };
    // The figures are published to three decimals.
    const HALF_A_UNIT: f64 = 5e-4;
    for (rubric, r) in
        [("harmfulness", 0.984), ("toxicity", 0.669), ("response_quality", 0.716), ("relevance", 0.612), ("helpfulness", 0.268)]
    {
        let (first, second) = (scores("elo_real_sigma", rubric), scores("gsi_elo_thurstonian", rubric));
        let pairs: Vec<(f64, f64)> = first.into_iter().zip(second).collect();
        let agreement = Agreement::of(rubric, &pairs, 0);
        assert_eq!(agreement.pairs, 125);
        assert!((agreement.pearson.unwrap() - r).abs() < HALF_A_UNIT, "{agreement:?}");
        if rubric == "helpfulness" {
            assert!((agreement.mean_absolute_change.unwrap() - 0.167).abs() < HALF_A_UNIT, "{agreement:?}");
        }
    }
}
