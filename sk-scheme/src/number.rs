//! Numbers that may be infinite. JSON has no literal for infinity, so they are written as "inf" and
//! "-inf".

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number, or "inf".
#[derive(Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Number {
    Finite(f64),
    Infinite(Infinite),
}

#[derive(Clone, Copy, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Infinite {
    #[serde(rename = "inf")]
    Positive,
    #[serde(rename = "-inf")]
    Negative,
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
