//! JSON from other programs, with errors that name the field.

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _};
use serde_json::{Error, Value};

/// The parser's names of types, and their replacements in messages.
const WORDS: [(&str, &str); 7] = [
    ("expected usize", "expected a whole number from 0 up"),
    ("expected u32", "expected a whole number from 0 up"),
    ("expected u64", "expected a whole number from 0 up"),
    ("expected i64", "expected a whole number"),
    ("expected f64", "expected a number"),
    ("invalid type: ", "found "),
    ("invalid value: ", "found "),
];

/// Parses an object. If a field has the wrong type, the error names the field.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    let error = match serde_json::from_str(text) {
        Err(error) if error.is_data() => error,
        read => return read,
    };
    let value: Value = serde_json::from_str(text)?;
    match serde_path_to_error::deserialize::<_, T>(value) {
        // An error without a path is a missing field at the root: the first error names it, and the
        // end of the object.
        Err(fault) if fault.path().iter().next().is_some() => {
            let reason = fault.inner().to_string();
            let reason = WORDS.iter().fold(reason, |reason, (theirs, ours)| reason.replace(theirs, ours));
            Err(Error::custom(format!("`{}`: {reason}", fault.path())))
        }
        _ => Err(error),
    }
}

/// One value or a list of values, for fields that may hold either.
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
    /// Reports the error of the value or of the list. An untagged enum would only report that no
    /// variant matched.
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

/// Reads one token id or a list of them as a list. A negative id, which other programs write for
/// none, is left out.
pub(crate) fn ids<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u32>, D::Error> {
    let ids: Vec<i64> = list(deserializer)?;
    let id = |id| u32::try_from(id).map_err(|_| D::Error::custom(format!("found integer `{id}`, which is no token id")));
    ids.into_iter().filter(|&id| id >= 0).map(id).collect()
}

/// Reads one value or a list of values as a list; null is an empty list.
pub(crate) fn list<'de, T: DeserializeOwned, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::<OneOrMany<T>>::deserialize(deserializer)?.map(OneOrMany::into_vec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    struct Shape {
        #[serde(rename = "width")]
        _width: usize,
        #[serde(rename = "scale")]
        _scale: Option<f64>,
        #[serde(default, deserialize_with = "super::ids")]
        ends: Vec<u32>,
    }

    #[test]
    fn the_field_at_fault_is_named() {
        let says = |text: &str| super::parse::<Shape>(text).unwrap_err().to_string();
        assert!(super::parse::<Shape>(r#"{"width": 3, "other": []}"#).is_ok());
        assert_eq!(says(r#"{"scale": 1, "width": "big"}"#), "`width`: found string \"big\", expected a whole number from 0 up");
        assert_eq!(says(r#"{"scale": true}"#), "`scale`: found boolean `true`, expected a number");
        assert!(says(r#"{"scale": 1}"#).contains("missing field `width`"));
        assert!(says("{").contains("EOF"));
    }

    #[test]
    fn one_or_many() {
        let ends = |text: &str| super::parse::<Shape>(text).map(|shape| shape.ends);
        assert_eq!(ends(r#"{"width": 3, "ends": 7}"#).unwrap(), [7]);
        assert_eq!(ends(r#"{"width": 3, "ends": [7, 8]}"#).unwrap(), [7, 8]);
        assert_eq!(ends(r#"{"width": 3, "ends": null}"#).unwrap(), [0; 0]);
        let says = |text: &str| ends(text).unwrap_err().to_string();
        assert_eq!(says(r#"{"width": 3, "ends": "</s>"}"#), "`ends`: found string \"</s>\", expected a whole number");
        assert_eq!(ends(r#"{"width": 3, "ends": [7, -1]}"#).unwrap(), [7]);
        assert_eq!(ends(r#"{"width": 3, "ends": -1}"#).unwrap(), [0; 0]);
        assert!(says(r#"{"width": 3, "ends": 4294967296}"#).contains("`ends`: found integer `4294967296`"));
        assert!(says(r#"{"width": -3}"#).contains("expected a whole number from 0 up"));
    }
}
