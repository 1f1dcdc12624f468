//! How a tuning is shown: a line per trial.

use std::time::{Duration, Instant};

use indicatif::HumanDuration;

use crate::message;
use crate::plural::counted;
use crate::tune::{Standing, TunePlan};

/// The progress of one process.
pub(super) struct Progress {
    quiet: bool,
    /// When the first trial was begun, and how many were done then.
    since: Option<(Instant, usize)>,
}

impl Progress {
    pub(super) fn new(quiet: bool) -> Self {
        Self { quiet, since: None }
    }

    pub(super) fn show(&mut self, plan: &TunePlan, standing: Standing<'_>) {
        let Standing { search, done, total, last } = standing;
        let (start, first) = *self.since.get_or_insert_with(|| (Instant::now(), done));
        if self.quiet {
            return;
        }
        let search = &plan.searches[search];
        let Some(trial) = last else {
            let vectors = counted(search.weights.len(), "weight vector");
            message::note(&format!("{}: {vectors}, {done} of {total} trials are done", search.name));
            return;
        };
        let point = plan.space.by_name(&trial.point);
        let point: Vec<String> = point.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let scores: Vec<String> = trial.scores.iter().map(|score| format!("{score:.4}")).collect();
        let scores = if trial.is_scored() { scores.join(" ") } else { "without a score".to_owned() };
        let left = start.elapsed().mul_f64((total - done) as f64 / (done - first).max(1) as f64);
        let left = HumanDuration(Duration::from_secs(left.as_secs()));
        message::note(&format!("{done}/{total} {} {scores} at {} · {left} left", search.name, point.join(" ")));
    }
}
