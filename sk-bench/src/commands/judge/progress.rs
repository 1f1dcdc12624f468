//! How judging is shown: a bar on a terminal, a line now and then elsewhere.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::judge::run::Watch;
use crate::judge::{JudgeError, Judged};
use crate::message;

/// Between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Troubles that are shown in words; later ones are only counted.
const SHOWN: usize = 3;

/// The progress of one run.
pub(super) struct Progress {
    bar: ProgressBar,
    lines: bool,
    quiet: bool,
    abstained: AtomicUsize,
    failed: AtomicUsize,
    last_line: Mutex<Instant>,
}

impl Progress {
    pub(super) fn new(quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal && !quiet { ProgressBar::new(0) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{bar:32.cyan} {pos}/{len} {msg} · {per_sec} · {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self {
            bar,
            lines: !terminal && !quiet,
            quiet,
            abstained: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
            last_line: Mutex::new(Instant::now()),
        }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn step(&self) {
        self.bar.inc(1);
        let abstained = self.abstained.load(Ordering::Relaxed);
        let failed = self.failed.load(Ordering::Relaxed);
        let mut parts = Vec::new();
        if abstained > 0 {
            parts.push(format!("{abstained} abstained"));
        }
        if failed > 0 {
            parts.push(format!("{failed} unanswered"));
        }
        let text = parts.join(", ");
        if self.lines
            && let Ok(mut last) = self.last_line.lock()
            && last.elapsed() >= LINE_EVERY
        {
            *last = Instant::now();
            message::note(&format!("{}/{} {text}", self.bar.position(), self.bar.length().unwrap_or_default()));
        }
        self.bar.set_message(text);
    }
}

impl Watch for Progress {
    fn begin(&self, total: usize, resumed: usize) {
        self.bar.set_length(total as u64);
        self.bar.set_position(resumed as u64);
        self.bar.reset_eta();
        if resumed > 0 && !self.quiet {
            self.bar.suspend(|| message::note(&format!("{resumed} of {total} judgements are there already")));
        }
    }

    fn answered(&self, record: &Judged) {
        self.abstained.fetch_add(usize::from(record.score.is_none()), Ordering::Relaxed);
        self.step();
    }

    fn failed(&self, error: &JudgeError) {
        let before = self.failed.fetch_add(1, Ordering::Relaxed);
        if before < SHOWN && !self.quiet {
            self.bar.suspend(|| message::warning(&error.to_string()));
        }
        self.step();
    }
}
