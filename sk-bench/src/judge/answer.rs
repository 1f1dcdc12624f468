//! Reading a score out of what a model wrote.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::Scale;

/// Ends the thoughts of a model that thinks aloud.
const THOUGHT: &str = "</think>";
/// The field of a score.
const SCORE: &str = "score";

/// The fields of a JSON object as they stand there: one that is named twice is there twice.
struct Fields(Vec<(String, Value)>);

impl Fields {
    fn all(&self, name: &str) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value)
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// The score and the reason in an answer.
///
/// The answer must hold exactly one JSON object with a `score`, or several that agree, and that
/// score must be a whole number on the scale. An object that names it twice must agree with itself.
/// Prose or a code fence around the object is ignored, and so is what a thinking model writes
/// before `</think>`. Nothing is guessed: a number as text, a fraction or a number off the scale is
/// no score.
///
/// # Errors
/// What is wrong with the answer.
pub(super) fn object(text: &str, scale: Scale) -> Result<(u64, Option<String>), String> {
    let text = after_thoughts(text);
    let mut found: Option<(u64, Option<String>)> = None;
    for (object, given) in objects(text).iter().flat_map(|object| object.all(SCORE).map(move |given| (object, given))) {
        let score = given.as_u64().filter(|&score| scale.contains(score));
        let score = score.ok_or_else(|| format!("its score is {given}, not a whole number on the scale {scale}"))?;
        if found.as_ref().is_some_and(|(earlier, _)| *earlier != score) {
            return Err("it gives two different scores".to_owned());
        }
        found.get_or_insert((score, object.all("reason").find_map(Value::as_str).map(str::to_owned)));
    }
    found.ok_or_else(|| "it holds no JSON object with a score".to_owned())
}

/// What follows the thoughts.
fn after_thoughts(text: &str) -> &str {
    text.rfind(THOUGHT).map_or(text, |end| &text[end + THOUGHT.len()..])
}

/// The outermost JSON objects of a text.
fn objects(text: &str) -> Vec<Fields> {
    let (mut objects, mut rest) = (Vec::new(), text);
    while let Some(start) = rest.find('{') {
        rest = &rest[start..];
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Fields>();
        rest = match values.next() {
            Some(Ok(fields)) => {
                objects.push(fields);
                &rest[values.byte_offset()..]
            }
            _ => &rest[1..],
        };
    }
    objects
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(text: &str) -> Result<u64, String> {
        object(text, Scale::TENTHS).map(|(score, _)| score)
    }

    #[test]
    fn a_score_is_found_in_prose() {
        assert_eq!(object(r#"{"reason": "clear", "score": 7}"#, Scale::TENTHS), Ok((7, Some("clear".to_owned()))));
        assert_eq!(score("Sure! Here {it} is:\n```json\n{\"score\": 0}\n```\nAnything else?"), Ok(0));
        assert_eq!(score(r#"<think>maybe {"score": 3}</think>{"score": 10}"#), Ok(10));
        assert_eq!(score(r#"{"note": {"score": 1}} {"score": 4}"#), Ok(4));
        assert_eq!(score(r#"{"score": 4, "score": 4}"#), Ok(4));
        assert_eq!(score(r#"{"score": 4} and again {"score": 4}"#), Ok(4));
    }

    #[test]
    fn what_is_no_score_is_refused() {
        for text in [
            "",
            "7",
            "score: 7",
            r#"{"score": 11}"#,
            r#"{"score": -1}"#,
            r#"{"score": 7.5}"#,
            r#"{"score": "7"}"#,
            r#"{"score": true}"#,
            r#"{"score": null}"#,
            r#"{"score": 7"#,
            r#"{"Score": 7}"#,
            r#"[7]"#,
            r#"{"score": 3} or {"score": 4}"#,
            r#"{"score": 5, "score": 9}"#,
            r#"{"score": 9, "score": "9"}"#,
            r#"{"score": 1e400}"#,
        ] {
            assert!(score(text).is_err(), "{text}");
        }
        assert!(score(r#"{"score": 11}"#).unwrap_err().contains("11"));
    }

    #[test]
    fn characters_of_several_bytes_do_no_harm() {
        assert_eq!(score("{é} – {\"reason\": \"naïve ☃\", \"score\": 2} ☃{"), Ok(2));
    }
}
