//! Repeated measurements, and their theoretical limit.

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

/// Repeated measurements of a time or a rate, and the limit of the device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Figure {
    /// The measurements.
    #[serde(flatten)]
    pub spread: Spread,
    /// The limit by the roofline model in the same unit: the minimum time or the maximum rate.
    pub floor: Option<f64>,
    /// The measured time divided by the time at the floor.
    pub to_floor: Option<f64>,
}

impl Figure {
    /// Returns a time, in seconds.
    pub(crate) fn seconds(values: impl IntoIterator<Item = f64>, floor: Option<f64>) -> Self {
        let spread = Spread::of(values);
        Self { spread, floor, to_floor: floor.map(|floor| spread.median / floor) }
    }

    /// Returns a rate, from the seconds that each repetition took for `amount` items.
    pub(crate) fn rate(amount: usize, seconds: impl IntoIterator<Item = f64>, floor: Option<f64>) -> Self {
        let rate = |seconds: f64| amount as f64 / seconds.max(f64::MIN_POSITIVE);
        let spread = Spread::of(seconds.into_iter().map(rate));
        let floor = floor.map(rate);
        Self { spread, floor, to_floor: floor.map(|floor| floor / spread.median) }
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

    #[test]
    fn twice_the_least_time_is_half_the_highest_rate() {
        let time = Figure::seconds([2.0, 4.0, 3.0], Some(1.5));
        assert_eq!((time.spread.median, time.floor, time.to_floor), (3.0, Some(1.5), Some(2.0)));
        let rate = Figure::rate(6, [2.0, 4.0, 3.0], Some(1.5));
        assert_eq!((rate.spread.median, rate.floor, rate.to_floor), (2.0, Some(4.0), Some(2.0)));
        assert_eq!(Figure::seconds([1.0], None).to_floor, None);
    }
}
