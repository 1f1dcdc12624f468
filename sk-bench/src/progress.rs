//! Progress on standard error. A terminal shows a bar with rate and remaining time; other outputs
//! get a line from time to time. While models load, a terminal shows a spinner and a bar per
//! download.

use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use sk_models::hf::Progress;
use sk_report::grid::wrap;

use crate::{message, terminal};

const TICK: Duration = Duration::from_millis(100);

/// Interval between two lines if there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Returns the style of a bar, followed by the template `done`.
fn style(done: &str) -> ProgressStyle {
    ProgressStyle::with_template(&format!("{{bar:12.cyan}} {done}")).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// The progress display of work that consists of many equal parts. It ends when it is dropped.
pub(crate) struct Work {
    bar: ProgressBar,
    /// The word for a part.
    unit: &'static str,
    quiet: bool,
    /// The start of the first part, and the number of parts done at that time.
    since: (Instant, u64),
    last_line: Instant,
}

impl Work {
    /// Returns a display for parts called `unit`. It shows nothing if `quiet`.
    pub(crate) fn new(unit: &'static str, quiet: bool) -> Self {
        // indicatif draws on standard error, and only where that is a terminal.
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(0) };
        bar.set_style(style("{wide_msg}"));
        let now = Instant::now();
        Self { bar, unit, quiet, since: (now, 0), last_line: now }
    }

    /// Returns whether a terminal shows the progress.
    pub(crate) fn is_terminal(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Starts a piece of work with `total` parts, of which `done` are done already.
    pub(crate) fn begin(&mut self, total: u64, done: u64) {
        self.since = (Instant::now(), done);
        self.bar.set_length(total);
        self.bar.set_position(done);
    }

    /// Shows that `done` of `total` parts are done. If `total` has changed, a new piece of work
    /// starts.
    pub(crate) fn follow(&mut self, done: u64, total: u64, note: &str) {
        if self.bar.length() != Some(total) {
            self.begin(total, done);
        }
        self.show(done, note);
    }

    /// Shows that `done` parts are done, by this process or others, with a note.
    pub(crate) fn show(&mut self, done: u64, note: &str) {
        let text = self.text(done, note);
        self.bar.set_position(done);
        self.bar.set_message(text.clone());
        if self.bar.is_hidden() && !self.quiet && self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            message::note(&text);
        }
    }

    /// Like [`show`](Self::show), as a line that stays. It is folded to the width of the terminal.
    pub(crate) fn report(&mut self, done: u64, note: &str) {
        let (text, standing) = (self.text(done, note), self.text(done, ""));
        self.bar.set_position(done);
        self.bar.set_message(standing);
        self.line(&wrap(&text, terminal::error_columns(), 2));
    }

    /// Prints a line that stays.
    pub(crate) fn line(&self, text: &str) {
        if !self.quiet {
            self.bar.suspend(|| message::note(text));
        }
    }

    /// Returns the number of parts done.
    pub(crate) fn done(&self) -> u64 {
        self.bar.position()
    }

    fn text(&self, done: u64, note: &str) -> String {
        let (start, first) = self.since;
        let total = self.bar.length().unwrap_or(0);
        let left = total.saturating_sub(done);
        let pace = pace(done.saturating_sub(first), left, start.elapsed());
        let counted = format!("{done}/{total} {}s", self.unit);
        let parts = [Some(counted), pace, (!note.is_empty()).then(|| note.to_owned())];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Returns the rate and the remaining time; `None` until a part is done.
fn pace(done: u64, left: u64, elapsed: Duration) -> Option<String> {
    let seconds = elapsed.as_secs_f64() / (done > 0).then_some(done)? as f64;
    let rate = if seconds > 1.0 { format!("{seconds:.1} s each") } else { format!("{:.1}/s", 1.0 / seconds) };
    let left = Duration::try_from_secs_f64(seconds * left as f64).unwrap_or(Duration::MAX);
    Some(format!("{rate} · {:#} left", HumanDuration(left)))
}

/// The progress display of loading.
pub struct Loading {
    spinner: ProgressBar,
    download: Option<ProgressBar>,
}

impl Loading {
    /// Starts a spinner, or stays silent when `quiet`.
    pub fn new(quiet: bool) -> Self {
        let spinner = if quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        spinner.set_style(ProgressStyle::with_template("{spinner:.cyan} {msg:.dim}").unwrap_or(ProgressStyle::default_spinner()));
        if !spinner.is_hidden() {
            spinner.enable_steady_tick(TICK);
        }
        Self { spinner, download: None }
    }

    /// Shows what is being done.
    pub fn show(&self, what: &str) {
        self.spinner.set_message(message::plain(what));
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.end();
        self.spinner.finish_and_clear();
    }
}

impl Progress for Loading {
    fn stage(&mut self, what: &str) {
        self.show(what);
    }

    fn warn(&mut self, warning: &str) {
        self.spinner.suspend(|| message::warning(warning));
    }

    fn begin(&mut self, file: &str, length: Option<u64>, present: u64) {
        if self.spinner.is_hidden() {
            return;
        }
        let bar = length.map_or_else(ProgressBar::no_length, ProgressBar::new);
        bar.set_style(style("{bytes}/{total_bytes} · {bytes_per_sec} · {eta} left · {msg}"));
        bar.set_message(message::plain(file));
        bar.set_position(present);
        // Bytes that are present already must not count for the rate.
        bar.reset_eta();
        self.download = Some(bar);
    }

    fn advance(&mut self, bytes: u64) {
        if let Some(bar) = &self.download {
            bar.inc(bytes);
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.download.take() {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_a_suitable_unit() {
        let pace = |done, left, seconds| pace(done, left, Duration::from_secs(seconds));
        assert_eq!(pace(0, 10, 3), None);
        assert_eq!(pace(4, 60, 10).unwrap(), "2.5 s each · 3m left");
        assert_eq!(pace(30, 120, 10).unwrap(), "3.0/s · 40s left");
        assert_eq!(pace(2, 0, 1).unwrap(), "2.0/s · 0s left");
    }

    #[test]
    fn earlier_runs_count_as_done_but_not_for_the_rate() {
        let mut work = Work::new("cell", true);
        work.begin(100, 40);
        assert_eq!(work.text(40, ""), "40/100 cells");
        work.since.0 = Instant::now().checked_sub(Duration::from_secs(40)).unwrap();
        assert_eq!(work.text(60, "2 failed"), "60/100 cells · 2.0 s each · 80s left · 2 failed");
        work.show(60, "");
        assert_eq!(work.done(), 60);
    }
}
