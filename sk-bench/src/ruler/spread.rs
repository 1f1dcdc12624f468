//! A median and its range.

use serde::{Deserialize, Serialize};

use sk_report::stats::median;

/// Repetitions of one measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Returns the spread of at least one value.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().collect();
        let (min, max) = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), &v| (min.min(v), max.max(v)));
        Self { median: median(&values), min, max }
    }

    /// Returns the spread of the ratios of two alternating measurements, repetition by repetition.
    pub(crate) fn of_ratios(over: impl IntoIterator<Item = f64>, under: impl IntoIterator<Item = f64>) -> Self {
        Self::of(over.into_iter().zip(under).map(|(over, under)| over / under))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_by_hand() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
        // If the machine halves its speed between repetitions, the ratios do not change.
        assert_eq!(Spread::of_ratios([30.0, 15.0, 30.0], [10.0, 5.0, 10.0]), Spread { median: 3.0, min: 3.0, max: 3.0 });
    }
}
