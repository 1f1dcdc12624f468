//! The main loop of judging.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use crate::interrupt;
use crate::record_file::RecordFile;

use super::{Identity, Judge, JudgeError, Judged, Objectives, Question, Response, Rubric};

/// Number of consecutive unanswered questions after which judging stops. Questions that the server
/// rejects count until one is answered.
const OUTAGE: usize = 10;

/// Maximum number of concurrent questions. Each needs a thread.
pub const MOST_AT_ONCE: usize = 1024;

/// The work of a judging run.
#[derive(Debug, Clone)]
pub struct Panel<'a> {
    /// The responses.
    pub responses: &'a [Response],
    /// The objectives of the rubrics.
    pub objectives: &'a Objectives,
    /// The rubrics to ask about.
    pub rubrics: &'a [&'a Rubric],
    /// Number of passes. Each asks all questions.
    pub passes: u32,
    /// Number of concurrent questions, at most [`MOST_AT_ONCE`].
    pub concurrency: usize,
}

/// The answer to a question of a panel, without the details that the file keeps.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Answer<'a> {
    /// The response.
    pub response: &'a Response,
    /// The rubric.
    pub rubric: &'a Rubric,
    /// Number of the pass, from 0.
    pub pass: u32,
    /// The score in [0, 1]; `None` if the judge abstained.
    pub score: Option<f64>,
}

/// The result of a run.
#[derive(Debug)]
#[non_exhaustive]
pub struct Outcome<'a> {
    /// The answers found in the file, then the new ones. Unanswered questions have none.
    pub answers: Vec<Answer<'a>>,
    /// How many of them were found in the file.
    pub resumed: usize,
    /// Number of unanswered questions.
    pub unanswered: usize,
    /// How many of them the server rejects.
    pub rejected: usize,
    /// The error of the first unanswered question.
    pub trouble: Option<JudgeError>,
}

/// The state that the threads of a run share.
struct State<'a> {
    outcome: Outcome<'a>,
    /// Number of consecutive unanswered questions.
    in_a_row: usize,
    /// The error that stopped the run.
    fatal: Option<JudgeError>,
}

/// An event of a run.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// The run begins.
    Begun {
        /// Number of questions.
        total: usize,
        /// Number of questions that earlier runs answered.
        resumed: usize,
    },
    /// A question was answered.
    Answered(&'a Judged),
    /// A question could not be answered.
    Failed(&'a JudgeError),
}

/// Asks a judge all questions of a panel that the file at `path` does not answer already, and
/// appends the answers to the file, which is created if needed and locked during the run.
///
/// An unanswered question does not stop the run. It is not recorded, and a later run asks it again.
/// The run stops after ten consecutive unanswered questions, where those that the server rejects count
/// only if the file has no answer, and after an error that concerns all questions, such as a wrong
/// key.
///
/// # Errors
/// If the file cannot be used, a response has changed since it was judged, another judge has judged
/// it, or the run stopped before all questions were asked. The file holds the answers so far.
pub fn judge_all<'a>(
    panel: &Panel<'a>,
    judge: &dyn Judge,
    path: &Path,
    watch: &(dyn Fn(Event<'_>) + Sync),
) -> Result<Outcome<'a>, JudgeError> {
    let identity = judge.identity();
    let questions = panel.questions();
    let by_id: HashMap<&str, usize> = (0..).zip(panel.responses).map(|(at, response)| (response.id.as_str(), at)).collect();
    let mut done = vec![false; questions.len()];
    let mut answers = Vec::new();
    let journal = RecordFile::open_with(path, |_, record: Judged| {
        let Some(&response) = by_id.get(record.id.as_str()) else { return Ok(()) };
        check_earlier(&panel.responses[response], identity, path, &record)?;
        let Some(question) = panel.position(response, &record) else { return Ok(()) };
        // A record without a score and without an abstention is not an answer.
        let is_answer = record.score.is_some() || record.abstention.is_some();
        if is_answer && !std::mem::replace(&mut done[question], true) {
            answers.push(Answer { score: record.score, ..questions[question] });
        }
        Ok::<_, JudgeError>(())
    })?;
    let (resumed, total) = (answers.len(), questions.len());
    let open: Vec<_> = questions.into_iter().zip(done).filter(|(_, done)| !done).map(|(question, _)| question).collect();
    watch(Event::Begun { total, resumed });

    let next = AtomicUsize::new(0);
    let outcome = Outcome { answers, resumed, unanswered: 0, rejected: 0, trouble: None };
    let state = Mutex::new(State { outcome, in_a_row: 0, fatal: None });
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    let ask = |Answer { response, rubric, pass, .. }: Answer<'a>| {
        if interrupt::requested() {
            return Err(JudgeError::Interrupted);
        }
        let started = Instant::now();
        let question = Question { rubric, prompt: &response.prompt, response: &response.response, pass };
        let verdict = judge.judge(&question)?;
        let axis = panel.objectives.objective_of(&rubric.name).map(|objective| objective.name.clone());
        let record = Judged::new(response, &question, axis, identity, verdict, started.elapsed().as_secs_f64());
        journal.append(&record)?;
        Ok(record)
    };
    let work = || {
        while lock().fatal.is_none() {
            let Some(&question) = open.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            match ask(question) {
                Ok(record) => {
                    watch(Event::Answered(&record));
                    let mut state = lock();
                    state.in_a_row = 0;
                    state.outcome.answers.push(Answer { score: record.score, ..question });
                }
                Err(error) if error.is_local() => {
                    watch(Event::Failed(&error));
                    let mut state = lock();
                    let is_rejected = matches!(error, JudgeError::Rejected { .. });
                    state.outcome.unanswered += 1;
                    state.outcome.rejected += usize::from(is_rejected);
                    // A server that answers others and rejects this question is there.
                    let is_there = is_rejected && !state.outcome.answers.is_empty();
                    state.in_a_row = if is_there { 0 } else { state.in_a_row + 1 };
                    if state.in_a_row >= OUTAGE {
                        judge.stop();
                        let outage = JudgeError::Outage { failures: state.in_a_row, last: Box::new(error) };
                        state.fatal.get_or_insert(outage);
                    } else {
                        state.outcome.trouble.get_or_insert(error);
                    }
                }
                Err(error) => {
                    lock().fatal.get_or_insert(error);
                    judge.stop();
                }
            }
        }
    };
    thread::scope(|scope| {
        // This thread also works, so that there is at least one worker even if no thread can be
        // spawned.
        for _ in 1..panel.concurrency.clamp(1, MOST_AT_ONCE).min(open.len()) {
            if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    let State { outcome, fatal, .. } = state.into_inner().unwrap_or_else(PoisonError::into_inner);
    fatal.map_or(Ok(outcome), Err)
}

impl<'a> Panel<'a> {
    /// Returns all questions, without scores, grouped by response, so that a server with prefix
    /// caching prefills each response only once.
    fn questions(&self) -> Vec<Answer<'a>> {
        let of_response = |pass, response| self.rubrics.iter().map(move |rubric| Answer { response, rubric, pass, score: None });
        let of_pass = |pass| self.responses.iter().flat_map(move |response| of_response(pass, response));
        (0..self.passes).flat_map(of_pass).collect()
    }

    /// Returns the index of the question that a record answers, or `None` if it is not asked.
    /// `response` is the index of its response.
    fn position(&self, response: usize, record: &Judged) -> Option<usize> {
        let is_asked = |rubric: &&Rubric| rubric.name == record.rubric && rubric.version == record.rubric_version;
        let rubric = self.rubrics.iter().position(is_asked)?;
        let pass = (record.pass < self.passes).then_some(record.pass as usize)?;
        Some((pass * self.responses.len() + response) * self.rubrics.len() + rubric)
    }
}

/// Checks that a response has not changed since it was judged, and that no other judge has judged
/// it.
fn check_earlier(response: &Response, judge: &Identity, path: &Path, record: &Judged) -> Result<(), JudgeError> {
    let changes = [
        ("text", response.digest() != record.digest),
        ("scheme", response.scheme != record.scheme),
        ("weight vector", response.weights != record.weights),
        ("prompt_id", response.prompt_id != record.prompt_id),
        ("seed", response.seed != record.seed),
    ];
    if let Some((what, _)) = changes.into_iter().find(|(_, changed)| *changed) {
        return Err(JudgeError::Changed { path: path.to_owned(), id: record.id.clone(), what });
    }
    if record.judge != *judge {
        let (path, id, judge) = (path.to_owned(), record.id.clone(), record.judge.to_string());
        return Err(JudgeError::AnotherJudge { path, id, judge });
    }
    Ok(())
}
