//! The axes along which the cost of a step is measured.

use std::str::FromStr;

use crate::args::MAX_COUNT;
use crate::named::named;
use crate::suggest;

named! {
    /// A number of the operating point that a step's cost depends on.
    pub(crate) Axis {
        /// Tokens of the context.
        Prefix = "prefix",
        /// N, candidates.
        Candidates = "n",
        /// K, blades.
        Blades = "k",
        /// L, tokens of a span.
        Span = "l",
    }
}

/// An operating point of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operating {
    /// Tokens of the context.
    pub prefix: usize,
    /// N.
    pub candidates: usize,
    /// K.
    pub blades: usize,
    /// L.
    pub span: usize,
}

impl Axis {
    /// Returns the default values of the axis.
    pub(crate) fn values(self) -> &'static [usize] {
        match self {
            Self::Prefix => &[64, 128, 256, 512, 1024, 2048, 4096],
            Self::Candidates => &[1, 2, 4, 7, 8, 16, 32],
            Self::Blades => &[0, 1, 2, 3, 4, 5, 6, 7, 8],
            Self::Span => &[8, 16, 24, 32, 64, 128],
        }
    }
}

impl Operating {
    /// Returns the value on `axis`.
    pub(crate) fn at(&self, axis: Axis) -> usize {
        match axis {
            Axis::Prefix => self.prefix,
            Axis::Candidates => self.candidates,
            Axis::Blades => self.blades,
            Axis::Span => self.span,
        }
    }

    /// Returns the same point with another value on `axis`.
    pub(crate) fn with(self, axis: Axis, value: usize) -> Self {
        match axis {
            Axis::Prefix => Self { prefix: value, ..self },
            Axis::Candidates => Self { candidates: value, ..self },
            Axis::Blades => Self { blades: value, ..self },
            Axis::Span => Self { span: value, ..self },
        }
    }
}

/// A parsed `AXIS` or `AXIS=VALUE:VALUE…`: a sweep along one axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AxisArg {
    pub axis: Axis,
    /// The values, in ascending order.
    pub values: Vec<usize>,
}

impl AxisArg {
    /// Returns the points of the sweep, including `centre`.
    pub(crate) fn points(&self, centre: Operating) -> Vec<Operating> {
        let mut values = self.values.clone();
        values.push(centre.at(self.axis));
        values.sort_unstable();
        values.dedup();
        values.into_iter().map(|value| centre.with(self.axis, value)).collect()
    }
}

impl FromStr for AxisArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, values) = text.split_once('=').map_or((text, None), |(name, values)| (name, Some(values)));
        let axis = suggest::choice("sweep", name.trim(), &Axis::by_name().collect::<Vec<_>>())?;
        let least = usize::from(axis != Axis::Blades);
        // A blade and a candidate take memory. Lengths beyond the context of the models are
        // skipped.
        let most = if matches!(axis, Axis::Candidates | Axis::Blades) { MAX_COUNT } else { usize::MAX };
        let value = |text: &str| match text.trim().parse() {
            Ok(value) if value > most => Err(format!("{} is \"{text}\"; it must be at most {most}", axis.name())),
            Ok(value) if value >= least => Ok(value),
            _ => Err(format!("{} is \"{text}\"; it must be a whole number of at least {least}", axis.name())),
        };
        let values = values.map_or_else(|| Ok(axis.values().to_vec()), |values| values.split(':').map(value).collect())?;
        Ok(Self { axis, values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CENTRE: Operating = Operating { prefix: 64, candidates: 7, blades: 3, span: 24 };

    #[test]
    fn a_sweep_changes_one_number_and_passes_through_the_centre() {
        let points = |text: &str| text.parse::<AxisArg>().unwrap().points(CENTRE);
        assert_eq!(points("n=16:1:16"), [1, 7, 16].map(|candidates| Operating { candidates, ..CENTRE }));
        assert_eq!(points("k=0"), [0, 3].map(|blades| Operating { blades, ..CENTRE }));
        for (name, axis) in Axis::by_name() {
            let points = points(name);
            assert_eq!(points.iter().map(|point| point.at(axis)).collect::<Vec<_>>(), axis.values());
            assert!(points.iter().all(|point| point.with(axis, CENTRE.at(axis)) == CENTRE) && points.contains(&CENTRE));
            assert_eq!(axis.name(), name);
        }
    }

    #[test]
    fn invalid_sweeps_are_refused() {
        for (text, said) in [
            ("prefx", "unknown sweep \"prefx\"; did you mean \"prefix\"?"),
            ("m", "known: prefix, n, k, l"),
            ("n=0", "n is \"0\"; it must be a whole number of at least 1"),
            ("l=8:", "l is \"\""),
            ("k=-1", "at least 0"),
            ("k=1:1000000000000", "k is \"1000000000000\"; it must be at most 1024"),
            ("n=1025", "n is \"1025\"; it must be at most 1024"),
            ("prefix=64:x", "\"x\""),
        ] {
            let error = text.parse::<AxisArg>().unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
