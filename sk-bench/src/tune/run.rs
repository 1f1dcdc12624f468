//! The main loop of a tuning process.

use std::path::PathBuf;
use std::time::Instant;

use super::{Ledger, Trial};
use crate::Error;
use crate::interrupt;

/// The result of a trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Worth {
    /// The score of each objective; greater is better. `None` if no response that counts for it has
    /// a score.
    pub scores: Vec<Option<f64>>,
    /// Number of responses.
    pub responses: usize,
    /// Number of responses without a score on an objective that they count for. They are left out
    /// of its mean.
    pub unscored: usize,
    /// The file of the judgements, if a judge scores the responses.
    pub judgements: Option<PathBuf>,
}

/// The progress of tuning.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TuneProgress<'a> {
    /// Position of the current search.
    pub search: usize,
    /// Number of trials done in all searches.
    pub done: usize,
    /// Total number of trials in all searches.
    pub total: usize,
    /// The trial that has just finished.
    pub last: Option<&'a Trial>,
}

/// Runs each search of a ledger, one after another, until it has `budget` trials, including the
/// trials that the ledger holds already. `evaluate` evaluates a trial, given the position of its
/// search, its number and its point. It returns `None` if Ctrl-C was pressed.
///
/// If an objective has no score in a trial, the trial is stored without scores, and the search
/// continues from the other trials.
///
/// # Errors
/// If a trial fails, a trial has no score while no earlier trial of its search has one, or the
/// ledger cannot be written. Finished trials stay in the ledger.
pub fn run(
    ledger: &mut Ledger,
    budget: usize,
    mut evaluate: impl FnMut(usize, usize, &[f64]) -> Result<Option<Worth>, Error>,
    mut watch: impl FnMut(TuneProgress<'_>),
) -> Result<(), Error> {
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
            let Some(worth) = evaluate(search, trial, &point)? else { return Ok(()) };
            let without = worth.scores.iter().position(Option::is_none);
            if let (Some(objective), true) = (without, ledger.trials(search).iter().all(|trial| !trial.is_scored())) {
                return Err(ledger.no_score(search, objective, worth.judgements.as_deref()));
            }
            ledger.append(search, &point, &worth, start.elapsed().as_secs_f64())?;
            watch(TuneProgress { search, done: done(ledger), total, last: ledger.trials(search).last() });
        }
    }
    Ok(())
}
