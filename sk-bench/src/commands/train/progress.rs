//! Progress of training.

use std::time::Duration;

use sk_models::train::{dpo::DpoEvent, head::HeadEvent, lm::LmEvent, preference::PreferenceReport};

use crate::plural::counted;
use crate::progress::Work;

/// Weight of earlier steps in the exponential mean of the rate.
const MEMORY: f64 = 0.9;

/// The progress of one run.
pub(in crate::commands) struct Bar {
    work: Work,
    /// Number of steps of the run.
    total: u64,
    /// Exponential mean of items per second.
    rate: Option<f64>,
}

impl Bar {
    /// Returns a bar for `total` parts that are called `unit`.
    pub(in crate::commands) fn new(unit: &'static str, total: u64) -> Self {
        Self { work: Work::new(unit, false), total, rate: None }
    }

    /// Updates the mean rate with `items` done in `elapsed`, and returns it.
    fn rate(&mut self, items: usize, elapsed: Duration) -> f64 {
        let now = items as f64 / elapsed.as_secs_f64();
        let mean = self.rate.map_or(now, |mean| MEMORY * mean + (1.0 - MEMORY) * now);
        self.rate = Some(mean);
        mean
    }

    /// Shows that a step is done. Without a terminal, the line also includes `more`.
    fn step(&mut self, step: u64, note: String, more: &str) {
        let note = if self.work.is_terminal() { note } else { format!("{note} · {more}") };
        self.work.show(step, &note);
    }

    fn left_out(&mut self, pairs: usize, reason: &str) {
        self.work.line(&format!("left out: {} {reason}", counted(pairs, "pair")));
    }

    pub(super) fn lm(&mut self, event: LmEvent) {
        match event {
            LmEvent::Planned { memory, free } => self.planned(memory, free),
            LmEvent::Started { parameters, epoch_tokens, resumed, steps } => {
                self.work
                    .line(&format!("{parameters} parameters, {epoch_tokens} tokens an epoch, {steps} steps, {resumed} done"));
                self.work.begin(self.total, resumed);
            }
            LmEvent::Step { step, loss, norm, rate, tokens, elapsed } => {
                let speed = self.rate(tokens, elapsed);
                let more = format!("norm {norm:.3} · rate {rate:.2e}");
                self.step(step, format!("{speed:.0} tokens/s · loss {loss:.3}"), &more);
            }
            LmEvent::HeldOut { step, loss } => {
                self.work.line(&format!("step {step}: held-out loss {loss:.4}, perplexity {:.2}", loss.exp()));
            }
            _ => {}
        }
    }

    fn planned(&self, memory: u64, free: Option<u64>) {
        let gigabytes = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
        let free = free.map_or_else(String::new, |free| format!(", of which {} are free", gigabytes(free)));
        self.work.line(&format!("about {} of memory{free}; the time left is shown from the first step on", gigabytes(memory)));
    }

    pub(in crate::commands) fn dpo(&mut self, event: DpoEvent) {
        match event {
            DpoEvent::LeftOut { pairs, reason } => self.left_out(pairs, reason),
            DpoEvent::Planned { memory, free } => self.planned(memory, free),
            DpoEvent::Started { parameters, pairs, held_out, resumed, steps } => {
                self.work
                    .line(&format!("{parameters} parameters, {pairs} pairs, {held_out} held out, {steps} steps, {resumed} done"));
                self.work.begin(self.total, resumed);
            }
            // Training steps start after the reference model has scored every pair.
            DpoEvent::Reference { done, total } if done < total => {
                self.work.show(self.work.done(), &format!("reference {done}/{total}"));
            }
            DpoEvent::Reference { .. } => self.work.begin(self.total, self.work.done()),
            DpoEvent::Step { step, loss, accuracy, norm, rate, tokens, elapsed } => {
                let speed = self.rate(tokens, elapsed);
                let more = format!("norm {norm:.3} · rate {rate:.2e}");
                self.step(step, format!("{speed:.0} tokens/s · loss {loss:.3} · accuracy {accuracy:.2}"), &more);
            }
            DpoEvent::HeldOut { step, report } => self.work.line(&format!("step {step}, held out: {}", summary(&report))),
            DpoEvent::Tested { test, left_out, asked, report } => {
                let notes = [(asked, "with a question of the training data"), (left_out, "left out")];
                let notes = notes.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!(", {count} {what}"));
                self.work.line(&format!("test {}: {}{}", test + 1, summary(&report), notes.collect::<String>()));
            }
            _ => {}
        }
    }

    pub(super) fn head(&mut self, event: HeadEvent) {
        match event {
            HeadEvent::LeftOut { pairs, reason } => self.left_out(pairs, reason),
            HeadEvent::Started { width, pairs, left_out, held_out } => {
                self.work.line(&format!(
                    "{width} weights, {pairs} pairs, {left_out} left out by --pairs or --memory, {held_out} held out"
                ));
            }
            HeadEvent::Features { done, total } => self.work.follow(done as u64, total as u64, "hidden states"),
            HeadEvent::Fitting { iteration, loss, norm } => {
                self.step(self.work.done(), format!("iteration {iteration} · loss {loss:.4}"), &format!("norm {norm:.2e}"));
            }
            _ => {}
        }
    }
}

fn summary(report: &PreferenceReport) -> String {
    let PreferenceReport { pairs, loss, accuracy, interval: (low, high), margin, chosen_length, rejected_length, .. } = report;
    let longer = match report.unequal {
        0 => String::new(),
        _ => format!(", longer side chosen {:.3} preferred {:.3}", report.longer_chosen, report.longer_preferred),
    };
    format!(
        "{pairs} pairs: loss {loss:.4}, accuracy {accuracy:.3} [{low:.3}, {high:.3}], margin {margin:.3}, \
         tokens {chosen_length:.1} chosen {rejected_length:.1} rejected{longer}"
    )
}
