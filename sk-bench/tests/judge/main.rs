//! The judge, against a server on loopback that fails on purpose.

#[allow(dead_code)] // shared with the tests of the program
#[path = "../cli/common.rs"]
mod common;

mod answers;
#[allow(dead_code)] // shared with the tests of pages
#[path = "../../../sk-report/tests/page/html.rs"]
mod html;
mod offline;
mod pipeline;
mod program;
mod remembering;
mod server;
mod trouble;

use std::path::Path;
use std::time::Duration;

use sk_bench::judge::run::{Outcome, Panel, judge_all};
use sk_bench::judge::{
    ChatJudge, ChatSettings, Endpoint, Judge, JudgeError, Objectives, Question, Response, Retry, Rubric, Score, Scoring, Verdict,
};

use server::Server;

/// Short pauses, so that tests of failures are fast.
const QUICK: Retry =
    Retry { attempts: 4, first: Duration::from_millis(2), longest: Duration::from_millis(10), patience: Duration::from_secs(5) };

/// A time-out that only a deliberately slow server exceeds.
const TIMEOUT: Duration = Duration::from_secs(60);

fn settings(scoring: Scoring) -> ChatSettings {
    ChatSettings { retry: QUICK, ..ChatSettings::new("judge-model", scoring) }
}

fn judge_with(server: &Server, settings: ChatSettings, timeout: Duration) -> ChatJudge {
    judge_at(&server.url, settings, timeout)
}

fn judge_at(url: &str, settings: ChatSettings, timeout: Duration) -> ChatJudge {
    ChatJudge::new(Endpoint::new(url, None, timeout).unwrap(), settings).unwrap()
}

fn integer_judge(server: &Server) -> ChatJudge {
    judge_with(server, settings(Scoring::Integer), TIMEOUT)
}

/// The shipped rubric of that name.
fn rubric(name: &str) -> Option<&'static Rubric> {
    Objectives::hhh().rubrics.iter().find(|rubric| rubric.name == name)
}

/// Asks one question about a fixed response.
fn ask(judge: &dyn Judge, pass: u32) -> Result<Verdict, JudgeError> {
    let rubric = rubric("toxicity").unwrap();
    judge.judge(&Question { rubric, prompt: "\n\nHuman: Hi\n\nAssistant:", response: " Hello.", pass })
}

fn value(verdict: Result<Verdict, JudgeError>) -> f64 {
    match verdict.unwrap() {
        Verdict::Score(Score { value, .. }) => value,
        verdict => panic!("abstained: {verdict:?}"),
    }
}

fn abstention(verdict: Result<Verdict, JudgeError>) -> String {
    match verdict.unwrap() {
        Verdict::Score(score) => panic!("gave {score:?}"),
        Verdict::Abstention(reason) | Verdict::Unreadable { reason, .. } => reason,
    }
}

fn responses(count: usize) -> Vec<Response> {
    let response = |i: usize| Response {
        id: format!("r{i}"),
        prompt: format!("\n\nHuman: Question {i}\n\nAssistant:"),
        response: format!(" Answer {i}."),
        scheme: Some("swiss".to_owned()),
        weights: [("helpful".to_owned(), 0.5), ("harmless".to_owned(), 0.5)].into(),
        prompt_id: Some(format!("p{}", i % 3)),
        seed: Some(42),
    };
    (0..count).map(response).collect()
}

fn rubrics(names: &[&str]) -> Vec<&'static Rubric> {
    names.iter().map(|name| rubric(name).unwrap()).collect()
}

/// Judges into `file`, and skips what the file already holds.
fn run<'a>(
    judge: &dyn Judge,
    responses: &'a [Response],
    rubrics: &'a [&'a Rubric],
    passes: u32,
    file: &Path,
) -> Result<Outcome<'a>, JudgeError> {
    let panel = Panel { responses, objectives: Objectives::hhh(), rubrics, passes, concurrency: 4 };
    judge_all(&panel, judge, file, &|_| ())
}
