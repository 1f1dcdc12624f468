//! The space that is searched, and its points.

use std::collections::BTreeMap;

use super::{Knob, Parameter};
use crate::args::SteeringArgs;
use crate::scheme::SchemeConfig;

/// A value for each parameter of a space, in its order.
pub type Point = Vec<f64>;

/// Some parameters, each with its range.
#[derive(Debug, Clone, PartialEq)]
pub struct Space(Vec<Parameter>);

impl Space {
    /// A space of these parameters.
    ///
    /// # Errors
    /// When there is none.
    pub fn new(parameters: Vec<Parameter>) -> Result<Self, String> {
        if parameters.is_empty() {
            Err("every number is fixed: nothing is left to search".to_owned())
        } else {
            Ok(Self(parameters))
        }
    }

    /// Its parameters.
    pub fn parameters(&self) -> &[Parameter] {
        &self.0
    }

    /// Where a scheme lies in the space, unless it is outside.
    pub fn point_of(&self, config: &SchemeConfig) -> Option<Point> {
        let values: Point = self.0.iter().map(|parameter| parameter.knob.read(config)).collect();
        self.0.iter().zip(&values).all(|(parameter, &value)| parameter.contains(value)).then_some(values)
    }

    /// Sets the numbers of a point.
    pub(super) fn apply(&self, point: &[f64], steering: &mut SteeringArgs) {
        self.0.iter().zip(point).for_each(|(parameter, &value)| parameter.knob.set(value, steering));
    }

    /// A point by the names of its parameters.
    pub fn by_name(&self, point: &[f64]) -> BTreeMap<String, f64> {
        self.0.iter().zip(point).map(|(parameter, &value)| (parameter.knob.name().to_owned(), value)).collect()
    }

    /// The point that a record names, unless it lacks a parameter or has one too many.
    pub fn point(&self, named: &BTreeMap<String, f64>) -> Option<Point> {
        let point: Option<Point> = self.0.iter().map(|parameter| named.get(parameter.knob.name()).copied()).collect();
        point.filter(|point| point.len() == named.len())
    }

    /// Options of the command line that set a point.
    pub fn options(&self, point: &[f64]) -> String {
        // A mean of logarithms and back is off in its last bits.
        let option = |(parameter, &value): (&Parameter, &f64)| {
            let value = format!("{value:.11e}").parse().unwrap_or(value);
            format!("{} {value}", parameter.knob.option())
        };
        self.0.iter().zip(point).map(option).collect::<Vec<_>>().join(" ")
    }
}

impl Default for Space {
    /// All seven numbers in their default ranges.
    fn default() -> Self {
        Self(Knob::ALL.map(Parameter::default_of).to_vec())
    }
}

#[cfg(test)]
mod tests {
    use sk_core::OperatingPoint;

    use super::*;
    use crate::scheme::Convention;

    #[test]
    fn points_go_by_name_and_back() {
        let space = Space::default();
        let config = SchemeConfig::reference(Convention::Sound, &OperatingPoint::HHH);
        let point = space.point_of(&config).unwrap();
        assert_eq!(point, [8.0, 1.1, 1.75, 0.2, 5.0, 7.0, 0.5]);
        let mut named = space.by_name(&point);
        assert_eq!(space.point(&named), Some(point.clone()));
        assert_eq!(
            space.options(&point),
            "--temperature 8 --w-tour 1.1 --w-blade 1.75 --lambda 0.2 --rounds 5 --n 7 --alpha 0.5"
        );
        let inexact = [8.0_f64.ln().exp(), 1.1, 1.75, 0.2, 5.0, 7.0, 0.5];
        assert!(inexact[0] != 8.0 && space.options(&inexact) == space.options(&point));
        named.insert("beta".to_owned(), 0.1);
        assert_eq!(space.point(&named), None, "one too many");
        let narrow = Space::new(vec![Parameter::new(Knob::Temperature, 0.5, 2.0).unwrap()]).unwrap();
        assert_eq!(narrow.point_of(&config), None, "T = 8 lies outside");
        assert!(Space::new(Vec::new()).is_err());
    }
}
