//! Numbers that may be infinite. JSON has no literal for infinity, so they are written as "inf" and
//! "-inf".

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number, "inf" or "-inf".
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(untagged)]
enum Number {
    Finite(f64),
    Infinite(Infinite),
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum Infinite {
    #[serde(rename = "inf")]
    Positive,
    #[serde(rename = "-inf")]
    Negative,
}

/// Returns the schema of a number that may be "inf". Editors pass TOML's inf as null.
pub(crate) fn or_inf(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": ["number", "null"] }, { "const": "inf" }] })
}

/// Returns the schema of a number that may be "inf" or "-inf", as that of [`or_inf`].
pub(crate) fn or_infinite(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": ["number", "null"] }, { "enum": ["inf", "-inf"] }] })
}

pub(crate) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    let number = match *value {
        f64::INFINITY => Number::Infinite(Infinite::Positive),
        f64::NEG_INFINITY => Number::Infinite(Infinite::Negative),
        finite => Number::Finite(finite),
    };
    number.serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(match Number::deserialize(deserializer)? {
        Number::Finite(value) => value,
        Number::Infinite(Infinite::Positive) => f64::INFINITY,
        Number::Infinite(Infinite::Negative) => f64::NEG_INFINITY,
    })
}
