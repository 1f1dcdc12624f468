//! The loop of a process that tunes.

use std::time::Instant;

use super::{Ledger, Trial, TuneError};
use crate::interrupt;

/// What a trial costs: responses, and what they are worth.
pub trait Evaluate {
    /// The scores of a point on the objectives of the search at a position, greater is better, and how many responses they are of. Nothing
    /// where Ctrl-C ended it.
    ///
    /// # Errors
    /// When responses cannot be had or scored.
    fn evaluate(&mut self, search: usize, trial: usize, point: &[f64]) -> Result<Option<(Vec<f64>, usize)>, TuneError>;
}

/// How a tuning stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Standing<'a> {
    /// The position of the search that is at work.
    pub search: usize,
    /// Trials of all searches that are done.
    pub done: usize,
    /// Trials of all searches.
    pub total: usize,
    /// The trial that was just finished.
    pub last: Option<&'a Trial>,
}

/// Tries `budget` points in each search of a ledger, one search after the other; less those that are there already.
///
/// # Errors
/// When a trial fails or the ledger cannot be kept. What was finished is in it.
pub fn run(
    ledger: &mut Ledger,
    budget: usize,
    evaluate: &mut dyn Evaluate,
    mut watch: impl FnMut(Standing<'_>),
) -> Result<(), TuneError> {
    let searches = ledger.searches().count();
    let total = searches * budget;
    let done = |ledger: &Ledger| (0..searches).map(|search| ledger.trials(search).len().min(budget)).sum();
    for search in 0..searches {
        watch(Standing { search, done: done(ledger), total, last: None });
        while ledger.trials(search).len() < budget {
            if interrupt::requested() {
                return Ok(());
            }
            let start = Instant::now();
            let point = ledger.propose(search)?;
            let Some((scores, responses)) = evaluate.evaluate(search, ledger.trials(search).len(), &point)? else {
                return Ok(());
            };
            ledger.append(search, &Trial { point, scores }, responses, start.elapsed().as_secs_f64())?;
            watch(Standing { search, done: done(ledger), total, last: ledger.trials(search).last() });
        }
    }
    Ok(())
}
