//! Search spaces and their points.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Dimension;
use crate::scheme::{SchemeError, SchemeSpec};

/// A value for each dimension of a space, in order.
pub type Point = Vec<f64>;

/// Some numbers of a scheme, each with its range.
#[derive(Debug, Clone)]
pub struct Space(Vec<Dimension>);

impl Space {
    /// Returns a space with these dimensions.
    ///
    /// # Errors
    /// If there are no dimensions.
    pub fn new(dimensions: Vec<Dimension>) -> Result<Self, String> {
        if dimensions.is_empty() {
            Err("every number is fixed: nothing is left to search".to_owned())
        } else {
            Ok(Self(dimensions))
        }
    }

    /// Returns the dimensions.
    pub fn dimensions(&self) -> &[Dimension] {
        &self.0
    }

    /// Returns the point of a scheme; `None` if the scheme lies outside the space.
    pub fn point_of(&self, config: &SchemeSpec) -> Option<Point> {
        let value = |dimension: &Dimension| dimension.parameter.get(config).filter(|&value| dimension.contains(value));
        self.0.iter().map(value).collect()
    }

    /// Sets the numbers of a scheme to those of a point.
    ///
    /// # Errors
    /// If the scheme has no such number, or cannot have this value.
    pub(super) fn apply(&self, point: &[f64], spec: &mut SchemeSpec) -> Result<(), SchemeError> {
        self.0.iter().zip(point).try_for_each(|(dimension, &value)| dimension.parameter.set(spec, value))
    }

    /// Returns the space as JSON, for digests.
    pub(super) fn canonical(&self) -> Value {
        self.0.iter().map(|dimension| json!([dimension.parameter.name, dimension.range().0, dimension.range().1])).collect()
    }

    /// Returns the values of a point by parameter name.
    pub fn by_name(&self, point: &[f64]) -> BTreeMap<String, f64> {
        self.0.iter().zip(point).map(|(dimension, &value)| (dimension.parameter.name.to_owned(), value)).collect()
    }

    /// Returns the point with these values; `None` if a parameter is missing or unknown.
    pub fn point(&self, named: &BTreeMap<String, f64>) -> Option<Point> {
        let point: Option<Point> = self.0.iter().map(|dimension| named.get(dimension.parameter.name).copied()).collect();
        point.filter(|point| point.len() == named.len())
    }

    /// Returns the command-line options that set a point.
    pub fn options(&self, point: &[f64]) -> String {
        // A geometric mean computed with logarithms has rounding errors in its last bits.
        let option = |(dimension, &value): (&Dimension, &f64)| {
            let value = format!("{value:.11e}").parse().unwrap_or(value);
            let option = dimension.parameter.option.map_or(dimension.parameter.name, |(option, _)| option);
            format!("--{option} {value}")
        };
        self.0.iter().zip(point).map(option).collect::<Vec<_>>().join(" ")
    }
}

impl Default for Space {
    /// Returns all seven numbers in their default ranges.
    fn default() -> Self {
        Self(Dimension::all().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_go_by_name_and_back() {
        let space = Space::default();
        let config = SchemeSpec::default();
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
        let narrow = Space::new(vec![Dimension::all().next().unwrap().within(0.5, 2.0).unwrap()]).unwrap();
        assert_eq!(narrow.point_of(&config), None, "T = 8 lies outside");
        assert!(Space::new(Vec::new()).is_err());
    }
}
