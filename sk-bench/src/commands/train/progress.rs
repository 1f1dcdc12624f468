//! How a training run is shown: a bar on a terminal, a line now and then elsewhere.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use sk_models::train::{dpo::DpoEvent, head::HeadEvent, lm::LmEvent, preference::PreferenceReport};

/// Between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Weight of the past in the shown rate.
const MEMORY: f64 = 0.9;

/// The progress of one run.
pub(in crate::commands) struct Bar {
    bar: ProgressBar,
    terminal: bool,
    total: u64,
    /// Exponential mean of items per second.
    rate: Option<f64>,
    /// Steps of unequal length, and the time that they took.
    steps: (u32, Duration),
    last_line: Instant,
}

impl Bar {
    pub(in crate::commands) fn new(total: u64) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal { ProgressBar::new(total) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{bar:32.cyan} {pos}/{len} {msg} · {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar, terminal, total, rate: None, steps: (0, Duration::ZERO), last_line: Instant::now() }
    }

    pub(in crate::commands) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// A line that stays.
    fn line(&self, text: &str) {
        if self.terminal {
            self.bar.println(text);
        } else {
            eprintln!("{text}");
        }
    }

    /// A line that only a log sees, and not too often.
    fn log(&mut self, text: impl FnOnce() -> String) {
        if !self.terminal && self.last_line.elapsed() >= LINE_EVERY {
            eprintln!("{}", text());
            self.last_line = Instant::now();
        }
    }

    fn start(&mut self, resumed: u64) {
        self.bar.set_position(resumed);
        self.bar.reset_eta();
    }

    /// The mean rate after `items` more in `elapsed`.
    fn rate(&mut self, items: usize, elapsed: Duration) -> f64 {
        let now = items as f64 / elapsed.as_secs_f64();
        let mean = self.rate.map_or(now, |mean| MEMORY * mean + (1.0 - MEMORY) * now);
        self.rate = Some(mean);
        mean
    }

    /// Seconds left at `rate` items a second and `items` a step.
    fn left(&self, step: u64, items: usize, rate: f64) -> f64 {
        (self.total - step) as f64 * items as f64 / rate
    }

    pub(super) fn lm(&mut self, event: LmEvent) {
        match event {
            LmEvent::Started { parameters, epoch_tokens, resumed, steps } => {
                self.line(&format!("{parameters} parameters, {epoch_tokens} tokens an epoch, {steps} steps, {resumed} done"));
                self.start(resumed);
            }
            LmEvent::Step { step, loss, norm, rate, tokens, elapsed } => {
                let speed = self.rate(tokens, elapsed);
                let left = self.left(step, tokens, speed);
                self.bar.set_position(step);
                self.bar.set_message(format!("loss {loss:.3} · {speed:.0} tokens/s"));
                self.log(|| {
                    format!("step {step} loss {loss:.4} norm {norm:.3} rate {rate:.2e} {speed:.0} tokens/s {left:.0} s left")
                });
            }
            LmEvent::HeldOut { step, loss } => {
                self.line(&format!("step {step}: held-out loss {loss:.4}, perplexity {:.2}", loss.exp()));
            }
            _ => {}
        }
    }

    pub(in crate::commands) fn dpo(&mut self, event: DpoEvent) {
        match event {
            DpoEvent::Planned { memory, free } => {
                let gigabytes = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
                let free = free.map_or_else(String::new, |free| format!(", of which {} are free", gigabytes(free)));
                self.line(&format!("about {} of memory{free}; the time left is shown from the first step on", gigabytes(memory)));
            }
            DpoEvent::Started { parameters, pairs, held_out, resumed, steps } => {
                self.line(&format!("{parameters} parameters, {pairs} pairs, {held_out} held out, {steps} steps, {resumed} done"));
                self.start(resumed);
            }
            DpoEvent::Reference { done, total } => {
                self.bar.set_message(format!("reference {done}/{total}"));
                self.log(|| format!("reference {done}/{total}"));
                if done == total {
                    self.bar.reset_eta();
                }
            }
            DpoEvent::Step { step, loss, accuracy, norm, rate, tokens, elapsed, .. } => {
                let speed = self.rate(tokens, elapsed);
                let (count, time) = &mut self.steps;
                (*count, *time) = (*count + 1, *time + elapsed);
                let left = time.as_secs_f64() / f64::from(*count) * (self.total - step) as f64;
                self.bar.set_position(step);
                self.bar.set_message(format!("loss {loss:.3} · accuracy {accuracy:.2} · {speed:.0} tokens/s"));
                self.log(|| {
                    format!(
                        "step {step} loss {loss:.4} accuracy {accuracy:.2} norm {norm:.3} rate {rate:.2e} \
                         {speed:.0} tokens/s {left:.0} s left"
                    )
                });
            }
            DpoEvent::HeldOut { step, report } => self.line(&format!("step {step}, held out: {}", summary(&report))),
            DpoEvent::Tested { test, report } => self.line(&format!("test {}: {}", test + 1, summary(&report))),
            _ => {}
        }
    }

    pub(super) fn head(&mut self, event: HeadEvent) {
        match event {
            HeadEvent::Started { width, pairs, left_out, held_out } => {
                self.line(&format!("{width} weights, {pairs} pairs, {left_out} left out, {held_out} held out"));
            }
            HeadEvent::Features { done, total } => {
                self.bar.set_length(total as u64);
                self.bar.set_position(done as u64);
                self.bar.set_message("hidden states");
                self.log(|| format!("hidden states {done}/{total}"));
            }
            HeadEvent::Fitting { iteration, loss, norm } => {
                self.bar.set_message(format!("iteration {iteration} · loss {loss:.4}"));
                self.log(|| format!("iteration {iteration} loss {loss:.5} norm {norm:.2e}"));
            }
            _ => {}
        }
    }
}

fn summary(report: &PreferenceReport) -> String {
    let PreferenceReport { pairs, loss, accuracy, interval: (low, high), margin, .. } = report;
    format!(
        "{pairs} pairs: loss {loss:.4}, accuracy {accuracy:.3} [{low:.3}, {high:.3}], margin {margin:.3}, \
         tokens {:.1} chosen {:.1} rejected, longer side chosen {:.3} preferred {:.3}",
        report.chosen_length, report.rejected_length, report.longer_chosen, report.longer_preferred
    )
}
