//! Weights as a user writes them: `helpful=0.6,honest=0.3,harmless=0.1`.

use std::str::FromStr;

use serde::ser::{Serialize, Serializer};
use sk_core::{AlignmentSpec, SpecError};

/// Weights by name, in the given order. They are validated when they are applied to blades.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedWeights(Vec<(String, f64)>);

impl NamedWeights {
    /// Combines the weights of several options; `None` if there are none.
    ///
    /// # Errors
    /// If a name is given two weights.
    pub(crate) fn together(given: &[Self]) -> Result<Option<Self>, String> {
        let mut weights: Vec<(String, f64)> = Vec::new();
        for (name, weight) in given.iter().flat_map(|weights| &weights.0) {
            add(&mut weights, name, *weight)?;
        }
        Ok((!given.is_empty()).then_some(Self(weights)))
    }

    /// Returns the names, in the given order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the weight of a name; zero if it has none.
    pub fn of(&self, name: &str) -> f64 {
        self.0.iter().find(|(other, _)| other == name).map_or(0.0, |(_, weight)| *weight)
    }

    /// Returns `spec` with these weights, scaled to sum to one. A blade that is not named gets
    /// zero.
    ///
    /// # Errors
    /// If a name is not seated or given twice, a weight is negative or not finite, or all weights
    /// are zero.
    pub fn apply(&self, spec: &AlignmentSpec) -> Result<AlignmentSpec, SpecError> {
        spec.with_named_weights(self.0.iter().map(|(name, weight)| (name.as_str(), *weight)))
    }
}

impl Serialize for NamedWeights {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, weight)| (name, weight)))
    }
}

impl FromIterator<(String, f64)> for NamedWeights {
    fn from_iter<I: IntoIterator<Item = (String, f64)>>(weights: I) -> Self {
        Self(weights.into_iter().collect())
    }
}

impl FromStr for NamedWeights {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let mut weights: Vec<(String, f64)> = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part
                .split_once(['=', ':'])
                .ok_or_else(|| format!("\"{part}\" is not NAME=WEIGHT; weights look like helpful=0.6,honest=0.4"))?;
            let (name, value) = (name.trim(), value.trim());
            let weight: f64 = value.parse().map_err(|_| format!("weight of \"{name}\" is \"{value}\", not a number"))?;
            if !weight.is_finite() || weight < 0.0 {
                return Err(format!("weight of blade \"{name}\" is {value}; it must be finite and not negative"));
            }
            add(&mut weights, name, weight)?;
        }
        if weights.is_empty() {
            return Err("no weight is given; weights look like helpful=0.6,honest=0.4".to_owned());
        }
        Ok(Self(weights))
    }
}

fn add(weights: &mut Vec<(String, f64)>, name: &str, weight: f64) -> Result<(), String> {
    if weights.iter().any(|(other, _)| other == name) {
        return Err(format!("blade \"{name}\" is given two weights"));
    }
    weights.push((name.to_owned(), weight));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_read_in_order() {
        let weights: NamedWeights = " helpful=0.6, honest = .3,harmless:1e-1,".parse().unwrap();
        assert_eq!(weights.0, [("helpful".to_owned(), 0.6), ("honest".to_owned(), 0.3), ("harmless".to_owned(), 0.1)]);
        for (wrong, says) in [
            ("helpful", "NAME=WEIGHT"),
            ("a=x", "\"x\""),
            ("a=1,a=2", "two weights"),
            (",", "no weight"),
            ("a=-1", "not negative"),
            ("a=nan", "finite"),
            ("a=inf,b=1", "\"a\" is inf"),
        ] {
            assert!(wrong.parse::<NamedWeights>().unwrap_err().contains(says), "{wrong}");
        }
    }
}
