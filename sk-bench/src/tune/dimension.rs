//! Dimensions: the numbers of a scheme that are searched, with their ranges and scales.

use crate::scheme::Parameter;
use crate::scheme::parameters::{Scale, Search};

/// Number of significant digits of a proposed value. The value used is exactly the value printed,
/// and more digits would have no effect.
const DIGITS: usize = 4;

/// A number of a scheme, with the range in which it is searched.
#[derive(Debug, Clone, Copy)]
pub struct Dimension {
    /// The number.
    pub parameter: &'static Parameter,
    low: f64,
    high: f64,
    scale: Scale,
}

impl Dimension {
    /// Returns all numbers that can be searched, with their default ranges, in the order of the
    /// paper's table and with α last. The paper searched all except α.
    pub fn all() -> impl Iterator<Item = Self> {
        Parameter::searchable()
            .filter_map(|parameter| parameter.search.map(|Search { low, high, scale }| Self { parameter, low, high, scale }))
    }

    /// Returns the same number with the range [low, high].
    ///
    /// # Errors
    /// If the range is empty or not finite, contains values that the number cannot have, or has a
    /// fractional bound for a whole number.
    pub fn within(self, low: f64, high: f64) -> Result<Self, String> {
        let Parameter { name, range, .. } = self.parameter;
        if !(low.is_finite() && high.is_finite() && low < high) {
            return Err(format!("{name} needs a range [low, high] with low below high, both finite"));
        }
        let least = if self.scale == Scale::Log { f64::MIN_POSITIVE } else { range.least };
        // For a number without an upper bound, the scheme itself refuses values that are too small.
        let bounded = self.scale != Scale::Linear || range.most.is_finite();
        if bounded && (low < least || high > range.most) {
            let reason = if self.scale == Scale::Log { "above 0".to_owned() } else { range.to_string() };
            return Err(format!("{name} is searched in [{low}, {high}], and must stay {reason}"));
        }
        if self.scale == Scale::Whole && (low.fract() != 0.0 || high.fract() != 0.0) {
            return Err(format!("{name} is a whole number; both ends of its range must be whole numbers"));
        }
        if self.scale == Scale::Log && !(high / low).is_finite() {
            return Err(format!("{name} is searched in [{low}, {high}], whose ends are too far apart"));
        }
        let unit = 10f64.powf(high.abs().max(low.abs()).next_down().log10().floor() - (DIGITS - 1) as f64);
        // Two units of the last digit, up to rounding.
        if self.scale != Scale::Whole && high - low < 1.99 * unit {
            return Err(format!(
                "{name} is searched to {DIGITS} significant digits, and [{low}, {high}] has hardly more than one such value"
            ));
        }
        Ok(Self { low, high, ..self })
    }

    /// Returns the scale, which defines how the range is mapped to [0, 1).
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// Returns the range.
    pub fn range(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Returns whether a value lies in the range.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Returns the value at `u` ∈ [0, 1), rounded to four significant digits.
    pub fn value(&self, u: f64) -> f64 {
        let value = match self.scale {
            Scale::Linear => rounded(self.low + u * (self.high - self.low)),
            Scale::Log => rounded((self.low.ln() + u * (self.high / self.low).ln()).exp()),
            Scale::Whole => self.low + (u * (self.high - self.low + 1.0)).floor(),
        };
        value.clamp(self.low, self.high)
    }

    /// Maps a value to [0, 1). A whole number maps to the middle of its share of the interval.
    pub fn unit(&self, value: f64) -> f64 {
        let u = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
            Scale::Whole => (value - self.low + 0.5) / (self.high - self.low + 1.0),
        };
        u.clamp(0.0, 1.0_f64.next_down())
    }
}

/// Rounds a number to [`DIGITS`] significant digits. Such numbers survive a round trip through JSON
/// unchanged.
fn rounded(value: f64) -> f64 {
    format!("{value:.*e}", DIGITS - 1).parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use sk_core::OperatingPoint;

    use super::*;
    use crate::scheme::{Base, Convention, SchemeSpec};

    fn dimension(name: &str) -> Dimension {
        Dimension::all().find(|dimension| dimension.parameter.name == name).unwrap()
    }

    #[test]
    fn values_and_units_are_inverse() {
        for dimension in Dimension::all() {
            let name = dimension.parameter.name;
            for step in 0..=1000 {
                let value = dimension.value(f64::from(step) / 1001.0);
                assert!(dimension.contains(value), "{name} {value}");
                assert_eq!(dimension.value(dimension.unit(value)), value, "{name}");
            }
            let (low, high) = dimension.range();
            assert_eq!((dimension.value(0.0), dimension.value(1.0_f64.next_down())), (low, high));
        }
        // The midpoint of a logarithmic range is its geometric mean: √(0.25·32) = 2.828.
        assert_eq!(dimension("temperature").value(0.5), 2.828);
    }

    #[test]
    fn each_whole_number_has_its_share() {
        let rounds = dimension("rounds").within(1.0, 4.0).unwrap();
        let values: Vec<f64> = [0.0, 0.24, 0.25, 0.49, 0.5, 0.75, 0.999].map(|u| rounds.value(u)).to_vec();
        assert_eq!(values, [1.0, 1.0, 2.0, 2.0, 3.0, 4.0, 4.0]);
    }

    #[test]
    fn ranges_hold_the_published_optima() {
        for point in [OperatingPoint::HHH, OperatingPoint::HARMLESSNESS, OperatingPoint::HELPFULNESS, OperatingPoint::HONESTY] {
            let spec = SchemeSpec::reference(Base::new(Convention::Sound, &point));
            for dimension in Dimension::all() {
                let value = dimension.parameter.get(&spec).unwrap();
                let (low, high) = dimension.range();
                assert!(low < value && value < high, "{}: {value} in {point:?}", dimension.parameter.name);
            }
        }
    }

    #[test]
    fn a_set_value_is_read_back() {
        for dimension in Dimension::all() {
            let value = dimension.value(0.3);
            let mut spec = SchemeSpec::default();
            dimension.parameter.set(&mut spec, value).unwrap();
            assert_eq!(dimension.parameter.get(&spec), Some(value), "{}", dimension.parameter.name);
        }
    }

    #[test]
    fn a_range_may_hold_two_values() {
        for (low, high) in [(0.5, 0.5002), (0.998, 1.0), (0.0, 1e-9)] {
            assert!(dimension("alpha").within(low, high).is_ok(), "{low} {high}");
        }
    }

    #[test]
    fn invalid_ranges_are_refused() {
        for (name, low, high, says) in [
            ("temperature", 0.0, 1.0, "above 0"),
            ("alpha", 0.5, 1.5, "in [0, 1]"),
            ("lambda", 1.0, 1.0, "low below high"),
            ("w_tour", f64::NAN, 1.0, "finite"),
            ("rounds", 1.5, 4.0, "whole numbers"),
            ("candidates", 0.0, 4.0, "at least 1"),
            ("temperature", 1e-300, 1e300, "too far apart"),
            ("temperature", 8.00001, 8.00002, "to 4 significant digits"),
            ("temperature", 8.0004, 8.0006, "to 4 significant digits"),
            ("alpha", 0.500_01, 0.500_02, "to 4 significant digits"),
        ] {
            assert!(dimension(name).within(low, high).unwrap_err().contains(says), "{name}");
        }
    }
}
