//! The loop of a process that tunes.

use std::time::Instant;

use super::{Ledger, Trial, TuneError};
use crate::interrupt;

/// What the responses of a trial are worth.
#[derive(Debug, Clone, PartialEq)]
pub struct Worth {
    /// The score of each objective, greater is better; none where no response that counts for it
    /// was scored.
    pub scores: Vec<Option<f64>>,
    /// Responses.
    pub responses: usize,
    /// Those that have no score on an objective that they count for, and are left out of its mean.
    pub unscored: usize,
}

/// What a trial costs: responses, and what they are worth.
pub trait Evaluate {
    /// What a point is worth in the search at a position. Nothing where Ctrl-C ended it.
    ///
    /// # Errors
    /// When responses cannot be had or scored.
    fn evaluate(&mut self, search: usize, trial: usize, point: &[f64]) -> Result<Option<Worth>, TuneError>;
}

/// How far a tuning is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TuneProgress<'a> {
    /// The position of the search that is at work.
    pub search: usize,
    /// Trials of all searches that are done.
    pub done: usize,
    /// Trials of all searches.
    pub total: usize,
    /// The trial that was just finished.
    pub last: Option<&'a Trial>,
}

/// Tries `budget` points in each search of a ledger, one search after the other; less those that
/// are there already.
///
/// A trial that an objective has no score of is kept without one, and the search goes on from the
/// others.
///
/// # Errors
/// When a trial fails, no trial of a search has a score yet and this one has none either, or the
/// ledger cannot be kept. What was finished is in it.
pub fn run(
    ledger: &mut Ledger,
    budget: usize,
    evaluate: &mut dyn Evaluate,
    mut watch: impl FnMut(TuneProgress<'_>),
) -> Result<(), TuneError> {
    let searches = ledger.searches().count();
    let total = searches * budget;
    let done = |ledger: &Ledger| (0..searches).map(|search| ledger.trials(search).len().min(budget)).sum();
    for search in 0..searches {
        watch(TuneProgress { search, done: done(ledger), total, last: None });
        while ledger.trials(search).len() < budget {
            if interrupt::requested() {
                return Ok(());
            }
            let start = Instant::now();
            let point = ledger.propose(search)?;
            let trial = ledger.trials(search).len();
            let Some(worth) = evaluate.evaluate(search, trial, &point)? else { return Ok(()) };
            let without = worth.scores.iter().position(Option::is_none);
            if let (Some(objective), true) = (without, ledger.trials(search).iter().all(|trial| !trial.is_scored())) {
                return Err(ledger.no_score(search, objective, worth.responses));
            }
            ledger.append(search, &point, &worth, start.elapsed().as_secs_f64())?;
            watch(TuneProgress { search, done: done(ledger), total, last: ledger.trials(search).last() });
        }
    }
    Ok(())
}
