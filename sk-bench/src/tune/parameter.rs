//! A number of a scheme that is searched over: its range, its scale, and where it goes.

use crate::args::SteeringArgs;
use crate::scheme::SchemeConfig;

/// Significant digits of a proposed value. What is tried is what is printed, and more digits mean nothing here.
const DIGITS: usize = 4;

/// The numbers of the reference instantiation that can be searched. The paper searched all but α.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Knob {
    /// T.
    Temperature,
    /// w_tour.
    WTour,
    /// w_blade.
    WBlade,
    /// λ.
    Lambda,
    /// R.
    Rounds,
    /// N.
    Candidates,
    /// α.
    Alpha,
}

impl Knob {
    /// All of them, in the order of the paper's table, α last.
    pub const ALL: [Self; 7] =
        [Self::Temperature, Self::WTour, Self::WBlade, Self::Lambda, Self::Rounds, Self::Candidates, Self::Alpha];

    /// The name in plans and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Temperature => "temperature",
            Self::WTour => "w_tour",
            Self::WBlade => "w_blade",
            Self::Lambda => "lambda",
            Self::Rounds => "rounds",
            Self::Candidates => "candidates",
            Self::Alpha => "alpha",
        }
    }

    /// The symbol of the paper.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Temperature => "T",
            Self::WTour => "w_tour",
            Self::WBlade => "w_blade",
            Self::Lambda => "λ",
            Self::Rounds => "R",
            Self::Candidates => "N",
            Self::Alpha => "α",
        }
    }

    /// The option of the command line that sets it.
    pub fn option(self) -> &'static str {
        match self {
            Self::Temperature => "--temperature",
            Self::WTour => "--w-tour",
            Self::WBlade => "--w-blade",
            Self::Lambda => "--lambda",
            Self::Rounds => "--rounds",
            Self::Candidates => "--n",
            Self::Alpha => "--alpha",
        }
    }

    /// How it is searched. T acts multiplicatively on a scale of log-probabilities, so its logarithm is.
    pub fn scale(self) -> Scale {
        match self {
            Self::Temperature => Scale::Log,
            Self::Rounds | Self::Candidates => Scale::Whole,
            Self::WTour | Self::WBlade | Self::Lambda | Self::Alpha => Scale::Linear,
        }
    }

    /// What is searched unless a plan says. The paper prints optima and no ranges; these hold all of its optima with room on both sides.
    pub fn range(self) -> (f64, f64) {
        match self {
            Self::Temperature => (0.25, 32.0),
            Self::WTour | Self::WBlade => (0.0, 3.0),
            Self::Lambda | Self::Alpha => (0.0, 1.0),
            Self::Rounds => (1.0, 8.0),
            Self::Candidates => (2.0, 12.0),
        }
    }

    /// Its value in a scheme.
    pub fn read(self, config: &SchemeConfig) -> f64 {
        match self {
            Self::Temperature => config.selector.temperature,
            Self::WTour => config.selector.w_tour,
            Self::WBlade => config.selector.w_blade,
            Self::Lambda => config.selector.lambda,
            Self::Rounds => config.aggregator.rounds as f64,
            Self::Candidates => config.proposal.candidates as f64,
            Self::Alpha => config.aggregator.alpha,
        }
    }

    /// Sets it as its option would, so that a scheme whose slots have no such number refuses it.
    pub(super) fn set(self, value: f64, steering: &mut SteeringArgs) {
        match self {
            Self::Temperature => steering.temperature = Some(value),
            Self::WTour => steering.w_tour = Some(value),
            Self::WBlade => steering.w_blade = Some(value),
            Self::Lambda => steering.lambda = Some(value),
            Self::Rounds => steering.rounds = Some(value as usize),
            Self::Candidates => steering.n = Some(value as usize),
            Self::Alpha => steering.alpha = Some(value),
        }
    }
}

/// How a range is laid onto [0, 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// Evenly in the logarithm.
    Log,
    /// Every whole number gets an equal share.
    Whole,
}

/// A [`Knob`] with the range it is searched in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameter {
    /// What it sets.
    pub knob: Knob,
    low: f64,
    high: f64,
}

impl Parameter {
    /// A parameter searched in [low, high].
    ///
    /// # Errors
    /// When the range is empty or not finite, reaches below what the number may be, or is not whole where the number is.
    pub fn new(knob: Knob, low: f64, high: f64) -> Result<Self, String> {
        if !(low.is_finite() && high.is_finite() && low < high) {
            return Err(format!("{} needs a range [low, high] with low below high, both finite", knob.name()));
        }
        let (least, most) = match knob {
            Knob::Temperature => (f64::MIN_POSITIVE, f64::INFINITY),
            Knob::WTour | Knob::WBlade | Knob::Lambda => (f64::NEG_INFINITY, f64::INFINITY),
            Knob::Alpha => (0.0, 1.0),
            Knob::Rounds | Knob::Candidates => (1.0, 1e6),
        };
        if low < least || high > most {
            let reason = if knob == Knob::Temperature { "above 0".to_owned() } else { format!("in [{least}, {most}]") };
            return Err(format!("{} is searched in [{low}, {high}], and must stay {reason}", knob.name()));
        }
        if knob.scale() == Scale::Whole && (low.fract() != 0.0 || high.fract() != 0.0) {
            return Err(format!("{} counts something: its range ends at whole numbers", knob.name()));
        }
        Ok(Self { knob, low, high })
    }

    /// The parameter with its default range.
    pub fn default_of(knob: Knob) -> Self {
        let (low, high) = knob.range();
        Self { knob, low, high }
    }

    /// The range.
    pub fn range(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Whether a value lies in the range.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// The value at `u` ∈ [0, 1), to four significant digits.
    pub fn value(&self, u: f64) -> f64 {
        let value = match self.knob.scale() {
            Scale::Linear => rounded(self.low + u * (self.high - self.low)),
            Scale::Log => rounded((self.low.ln() + u * (self.high / self.low).ln()).exp()),
            Scale::Whole => self.low + (u * (self.high - self.low + 1.0)).floor(),
        };
        value.clamp(self.low, self.high)
    }

    /// Where a value lies in [0, 1): in the middle of its share, for a whole number.
    pub fn unit(&self, value: f64) -> f64 {
        let u = match self.knob.scale() {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
            Scale::Whole => (value - self.low + 0.5) / (self.high - self.low + 1.0),
        };
        u.clamp(0.0, 1.0_f64.next_down())
    }
}

/// A number as its first digits spell it. Numbers this short come out of JSON as they went in.
fn rounded(value: f64) -> f64 {
    format!("{value:.*e}", DIGITS - 1).parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use sk_core::OperatingPoint;

    use super::*;
    use crate::args::ModelArgs;

    #[test]
    fn values_and_units_are_inverse() {
        for knob in Knob::ALL {
            let parameter = Parameter::default_of(knob);
            for step in 0..=1000 {
                let value = parameter.value(f64::from(step) / 1001.0);
                assert!(parameter.contains(value), "{knob:?} {value}");
                assert_eq!(parameter.value(parameter.unit(value)), value, "{knob:?}");
            }
            let (low, high) = parameter.range();
            assert_eq!((parameter.value(0.0), parameter.value(1.0_f64.next_down())), (low, high));
        }
        // Half of the units of a logarithmic range lie below its geometric mean: √(0.25·32) = 2.828.
        assert_eq!(Parameter::default_of(Knob::Temperature).value(0.5), 2.828);
    }

    #[test]
    fn each_whole_number_has_its_share() {
        let rounds = Parameter::new(Knob::Rounds, 1.0, 4.0).unwrap();
        let values: Vec<f64> = [0.0, 0.24, 0.25, 0.49, 0.5, 0.75, 0.999].map(|u| rounds.value(u)).to_vec();
        assert_eq!(values, [1.0, 1.0, 2.0, 2.0, 3.0, 4.0, 4.0]);
    }

    #[test]
    fn ranges_hold_the_published_optima() {
        for (name, point) in OperatingPoint::PUBLISHED {
            let config = SchemeConfig::reference(crate::scheme::Convention::Sound, &point);
            for knob in Knob::ALL {
                let value = knob.read(&config);
                let (low, high) = knob.range();
                assert!(low < value && value < high, "{name}: {} is {value}", knob.name());
            }
        }
    }

    #[test]
    fn a_value_arrives_where_it_is_read() {
        for knob in Knob::ALL {
            let value = Parameter::default_of(knob).value(0.3);
            let mut steering = SteeringArgs::default();
            knob.set(value, &mut steering);
            let config = steering.scheme(&ModelArgs::default()).unwrap();
            assert_eq!(knob.read(&config), value, "{}", knob.name());
        }
    }

    #[test]
    fn ranges_that_are_none_are_refused() {
        for (knob, low, high, says) in [
            (Knob::Temperature, 0.0, 1.0, "above 0"),
            (Knob::Alpha, 0.5, 1.5, "in [0, 1]"),
            (Knob::Lambda, 1.0, 1.0, "low below high"),
            (Knob::WTour, f64::NAN, 1.0, "finite"),
            (Knob::Rounds, 1.5, 4.0, "whole numbers"),
            (Knob::Candidates, 0.0, 4.0, "in [1, "),
        ] {
            assert!(Parameter::new(knob, low, high).unwrap_err().contains(says), "{knob:?}");
        }
    }
}
