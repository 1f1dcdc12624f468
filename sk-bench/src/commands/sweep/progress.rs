//! How a sweep is shown: a bar on a terminal, a line now and then elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

use crate::message;
use crate::sweep::Standing;

/// Between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The progress of one process.
pub(super) struct Progress {
    bar: ProgressBar,
    lines: bool,
    /// When the first cell was begun, and how many were done then.
    since: Option<(Instant, usize)>,
    last_line: Instant,
}

impl Progress {
    pub(super) fn new(quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal && !quiet { ProgressBar::new(0) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{bar:32.cyan} {pos}/{len} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar, lines: !terminal && !quiet, since: None, last_line: Instant::now() }
    }

    pub(super) fn show(&mut self, standing: Standing) {
        let Standing { done, total, waiting } = standing;
        let (start, first) = *self.since.get_or_insert_with(|| (Instant::now(), done));
        let text = if waiting {
            "other processes have the rest".to_owned()
        } else {
            pace(done - first, total - done, start.elapsed()).unwrap_or_default()
        };
        self.bar.set_length(total as u64);
        self.bar.set_position(done as u64);
        self.bar.set_message(text.clone());
        if self.lines && self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            message::note(&format!("{done}/{total} {text}"));
        }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Seconds a cell and the time left, once a cell is finished. Cells of all processes count: they
/// all bring the end nearer.
fn pace(finished: usize, left: usize, elapsed: Duration) -> Option<String> {
    let seconds = elapsed.as_secs_f64() / (finished > 0).then_some(finished)? as f64;
    let left = Duration::try_from_secs_f64(seconds * left as f64).unwrap_or(Duration::MAX);
    Some(format!("{seconds:.2} s a cell · {} left", HumanDuration(left)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_that_of_the_cells_left() {
        assert_eq!(pace(0, 10, Duration::from_secs(3)), None);
        assert_eq!(pace(4, 60, Duration::from_secs(10)).unwrap(), "2.50 s a cell · 3 minutes left");
        assert_eq!(pace(2, 0, Duration::from_secs(1)).unwrap(), "0.50 s a cell · 0 seconds left");
    }
}
