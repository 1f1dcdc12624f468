//! JSON of others, whose faults are named by their field.

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _};
use serde_json::{Error, Value};

/// What the parser calls the types of fields, and what users call them.
const WORDS: [(&str, &str); 6] = [
    ("expected usize", "expected a whole number"),
    ("expected u32", "expected a whole number"),
    ("expected u64", "expected a whole number"),
    ("expected f64", "expected a number"),
    ("invalid type: ", "found "),
    ("invalid value: ", "found "),
];

/// Reads an object; where a field is of the wrong type, the error names it.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    let error = match serde_json::from_str(text) {
        Err(error) if error.is_data() => error,
        read => return read,
    };
    let Ok(Value::Object(fields)) = serde_json::from_str(text) else { return Err(error) };
    for (name, value) in fields {
        // By itself a field is at fault, or others are missing.
        let alone = Value::Object([(name.clone(), value)].into_iter().collect());
        let fault = serde_json::from_value::<T>(alone).err().map(|fault| fault.to_string());
        if let Some(fault) = fault.filter(|fault| !fault.starts_with("missing field")) {
            let fault = WORDS.iter().fold(fault, |fault, (theirs, ours)| fault.replace(theirs, ours));
            return Err(Error::custom(format!("`{name}`: {fault}")));
        }
    }
    Err(error)
}

/// One value, or a list of them: both occur for one and the same field.
#[derive(Debug)]
pub(crate) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    pub(crate) fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(value) => vec![value],
            Self::Many(values) => values,
        }
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for OneOrMany<T> {
    /// Says what is wrong with the one or with the list, where an untagged enum says that it is neither.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let read = if value.is_array() {
            serde_json::from_value(value).map(Self::Many)
        } else {
            serde_json::from_value(value).map(Self::One)
        };
        read.map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::OneOrMany;

    #[derive(Debug, Deserialize)]
    struct Shape {
        #[serde(rename = "width")]
        _width: usize,
        #[serde(rename = "scale")]
        _scale: Option<f64>,
        ends: Option<OneOrMany<u32>>,
    }

    #[test]
    fn the_field_at_fault_is_named() {
        let says = |text: &str| super::parse::<Shape>(text).unwrap_err().to_string();
        assert!(super::parse::<Shape>(r#"{"width": 3, "other": []}"#).is_ok());
        assert_eq!(says(r#"{"scale": 1, "width": "big"}"#), "`width`: found string \"big\", expected a whole number");
        assert_eq!(says(r#"{"scale": true}"#), "`scale`: found boolean `true`, expected a number");
        assert!(says(r#"{"scale": 1}"#).contains("missing field `width`"));
        assert!(says("{").contains("EOF"));
    }

    #[test]
    fn one_or_many() {
        let ends = |text: &str| super::parse::<Shape>(text).map(|shape| shape.ends.map(OneOrMany::into_vec));
        assert_eq!(ends(r#"{"width": 3, "ends": 7}"#).unwrap(), Some(vec![7]));
        assert_eq!(ends(r#"{"width": 3, "ends": [7, 8]}"#).unwrap(), Some(vec![7, 8]));
        assert_eq!(ends(r#"{"width": 3, "ends": null}"#).unwrap(), None);
        let says = |text: &str| ends(text).unwrap_err().to_string();
        assert_eq!(says(r#"{"width": 3, "ends": "</s>"}"#), "`ends`: found string \"</s>\", expected a whole number");
        assert_eq!(says(r#"{"width": 3, "ends": [7, -8]}"#), "`ends`: found integer `-8`, expected a whole number");
    }
}
