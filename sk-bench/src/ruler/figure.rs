//! A measurement and its theoretical limit.

use serde::Serialize;

use super::Spread;

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
    fn twice_the_least_time_is_half_the_highest_rate() {
        let time = Figure::seconds([2.0, 4.0, 3.0], Some(1.5));
        assert_eq!((time.spread.median, time.floor, time.to_floor), (3.0, Some(1.5), Some(2.0)));
        let rate = Figure::rate(6, [2.0, 4.0, 3.0], Some(1.5));
        assert_eq!((rate.spread.median, rate.floor, rate.to_floor), (2.0, Some(4.0), Some(2.0)));
        assert_eq!(Figure::seconds([1.0], None).to_floor, None);
    }
}
