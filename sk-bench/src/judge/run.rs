//! The main loop of judging.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use crate::interrupt;
use crate::record_file::RecordFile;

use super::{Identity, Judge, JudgeError, Judged, Objectives, Question, Response, Rubric};

/// Number of consecutive unanswered questions after which judging stops.
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
    /// The numbers of the passes.
    pub passes: Range<u32>,
    /// Number of concurrent questions, at most [`MOST_AT_ONCE`].
    pub concurrency: usize,
}

/// The result of a run.
#[derive(Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The judgements of the panel: first those found in the file, then new ones. Unanswered
    /// questions are missing.
    pub records: Vec<Judged>,
    /// How many of them were found in the file.
    pub resumed: usize,
    /// Number of unanswered questions.
    pub unanswered: usize,
    /// The error of the first unanswered question.
    pub trouble: Option<JudgeError>,
}

/// The state that the threads of a run share.
struct State {
    outcome: Outcome,
    /// Number of unanswered questions since the last answer.
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
/// The run stops after ten consecutive unanswered questions, and after an error that concerns all
/// questions, such as a wrong key.
///
/// # Errors
/// If the file cannot be used, a response has changed since it was judged, another judge has judged
/// it, or the run stopped before all questions were asked. The file holds the answers so far.
pub fn judge_all(
    panel: &Panel<'_>,
    judge: &dyn Judge,
    path: &Path,
    watch: &(dyn Fn(Event<'_>) + Sync),
) -> Result<Outcome, JudgeError> {
    let (journal, earlier) = RecordFile::open::<Judged>(path)?;
    let identity = judge.identity();
    let questions = questions(panel);
    check_earlier(panel, identity, path, &earlier)?;
    // The place of each question, by response, rubric, its version, and pass.
    let places: HashMap<(&str, &str, u32, u32), usize> = questions
        .iter()
        .enumerate()
        .map(|(place, (response, Question { rubric, pass, .. }))| {
            ((response.id.as_str(), rubric.name.as_str(), rubric.version, *pass), place)
        })
        .collect();
    let mut done = vec![false; questions.len()];
    let mut records: Vec<Judged> = Vec::new();
    for (_, record) in earlier {
        let place = places.get(&(record.id.as_str(), record.rubric.as_str(), record.rubric_version, record.pass));
        // A record without a score and without an abstention is not an answer.
        let answers = record.score.is_some() || record.abstention.is_some();
        if let Some(&place) = place
            && answers
            && !std::mem::replace(&mut done[place], true)
        {
            records.push(record);
        }
    }
    let (resumed, total) = (records.len(), places.len());
    let open: Vec<_> = questions.into_iter().zip(done).filter(|(_, done)| !done).map(|(question, _)| question).collect();
    watch(Event::Begun { total, resumed });

    let next = AtomicUsize::new(0);
    let outcome = Outcome { records, resumed, unanswered: 0, trouble: None };
    let state = Mutex::new(State { outcome, in_a_row: 0, fatal: None });
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    let ask = |(response, question): &(&Response, Question<'_>)| {
        if interrupt::requested() {
            return Err(JudgeError::Interrupted);
        }
        let started = Instant::now();
        let verdict = judge.judge(question)?;
        let axis = panel.objectives.objective_of(&question.rubric.name).map(|objective| objective.name.clone());
        let record = Judged::new(response, question, axis, identity, verdict, started.elapsed().as_secs_f64());
        journal.append(&record)?;
        Ok(record)
    };
    let work = || {
        while lock().fatal.is_none() {
            let Some(question) = open.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            match ask(question) {
                Ok(record) => {
                    watch(Event::Answered(&record));
                    let mut state = lock();
                    state.in_a_row = 0;
                    state.outcome.records.push(record);
                }
                Err(error) if error.is_local() => {
                    watch(Event::Failed(&error));
                    let mut state = lock();
                    state.outcome.unanswered += 1;
                    state.in_a_row += 1;
                    if state.in_a_row >= OUTAGE {
                        let outage = JudgeError::Outage { failures: state.in_a_row, last: Box::new(error) };
                        state.fatal.get_or_insert(outage);
                    } else {
                        state.outcome.trouble.get_or_insert(error);
                    }
                }
                Err(error) => {
                    lock().fatal.get_or_insert(error);
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

/// Returns all questions, grouped by response, so that a server with prefix caching prefills each
/// response only once.
fn questions<'a>(panel: &Panel<'a>) -> Vec<(&'a Response, Question<'a>)> {
    let mut questions = Vec::new();
    for pass in panel.passes.clone() {
        for response in panel.responses {
            for rubric in panel.rubrics {
                questions.push((response, Question { rubric, prompt: &response.prompt, response: &response.response, pass }));
            }
        }
    }
    questions
}

/// Checks that the responses have not changed since they were judged, and that no other judge has
/// judged them.
fn check_earlier(panel: &Panel<'_>, judge: &Identity, path: &Path, earlier: &[(u64, Judged)]) -> Result<(), JudgeError> {
    let responses: HashMap<&str, (&Response, String)> =
        panel.responses.iter().map(|response| (response.id.as_str(), (response, response.digest()))).collect();
    for (_, record) in earlier {
        let Some((response, digest)) = responses.get(record.id.as_str()) else { continue };
        let changes = [
            ("text", *digest != record.digest),
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
    }
    Ok(())
}
