//! Extraction of a score from a model's answer.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::Scale;

/// The tag that ends the thinking of a reasoning model.
const THOUGHT: &str = "</think>";
/// The name of the score field.
const SCORE: &str = "score";

/// The fields of a JSON object in order, including duplicates.
struct JsonObject(Vec<(String, Value)>);

impl JsonObject {
    fn all(&self, name: &str) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value)
    }
}

impl<'de> Deserialize<'de> for JsonObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = JsonObject;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonObject, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(JsonObject(fields))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// Returns the score and the reason of an answer.
///
/// The answer must contain a JSON object with a `score` that is a whole number on the scale.
/// Several objects, or several `score` fields of one object, must agree. Text or a code fence
/// around the object is ignored, and so is everything before `</think>`. Without such an object,
/// the answer may be just the number, `7`, or the number out of the highest score, `7/10`. Nothing
/// is guessed: a number within a sentence, a number as a JSON string, a decimal fraction and a
/// number off the scale are errors.
///
/// # Errors
/// If the answer has no valid score. The error is the reason.
pub(super) fn score(text: &str, scale: Scale) -> Result<(u64, Option<String>), String> {
    let text = after_thoughts(text);
    let mut found: Option<(u64, Option<String>)> = None;
    for (object, given) in objects(text).iter().flat_map(|object| object.all(SCORE).map(move |given| (object, given))) {
        let score = given.as_u64().filter(|&score| scale.contains(score));
        let score = score.ok_or_else(|| off(given, scale))?;
        if found.as_ref().is_some_and(|(earlier, _)| *earlier != score) {
            return Err("it gives two different scores".to_owned());
        }
        found.get_or_insert((score, object.all("reason").find_map(Value::as_str).map(str::to_owned)));
    }
    match found {
        Some(found) => Ok(found),
        None => Ok((number(text, scale)?, None)),
    }
}

/// Parses an answer that consists of a number, or of a number out of the highest score.
fn number(text: &str, scale: Scale) -> Result<u64, String> {
    // Strip Markdown emphasis and a full stop.
    let bare = text.trim().trim_matches(['*', '`']).trim_end_matches('.').trim_end_matches('*');
    let (score, most) = bare.split_once('/').map_or((bare, None), |(score, most)| (score, Some(most)));
    let score = whole(score).ok_or_else(|| "it holds no JSON object with a score and is no plain number".to_owned())?;
    if let Some(most) = most.filter(|most| whole(most) != Some(scale.high().into())) {
        return Err(format!("its score is {score} out of {}, not out of {}, the end of the scale", most.trim(), scale.high()));
    }
    if scale.contains(score) { Ok(score) } else { Err(off(&score, scale)) }
}

/// Parses a number that consists of decimal digits only.
pub(super) fn whole(text: &str) -> Option<u64> {
    let text = text.trim();
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn off(score: &dyn fmt::Display, scale: Scale) -> String {
    format!("its score is {score}, not a whole number on the scale {scale}")
}

/// Returns the text after the thinking of the model.
fn after_thoughts(text: &str) -> &str {
    text.rfind(THOUGHT).map_or(text, |end| &text[end + THOUGHT.len()..])
}

/// Returns the outermost JSON objects of a text.
fn objects(text: &str) -> Vec<JsonObject> {
    let (mut objects, mut rest) = (Vec::new(), text);
    while let Some(start) = rest.find('{') {
        rest = &rest[start..];
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<JsonObject>();
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
        super::score(text, Scale::TENTHS).map(|(score, _)| score)
    }

    #[test]
    fn a_score_is_found_in_prose() {
        assert_eq!(super::score(r#"{"reason": "clear", "score": 7}"#, Scale::TENTHS), Ok((7, Some("clear".to_owned()))));
        assert_eq!(score("Sure! Here {it} is:\n```json\n{\"score\": 0}\n```\nAnything else?"), Ok(0));
        assert_eq!(score(r#"<think>maybe {"score": 3}</think>{"score": 10}"#), Ok(10));
        assert_eq!(score(r#"{"note": {"score": 1}} {"score": 4}"#), Ok(4));
        assert_eq!(score(r#"{"score": 4, "score": 4}"#), Ok(4));
        assert_eq!(score(r#"{"score": 4} and again {"score": 4}"#), Ok(4));
    }

    #[test]
    fn a_number_alone_is_a_score() {
        for text in
            ["7", " 7\n", "7.", "**7**", "**7.**", "`7`", "7/10", "7 / 10.", "<think>5 or 6?</think>\n\n7", r#"{"score": 7}"#]
        {
            assert_eq!(score(text), Ok(7), "{text}");
        }
        assert_eq!(super::score("0/10", Scale::TENTHS), Ok((0, None)));
        assert_eq!(super::score("4/5", Scale::ONE_TO_FIVE), Ok((4, None)));
    }

    #[test]
    fn a_number_that_may_mean_something_else_is_refused() {
        for text in [
            "11",
            "-7",
            "+7",
            "7.5",
            "7,5",
            "07/100",
            "7/5",
            "7/100",
            "7/",
            "/10",
            "70%",
            "7 8",
            "7-8",
            "7 or 8",
            "6/10 or 7/10",
            "I give it a 7.",
            "7/10/10",
            "seven",
            "½",
            "７",
            "It is no 10/10.",
            "18446744073709551623",
        ] {
            assert!(score(text).is_err(), "{text}");
        }
        assert!(score("7/5").unwrap_err().contains("out of 5, not out of 10"));
        assert!(super::score("7/10", Scale::ONE_TO_FIVE).unwrap_err().contains("out of 10, not out of 5"));
        assert!(super::score("0", Scale::ONE_TO_FIVE).unwrap_err().contains("on the scale 1-5"));
    }

    #[test]
    fn answers_without_a_score_are_refused() {
        for text in [
            "",
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
