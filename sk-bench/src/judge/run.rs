//! All questions about all responses.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use super::record::JudgedKey;
use crate::interrupt;

use super::{Journal, Judge, JudgeError, Judged, Objectives, Question, Response, Rubric};

/// Questions without an answer in a row after which the server counts as gone.
const OUTAGE: usize = 10;

/// Most questions under way at the same time: each has a thread, and a machine has only so many.
pub const MOST_AT_ONCE: usize = 1024;

/// What is to be judged, and how much of it at a time.
#[derive(Debug, Clone)]
pub struct Panel<'a> {
    /// The responses.
    pub responses: &'a [Response],
    /// What the rubrics count for.
    pub objectives: &'a Objectives,
    /// The rubrics to ask about.
    pub rubrics: &'a [&'a Rubric],
    /// Repetitions, by number.
    pub passes: Range<u32>,
    /// Questions under way at the same time, at most [`MOST_AT_ONCE`].
    pub concurrency: usize,
}

/// How a run ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The judgements of the panel: those found in the file, then those made now. An unanswered
    /// question has none.
    pub records: Vec<Judged>,
    /// How many of them were found in the file.
    pub resumed: usize,
    /// Questions that stayed without an answer.
    pub unanswered: usize,
    /// Why the first of them did.
    pub trouble: Option<JudgeError>,
}

/// Follows a run.
pub trait Watch: Sync {
    /// The run begins: questions in all, and those that an earlier run answered.
    fn begin(&self, total: usize, resumed: usize);
    /// A question was answered.
    fn answered(&self, record: &Judged);
    /// A question stayed without an answer.
    fn failed(&self, error: &JudgeError);
}

/// Silence.
impl Watch for () {
    fn begin(&self, _: usize, _: usize) {}
    fn answered(&self, _: &Judged) {}
    fn failed(&self, _: &JudgeError) {}
}

/// Puts every question of a panel to a judge that the file does not answer already, and adds the
/// answers to the file.
///
/// A question that finds no answer does not stop the run: it is left out of the file, and a later
/// run puts it again. Ten in a row do, and so does whatever concerns all questions, such as a wrong
/// key.
///
/// # Errors
/// When the run had to stop before all questions were put. What was answered is in the file.
pub fn judge_all(
    panel: &Panel<'_>,
    judge: &dyn Judge,
    journal: &Journal,
    earlier: Vec<Judged>,
    watch: &dyn Watch,
) -> Result<Outcome, JudgeError> {
    let identity = judge.identity();
    let questions = questions(panel);
    check_texts(panel, journal, &earlier)?;
    let wanted: HashSet<JudgedKey> =
        questions.iter().map(|(response, question)| JudgedKey::of(response, question, identity)).collect();
    let mut records: Vec<Judged> = Vec::new();
    let mut done: HashSet<JudgedKey> = HashSet::new();
    for record in earlier {
        let key = record.key();
        // What is neither a score nor an abstention is no answer.
        if record.score.is_none() && record.abstention.is_none() {
            continue;
        }
        if wanted.contains(&key) && done.insert(key) {
            records.push(record);
        }
    }
    let resumed = records.len();
    let total = wanted.len();
    let open: Vec<(&Response, Question<'_>)> = questions
        .into_iter()
        .filter(|(response, question)| !done.contains(&JudgedKey::of(response, question, identity)))
        .collect();
    watch.begin(total, resumed);

    let (next, failures, in_a_row) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let stop = AtomicBool::new(false);
    let records = Mutex::new(records);
    // The first trouble of one question, and what stopped the run.
    let (trouble, fatal) = (Mutex::new(None), Mutex::new(None));
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let Some((response, question)) = open.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            if interrupt::requested() {
                lock(&fatal).get_or_insert(JudgeError::Interrupted);
                break;
            }
            let started = Instant::now();
            let kept = judge.judge(question).and_then(|verdict| {
                let axis = panel.objectives.objective_of(&question.rubric.name).map(|objective| objective.name.clone());
                let record = Judged::new(response, question, axis, identity, verdict, started.elapsed().as_secs_f64());
                journal.append(&record)?;
                Ok(record)
            });
            match kept {
                Ok(record) => {
                    in_a_row.store(0, Ordering::Relaxed);
                    watch.answered(&record);
                    lock(&records).push(record);
                }
                Err(error) if error.is_local() => {
                    failures.fetch_add(1, Ordering::Relaxed);
                    watch.failed(&error);
                    let row = in_a_row.fetch_add(1, Ordering::Relaxed) + 1;
                    if row >= OUTAGE {
                        stop.store(true, Ordering::Relaxed);
                        lock(&fatal).get_or_insert(JudgeError::Outage { failures: row, last: Box::new(error) });
                    } else {
                        lock(&trouble).get_or_insert(error);
                    }
                }
                Err(error) => {
                    stop.store(true, Ordering::Relaxed);
                    lock(&fatal).get_or_insert(error);
                }
            }
        }
    };
    thread::scope(|scope| {
        // This thread is one of them, so that there is one whatever the machine has left.
        for _ in 1..panel.concurrency.clamp(1, MOST_AT_ONCE).min(open.len()) {
            if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    if let Some(error) = fatal.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    Ok(Outcome {
        records: records.into_inner().unwrap_or_else(PoisonError::into_inner),
        resumed,
        unanswered: failures.into_inner(),
        trouble: trouble.into_inner().unwrap_or_else(PoisonError::into_inner),
    })
}

/// All questions, those about one response together, so that a server that keeps prefixes reads it
/// once.
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

/// An id stands for the text it stood for before.
fn check_texts(panel: &Panel<'_>, journal: &Journal, earlier: &[Judged]) -> Result<(), JudgeError> {
    let digests: HashMap<&str, String> =
        panel.responses.iter().map(|response| (response.id.as_str(), response.digest())).collect();
    match earlier.iter().find(|record| digests.get(record.id.as_str()).is_some_and(|digest| *digest != record.digest)) {
        Some(record) => Err(JudgeError::Changed { path: journal.path().to_owned(), id: record.id.clone() }),
        None => Ok(()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
