//! Numbers that may be infinite. JSON has no literal for infinity, so they are written as "inf" and
//! "-inf".

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serializer};

/// Returns the schema of a number that may be "inf". Editors pass TOML's inf as null.
pub(crate) fn or_inf(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": ["number", "null"] }, { "const": "inf" }] })
}

/// Returns the schema of a number that may be "inf" or "-inf", as that of [`or_inf`].
pub(crate) fn or_infinite(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": ["number", "null"] }, { "enum": ["inf", "-inf"] }] })
}

pub(crate) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.is_infinite() { serializer.collect_str(value) } else { serializer.serialize_f64(*value) }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Number(f64),
        Text(String),
    }
    match Number::deserialize(deserializer)? {
        Number::Number(value) => Ok(value),
        Number::Text(text) if text == "inf" => Ok(f64::INFINITY),
        Number::Text(text) if text == "-inf" => Ok(f64::NEG_INFINITY),
        Number::Text(text) => Err(D::Error::invalid_value(Unexpected::Str(&text), &"a number, \"inf\" or \"-inf\"")),
    }
}
