//! Progress of judging, and messages at its end.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::judge::run::Event;
use crate::message;
use crate::progress::Work;

/// Maximum number of errors that are printed; later ones are only counted.
const SHOWN: usize = 3;
/// Maximum number of characters shown of an unreadable reply.
const LONGEST: usize = 200;

/// The progress of one run.
pub(super) struct Progress(Mutex<Inner>);

struct Inner {
    work: Work,
    abstained: usize,
    failed: usize,
    /// The number of replies without a readable score, and the first of them.
    unreadable: (usize, String),
}

impl Progress {
    pub(super) fn new(quiet: bool) -> Self {
        Self(Mutex::new(Inner { work: Work::new("judgement", quiet), abstained: 0, failed: 0, unreadable: Default::default() }))
    }

    /// Shows an event of the run.
    pub(super) fn show(&self, event: Event<'_>) {
        let mut inner = self.lock();
        match event {
            Event::Begun { total, resumed } => {
                inner.work.begin(total as u64, resumed as u64);
                if resumed > 0 {
                    inner.work.line(&format!("{resumed} of {total} judgements are there already"));
                }
            }
            Event::Answered(record) => {
                if let Some(reply) = &record.reply {
                    if inner.unreadable.0 == 0 {
                        let (id, reply) = (message::quoted(&record.id, LONGEST), message::quoted(reply, LONGEST));
                        let why = record.abstention.as_deref().map_or_else(String::new, |why| format!(" ({why})"));
                        inner.unreadable.1 = format!("on {} of \"{id}\"{why}: {reply}", record.rubric);
                    }
                    inner.unreadable.0 += 1;
                }
                inner.abstained += usize::from(record.score.is_none());
                inner.step();
            }
            Event::Failed(error) => {
                if inner.failed < SHOWN {
                    inner.work.line(&error.to_string());
                }
                inner.failed += 1;
                inner.step();
            }
        }
    }

    /// Ends the bar, and prints the number of replies without a readable score.
    pub(super) fn finish(self) {
        let Inner { work, unreadable: (count, first), .. } = &*self.lock();
        if *count > 0 {
            work.line(&format!("no score can be read from {count} of the judge's replies; the first, {first}"));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Counts one more question.
    fn step(&mut self) {
        let counted = [(self.abstained, "abstained"), (self.failed, "unanswered")];
        let parts = counted.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        let note = parts.collect::<Vec<_>>().join(", ");
        self.work.show(self.work.done() + 1, &note);
    }
}
