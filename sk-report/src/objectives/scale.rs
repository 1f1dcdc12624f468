use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An integer rating scale, mapped to [0, 1] by (s − low)/(high − low). Its text form is
/// `LOW-HIGH`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Scale {
    low: u8,
    high: u8,
}

impl Scale {
    /// 0 to 10, in steps of a tenth, as in the published scores.
    pub const TENTHS: Self = Self { low: 0, high: 10 };
    /// 1 to 5. Every score is a single digit and therefore one token in every tokenizer, as
    /// log-probability weighting requires.
    pub const ONE_TO_FIVE: Self = Self { low: 1, high: 5 };

    /// The lowest score.
    pub fn low(self) -> u8 {
        self.low
    }

    /// The highest score.
    pub fn high(self) -> u8 {
        self.high
    }

    /// Returns whether every score is a single digit.
    pub fn is_single_digit(self) -> bool {
        self.high <= 9
    }

    /// Returns whether `number` is a score of the scale.
    pub fn contains(self, number: u64) -> bool {
        (u64::from(self.low)..=u64::from(self.high)).contains(&number)
    }

    /// Maps a score, or a mean of scores, to [0, 1].
    pub fn to_unit(self, score: f64) -> f64 {
        (score - f64::from(self.low)) / f64::from(self.high - self.low)
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.low, self.high)
    }
}

impl From<Scale> for String {
    fn from(scale: Scale) -> Self {
        scale.to_string()
    }
}

impl TryFrom<String> for Scale {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Scale {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('-').and_then(|(low, high)| Some((low.trim().parse().ok()?, high.trim().parse().ok()?)));
        match parsed {
            Some((low, high)) if low < high && high <= 100 => Ok(Self { low, high }),
            _ => Err("a scale is LOW-HIGH in whole numbers up to 100, such as 0-10".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_read_and_map_to_the_unit_interval() {
        let scale: Scale = "1-5".parse().unwrap();
        assert_eq!(scale, Scale::ONE_TO_FIVE);
        assert_eq!([1.0, 2.0, 5.0].map(|score| scale.to_unit(score)), [0.0, 0.25, 1.0]);
        assert!(scale.contains(1) && scale.contains(5) && !scale.contains(0) && !scale.contains(6));
        assert!(Scale::ONE_TO_FIVE.is_single_digit() && !Scale::TENTHS.is_single_digit());
        for wrong in ["5", "5-1", "3-3", "-1-5", "0-101", "a-b", ""] {
            assert!(wrong.parse::<Scale>().is_err(), "{wrong}");
        }
    }
}
