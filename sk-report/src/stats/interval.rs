use std::ops::Neg;

use serde::Serialize;

/// A confidence interval, absent if an end is not finite. Serialised as `[low, high]`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(into = "[f64; 2]")]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// The absent interval.
    pub const NONE: Self = Self { low: f64::NAN, high: f64::NAN };

    /// Returns the interval `centre` ∓ `half`.
    pub fn around(centre: f64, half: f64) -> Self {
        Self { low: centre - half, high: centre + half }
    }

    /// Returns whether the interval is absent.
    pub fn is_none(self) -> bool {
        !(self.low.is_finite() && self.high.is_finite())
    }

    /// Returns whether both ends lie on the same side of zero.
    pub fn excludes_zero(self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

impl Neg for Interval {
    type Output = Self;

    fn neg(self) -> Self {
        Self { low: -self.high, high: -self.low }
    }
}

impl From<Interval> for [f64; 2] {
    fn from(interval: Interval) -> Self {
        [interval.low, interval.high]
    }
}
