//! Settings that every run of optimiser steps has, and its learning rate.

use super::error::TrainError;

/// Settings of the steps of a run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Optimiser steps.
    pub steps: u64,
    /// Windows of text, or pairs, per forward pass.
    pub batch: usize,
    /// Forward passes per step: a step trains on `batch · accumulate` windows or pairs.
    pub accumulate: usize,
    /// Tokens per window, or the longest prompt and completion together, in tokens; prompts lose
    /// their beginning.
    pub length: usize,
    /// The highest learning rate. The rate rises linearly over `warmup` steps and then falls along half
    /// a cosine to `floor · rate`.
    pub rate: f64,
    /// Steps of warm-up.
    pub warmup: u64,
    /// The last rate as a fraction of the highest.
    pub floor: f64,
    /// Decoupled weight decay of matrices, per step and unit of learning rate. Norms and biases do
    /// not decay.
    pub weight_decay: f64,
    /// Largest global gradient norm; larger gradients are scaled down to it. Zero means no limit.
    pub clip: f64,
    /// Seed of the trained matrices and the order of the data.
    pub seed: u64,
    /// Steps between held-out measurements.
    pub evaluate_every: u64,
    /// Steps between checkpoints.
    pub save_every: u64,
}

impl RunOptions {
    /// Checks all settings but the length and the size of a step.
    pub(super) fn check(&self) -> Result<(), TrainError> {
        TrainError::check_counts(&[
            ("steps", self.steps),
            ("batch", self.batch as u64),
            ("accumulate", self.accumulate as u64),
            ("evaluate-every", self.evaluate_every),
            ("save-every", self.save_every),
        ])?;
        TrainError::check_positive("rate", self.rate)?;
        TrainError::check_number("floor", self.floor, true)?;
        TrainError::check_number("weight-decay", self.weight_decay, false)?;
        TrainError::check_number("clip", self.clip, false)
    }

    /// Returns the learning rate of a step, counted from zero: linear warm-up, then half a cosine
    /// down to a fraction of the highest rate.
    pub(super) fn rate_at(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.rate * (step + 1) as f64 / self.warmup as f64;
        }
        let span = self.steps.saturating_sub(self.warmup).max(1);
        let done = ((step - self.warmup) as f64 / span as f64).min(1.0);
        let cosine = 0.5 * (1.0 + (std::f64::consts::PI * done).cos());
        self.rate * (self.floor + (1.0 - self.floor) * cosine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_rises_to_the_highest_and_falls_to_the_floor() {
        let run = RunOptions {
            steps: 110,
            batch: 1,
            accumulate: 1,
            length: 1,
            rate: 2.0,
            warmup: 10,
            floor: 0.1,
            weight_decay: 0.0,
            clip: 0.0,
            seed: 0,
            evaluate_every: 1,
            save_every: 1,
        };
        assert_eq!(run.rate_at(0), 0.2);
        assert_eq!(run.rate_at(9), 2.0);
        assert_eq!(run.rate_at(10), 2.0);
        assert!((run.rate_at(60) - 1.1).abs() < 1e-12);
        assert!((run.rate_at(110) - 0.2).abs() < 1e-12);
        assert!((run.rate_at(1_000) - 0.2).abs() < 1e-12);
        let rates: Vec<f64> = (10..110).map(|step| run.rate_at(step)).collect();
        assert!(rates.windows(2).all(|pair| pair[0] > pair[1]));
    }
}
