//! Requests and answers of the two APIs.

pub(crate) mod sglang;
pub(crate) mod vllm;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use sk_core::{Reading, Sampling, TokenId};

use crate::{AnswerError, Fault, Kind};

/// The tolerance for log-probabilities that round to slightly above zero, or above that of the most
/// probable token, if one token has all the probability.
const ROUNDING: f32 = 1e-3;

/// The least log-probability of a most probable token, −ln 2³², since a [`TokenId`] has 32 bits. A
/// smaller value is a logit.
const LEAST_TOP: f32 = -22.2;

/// The least number that is taken for a log-probability. Servers send a smaller one, such as −9999, in
/// place of −∞.
const LEAST: f32 = -1000.0;

/// Tokens shared by the beginning of several rows.
pub(crate) type Prefix = Vec<TokenId>;

/// The ids of a prefix and its continuation.
struct Ids<'a>(&'a [TokenId], &'a [TokenId]);

impl Serialize for Ids<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().chain(self.1))
    }
}

/// A span to read as the continuation of a prefix.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    /// The name of the adapter on the server; `None` for the base model.
    pub(crate) adapter: Option<&'a str>,
    pub(crate) prefix: &'a Prefix,
    /// At least one token.
    pub(crate) span: &'a [TokenId],
}

/// The sampling parameters.
#[derive(Clone, Copy)]
pub(crate) struct DraftParams<'a> {
    pub(crate) max_tokens: usize,
    pub(crate) sampling: Sampling,
    /// Tokens that end a row. They are returned as its last token.
    pub(crate) stop: &'a [TokenId],
    /// Whether these tokens may not come first.
    pub(crate) not_first: bool,
    /// The number of most probable tokens to return with each token; 0 for none.
    pub(crate) tops: usize,
}

/// The tokens sampled for a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Drafted {
    pub(crate) tokens: Vec<TokenId>,
    /// As the server returns them.
    pub(crate) log_probs: Vec<f32>,
}

/// Returns the path and the body that sample one continuation of each row. A row is the prefix with
/// its tail, and a seed. On vLLM all rows must have the same tail.
pub(crate) fn draft_body(
    (kind, model): (Kind, Option<&str>),
    prefix: &Prefix,
    rows: &[(&[TokenId], u32)],
    params: &DraftParams<'_>,
) -> (&'static str, String) {
    match kind {
        Kind::Sglang => (sglang::PATH, sglang::draft_body(prefix, rows, params)),
        Kind::Vllm => (vllm::PATH, vllm::draft_body(model, prefix, rows, params)),
    }
}

/// Returns the body that loads an adapter from a directory of the server.
pub(crate) fn load_body(name: &str, directory: &str) -> String {
    json!({"lora_name": name, "lora_path": directory}).to_string()
}

/// Returns the body that tokenizes a text, the same for both servers.
pub(crate) fn tokenize_body(model: Option<&str>, text: &str) -> String {
    under(model, json!({"prompt": text, "add_special_tokens": false}))
}

/// Parses the answer to [`tokenize_body`].
pub(crate) fn tokenize_answer(body: &[u8]) -> Result<Vec<TokenId>, Fault> {
    #[derive(serde::Deserialize)]
    struct Tokenized {
        tokens: Vec<TokenId>,
    }
    serde_json::from_slice(body).map(|Tokenized { tokens }| tokens).map_err(Fault::body)
}

/// Returns the path for loading adapters.
pub(crate) fn load_path(kind: Kind) -> &'static str {
    match kind {
        Kind::Sglang => "/load_lora_adapter",
        Kind::Vllm => "/v1/load_lora_adapter",
    }
}

/// Returns a body with the name of a model, if it has one.
fn under(model: Option<&str>, mut body: Value) -> String {
    if let Some(model) = model {
        body["model"] = model.into();
    }
    body.to_string()
}

/// Returns a number with the digits of an f32.
fn digits(value: f32) -> Value {
    serde_json::from_str(&value.to_string()).unwrap_or_default()
}

/// Converts the pairs (log π(y_t), log π(argmax)) of a row into a reading.
fn reading(row: usize, pairs: &[(f32, f32)]) -> Result<Reading, AnswerError> {
    for (position, &(got, top)) in pairs.iter().enumerate() {
        for value in [got, top] {
            if !is_log_prob(value) {
                return Err(AnswerError::Value { row, position, value });
            }
        }
        if top < LEAST_TOP {
            return Err(AnswerError::Value { row, position, value: top });
        }
        if got > top + ROUNDING {
            return Err(AnswerError::Top { row, position, got, top });
        }
    }
    Ok(Reading {
        log_probs: pairs.iter().map(|pair| pair.0).collect(),
        min_entropy: pairs.iter().map(|pair| (-pair.1).max(0.0)).collect(),
        ..Reading::default()
    })
}

/// Checks that rows with the same policy and context agree about the first token, whose
/// distribution is the same for all. A row that was read under other weights or after another
/// context differs.
pub(crate) fn agree(rows: &[Row<'_>], readings: &[Reading], tolerance: f32) -> Result<(), AnswerError> {
    let differ = |one: f32, other: f32| (one - other).abs() > tolerance;
    for (second, (row, reading)) in rows.iter().zip(readings).enumerate() {
        let alike = |other: &&Row<'_>| std::ptr::eq(other.prefix, row.prefix) && other.adapter == row.adapter;
        let Some(first) = rows[..second].iter().position(|other| alike(&other)) else { continue };
        let pairs = [(&readings[first].min_entropy, &reading.min_entropy), (&readings[first].log_probs, &reading.log_probs)];
        let compared = if rows[first].span[0] == row.span[0] { 2 } else { 1 };
        for (ours, theirs) in &pairs[..compared] {
            if let (Some(&one), Some(&other)) = (ours.first(), theirs.first())
                && differ(one, other)
            {
                return Err(AnswerError::Disagreement { first, second, one, other });
            }
        }
    }
    Ok(())
}

/// Validates the most probable next tokens and returns the `asked` ones in descending order, ties
/// by token id.
fn most_likely(mut tops: Vec<(TokenId, f32)>, asked: usize) -> Result<Vec<(TokenId, f32)>, AnswerError> {
    if let Some(position) = tops.iter().position(|(_, value)| !value.is_finite() || *value > ROUNDING) {
        return Err(AnswerError::Value { row: 0, position, value: tops[position].1 });
    }
    tops.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    tops.dedup_by_key(|(token, _)| *token);
    if tops.len() < asked {
        return Err(AnswerError::Positions { row: 0, expected: asked, got: tops.len() });
    }
    tops.truncate(asked);
    Ok(tops)
}

/// Validates the tokens and log-probabilities of a drafted row.
fn drafted(
    row: usize,
    tokens: Vec<TokenId>,
    log_probs: Vec<f32>,
    finish: &str,
    params: &DraftParams<'_>,
) -> Result<Drafted, Fault> {
    if tokens.len() != log_probs.len() {
        return Err(AnswerError::Positions { row, expected: tokens.len(), got: log_probs.len() }.into());
    }
    let ended = tokens.iter().position(|token| params.stop.contains(token));
    let whole = match finish {
        "length" => tokens.len() == params.max_tokens && ended.is_none_or(|place| place + 1 == tokens.len()),
        "stop" => ended.is_some_and(|place| place + 1 == tokens.len()) && tokens.len() <= params.max_tokens,
        _ => false,
    };
    if let ("stop", None, Some(last)) = (finish, ended, tokens.last()) {
        return Err(Fault::body(format!(
            "row {row} ended with token {last}, an end of text of the server alone; add it to eos_token_id of the \
             generation_config.json beside tokenizer.json"
        )));
    }
    if !whole || (params.not_first && ended == Some(0)) {
        return Err(AnswerError::Finish { row, reason: finish.to_owned(), tokens: tokens.len() }.into());
    }
    if let Some(position) = log_probs.iter().position(|value| !is_log_prob(*value)) {
        return Err(AnswerError::Value { row, position, value: log_probs[position] }.into());
    }
    Ok(Drafted { tokens, log_probs })
}

fn is_log_prob(value: f32) -> bool {
    (LEAST..=ROUNDING).contains(&value)
}

/// Returns NaN for a number that the server omits or sends as null.
fn number(value: Option<f32>) -> f32 {
    value.unwrap_or(f32::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_log_probability_is_named() {
        assert_eq!(reading(3, &[(-1.0, -0.5), (-0.25, -0.25)]).unwrap().min_entropy, [0.5, 0.25]);
        assert!(matches!(reading(3, &[(f32::NAN, -0.5)]), Err(AnswerError::Value { row: 3, position: 0, .. })));
        assert!(matches!(reading(0, &[(-1.0, -0.5), (0.5, 0.5)]), Err(AnswerError::Value { position: 1, .. })));
        assert!(matches!(reading(0, &[(-1.0, -1.5)]), Err(AnswerError::Top { .. })));
        // It stands for −∞.
        assert!(matches!(reading(0, &[(-9999.0, -0.5)]), Err(AnswerError::Value { position: 0, .. })));
        assert!(matches!(reading(0, &[(-1.0, -0.5), (-23.0, -22.5)]), Err(AnswerError::Value { position: 1, .. })));
        assert_eq!(reading(0, &[(1e-6, 1e-6)]).unwrap().min_entropy, [0.0]);
    }

    #[test]
    fn an_end_of_text_that_only_the_server_knows_is_named() {
        let (sampling, stop) = (Sampling::greedy(), &[9][..]);
        let params = DraftParams { max_tokens: 3, sampling, stop, not_first: false, tops: 0 };
        let ended = |tokens: &[TokenId]| drafted(0, tokens.to_vec(), vec![-1.0; tokens.len()], "stop", &params);
        assert!(ended(&[5, 9]).is_ok());
        assert!(ended(&[5, 7]).unwrap_err().to_string().contains("ended with token 7, an end of text of the server alone"));
        assert!(matches!(ended(&[]), Err(Fault::Answer(AnswerError::Finish { tokens: 0, .. }))));
    }

    #[test]
    fn rows_of_one_context_agree_about_the_first_token() {
        let (prefix, other) = (vec![1], vec![1]);
        let row = |prefix, span| Row { adapter: None, prefix, span };
        let read = |log_prob, entropy| Reading { log_probs: vec![log_prob], min_entropy: vec![entropy], ..Reading::default() };
        let rows = [row(&prefix, &[5]), row(&prefix, &[6]), row(&other, &[5])];
        assert_eq!(agree(&rows, &[read(-1.0, 0.5), read(-2.0, 0.5), read(-3.0, 0.9)], 0.01), Ok(()));
        let wrong = agree(&rows, &[read(-1.0, 0.5), read(-2.0, 0.6), read(-3.0, 0.9)], 0.01);
        assert_eq!(wrong, Err(AnswerError::Disagreement { first: 0, second: 1, one: 0.5, other: 0.6 }));
        let rows = [row(&prefix, &[5]), row(&prefix, &[5])];
        assert!(agree(&rows, &[read(-1.0, 0.5), read(-2.0, 0.5)], 0.01).is_err());
    }
}
