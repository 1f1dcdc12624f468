//! Progress on standard error while models load: a spinner, and a bar per download. Nothing unless
//! a terminal is watching.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use sk_models::hf::Progress;

use crate::message;

const TICK: Duration = Duration::from_millis(100);

/// What is being loaded, as it is shown.
pub struct Loading {
    spinner: ProgressBar,
    download: Option<ProgressBar>,
}

impl Loading {
    /// Starts a spinner, or stays silent when `quiet`.
    pub fn new(quiet: bool) -> Self {
        // indicatif draws on standard error, and only where that is a terminal.
        let spinner = if quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        spinner.set_style(ProgressStyle::with_template("{spinner:.cyan} {msg:.dim}").unwrap_or(ProgressStyle::default_spinner()));
        if !spinner.is_hidden() {
            spinner.enable_steady_tick(TICK);
        }
        Self { spinner, download: None }
    }

    /// Says what is going on now.
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
        let template = "{msg:.dim} {bar:30.cyan} {bytes}/{total_bytes} {bytes_per_sec} {eta:>4}";
        bar.set_style(ProgressStyle::with_template(template).unwrap_or(ProgressStyle::default_bar()));
        bar.set_message(message::plain(file));
        bar.set_position(present);
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
