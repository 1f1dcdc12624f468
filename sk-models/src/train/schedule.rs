//! The learning rate over a run.

/// Linear warm-up, then half a cosine down to a fraction of the peak.
pub(super) struct Cosine {
    /// The highest rate.
    pub(super) peak: f64,
    /// Steps of warm-up.
    pub(super) warmup: u64,
    /// All steps.
    pub(super) steps: u64,
    /// The last rate, as a fraction of the peak.
    pub(super) floor: f64,
}

impl Cosine {
    /// Returns the rate of a step, counted from zero.
    pub(super) fn rate(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.peak * (step + 1) as f64 / self.warmup as f64;
        }
        let span = self.steps.saturating_sub(self.warmup).max(1);
        let done = ((step - self.warmup) as f64 / span as f64).min(1.0);
        let cosine = 0.5 * (1.0 + (std::f64::consts::PI * done).cos());
        self.peak * (self.floor + (1.0 - self.floor) * cosine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rises_to_the_peak_and_falls_to_the_floor() {
        let schedule = Cosine { peak: 2.0, warmup: 10, steps: 110, floor: 0.1 };
        assert_eq!(schedule.rate(0), 0.2);
        assert_eq!(schedule.rate(9), 2.0);
        assert_eq!(schedule.rate(10), 2.0);
        assert!((schedule.rate(60) - 1.1).abs() < 1e-12);
        assert!((schedule.rate(110) - 0.2).abs() < 1e-12);
        assert!((schedule.rate(1_000) - 0.2).abs() < 1e-12);
        let rates: Vec<f64> = (10..110).map(|step| schedule.rate(step)).collect();
        assert!(rates.windows(2).all(|pair| pair[0] > pair[1]));
    }
}
